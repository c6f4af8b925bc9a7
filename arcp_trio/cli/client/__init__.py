"""The commands that talk to a runtime: a module for each command, and what they share."""
