"""Benchmarks of this runtime beside another one, in the same run (`python -m bench`)."""
