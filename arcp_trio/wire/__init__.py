"""The protocol as data: frames, messages, event bodies, errors. No I/O, no clock, no Trio."""
