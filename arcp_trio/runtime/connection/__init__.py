"""Connections: transports, and the tasks that move frames between them and sessions."""
