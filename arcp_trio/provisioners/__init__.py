"""Provisioners for services that mint credentials (§9.8); each module needs its own extra."""
