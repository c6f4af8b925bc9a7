"""The front: it listens, and decides what each connection that comes in may have."""
