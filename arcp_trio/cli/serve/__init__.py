"""`arcp-trio serve`: a runtime on a port or on the standard streams of its process."""
