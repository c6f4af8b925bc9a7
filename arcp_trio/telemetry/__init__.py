"""Tracers that export to other systems; each module needs its own extra."""
