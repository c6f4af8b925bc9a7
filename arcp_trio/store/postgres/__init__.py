"""The engine for several machines, which keeps everything in a PostgreSQL database.

Modules with an underscore are internal. Only this package imports psycopg.
"""
