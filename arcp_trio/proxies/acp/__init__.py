"""Agents that are programs which speak ACP: each job starts one."""
