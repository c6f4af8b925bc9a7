"""The client: `connect`, sessions that survive their connections, and handles of jobs."""
