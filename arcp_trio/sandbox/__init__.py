"""Containment: the operating system holds a program to what a lease says, by bubblewrap.

`plan` says which paths a program sees, `program` which files it consists of, `bwrap` how bubblewrap
is told, and `gate` what happens between its start and the program's. `containment` is what others
use.
"""
