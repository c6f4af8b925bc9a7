"""Agents that are programs which speak ACP: each job starts one, and is one turn of it."""
