"""Why a store cannot do what it is asked, in a sentence each."""

# ruff: noqa: N818 - they read as what is the matter

from __future__ import annotations


class StoreError(Exception):
    """The store cannot read or write: the disk is full, or broken, or someone else has it.

    Raised by a commit, it means that nothing was lost and that trying again may help.
    """


class StoreInUse(StoreError):
    """Another runtime, of this process or another, has the store open, or someone reads it."""


class UnwritableStore(StoreError):
    """The folder or the file cannot be made or written to."""


class ForeignFile(StoreError):
    """The file is there, but it is no store."""


class OtherVersion(StoreError):
    """The store was written by another version, and cannot be brought to this one."""


class CorruptStore(StoreError):
    """The file is a store, and damaged."""
