"""The `spec` marker: which clause of the specification a test shows."""
