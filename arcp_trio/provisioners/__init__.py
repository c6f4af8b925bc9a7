"""Provisioners for services that mint credentials (§9.8); each module is an extra of its own."""
