"""What can go wrong with a session on disk: one root, so that a command can say it in one sentence."""

from __future__ import annotations


class SessionError(Exception):
    """A session cannot be used as asked; the message says what happened, where, and what to do next."""


class SessionNotFound(SessionError):
    """No session, or more than one, answers to the given name."""


class SessionBusy(SessionError):
    """Another living process writes this session."""


class NotEnoughSpace(SessionError):
    """The disk cannot hold what the way back needs."""


class StoreError(SessionError):
    """The session's database cannot be written or read."""


class StoreDamaged(StoreError):
    """The session's database is not what amptui wrote."""


class CheckpointDamaged(SessionError):
    """A checkpoint file is not, byte for byte, the one that was recorded."""
