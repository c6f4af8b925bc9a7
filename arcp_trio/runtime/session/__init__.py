"""Sessions: what outlives a connection, from a client's requests to its numbered events."""
