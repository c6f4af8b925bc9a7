"""The runtime as one node of several that share a store; only such a runtime imports this room."""
