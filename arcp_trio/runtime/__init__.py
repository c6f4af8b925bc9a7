"""The runtime: sessions, jobs, and the events between them."""
