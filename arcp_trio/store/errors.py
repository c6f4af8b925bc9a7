"""The errors of a store; each message is one sentence."""

# ruff: noqa: N818 - a name such as `StoreInUse` says what is wrong without the suffix "Error"

from __future__ import annotations


class StoreError(Exception):
    """The store cannot read or write: the disk is full or broken, or another program uses the file.

    Raised by a commit, it means that nothing was lost and that trying again may help.
    """


class DiskFull(StoreError):
    """The disk below the store has no room left; it can be read."""


class StoreInUse(StoreError):
    """A runtime, of this process or another, has the store open, or a program reads it."""


class UnwritableStore(StoreError):
    """The folder or the file cannot be made or written to."""


class ForeignFile(StoreError):
    """The file exists, but is not a store."""


class OtherVersion(StoreError):
    """The store was written by another version, and cannot be migrated to this one."""


class CorruptStore(StoreError):
    """The file is a store, and damaged."""


class Fenced(Exception):
    """The node is taken for dead, or its last writes were forgotten: it can store nothing more.

    Other nodes go on with its sessions and jobs. It ends, and may come back only as a new node.
    """
