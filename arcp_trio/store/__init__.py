"""What the runtime must not forget: journals, logs, cursors, jobs, keys and sessions."""
