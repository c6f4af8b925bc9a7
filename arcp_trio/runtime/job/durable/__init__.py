"""Durable jobs: what they remember from run to run, and how their agents are called again."""
