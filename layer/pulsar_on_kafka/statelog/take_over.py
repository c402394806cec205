"""The fence: whose records count, when a paused owner may wake up and go on appending. Pure.

A new owner appends TAKEOVER(session, version), reads it back, and only then serves. Every owner's record names its
version and is void exactly when a TAKEOVER of a higher version stands before it in the log; a TAKEOVER whose version is
not above the newest one before it is void itself. So a former owner can append, but never decide. An owner acts on a
decision only after reading its own record back as valid.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulsar_on_kafka.base.errors import Fenced


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner that took over last. Versions count from 1; the session distinguishes two that claimed one version."""

    session: str
    version: int

    def check(self, newest: Owner | None, what: str) -> None:
        """Raises Fenced: `newest` is another one, so nothing is to be done for `what` any more."""
        if newest != self:
            raise Fenced(f"{what}: {newest} owns it, not {self}")


class TakeOverFence:
    """Folds one owned log (a cursor's, a coordinator's). Feed it every record in log order; judge only at the end.

    Keys must be unique to the record, so they carry the session: TAKEOVER keys session and version.
    """

    def __init__(self) -> None:
        self._owner: Owner | None = None
        self._takeovers: dict[bytes, Owner] = {}  # not tombstoned, in log order
        self._records: dict[bytes, bool] = {}  # not tombstoned, in log order: whether valid
        self._void: dict[bytes, None] = {}  # those of them that are not

    def copy(self) -> TakeOverFence:
        made = TakeOverFence()
        made._owner = self._owner
        made._takeovers = self._takeovers.copy()
        made._records = self._records.copy()
        made._void = self._void.copy()
        return made

    # Folding ------------------------------------------------------------------------------------------------------

    def takeover(self, key: bytes, session: str, version: int) -> bool:
        """Fold a TAKEOVER in; True when it is valid where it stands. Its tombstone later does not undo it."""
        claim = Owner(session, version)
        self._takeovers[key] = claim
        valid = self._owner is None or version > self._owner.version
        if valid:
            self._owner = claim
        return valid

    def record(self, key: bytes, version: int, *, lawful: bool = True) -> bool:
        """Fold an owner's record in; True when it is valid where it stands (a tombstone may still follow).

        With `lawful` False a rule of the log's own makes it void, which must be one that no later tombstone undoes.

        The session is not looked at: who claimed a version second never read itself back as the owner and so wrote
        nothing. Looking at it would make readers differ once compaction took the first of two equal claims.
        """
        valid = lawful and (self._owner is None or version >= self._owner.version)
        self._records[key] = valid
        if valid:
            self._void.pop(key, None)
        else:
            self._void[key] = None
        return valid

    def tombstone(self, key: bytes) -> None:
        """The record under `key` is gone, as if it had never been there."""
        self._takeovers.pop(key, None)
        self._records.pop(key, None)
        self._void.pop(key, None)

    # Judging, at the end of the log -------------------------------------------------------------------------------

    @property
    def owner(self) -> Owner | None:
        """The owner that serves; None before the first TAKEOVER."""
        return self._owner

    @property
    def next_version(self) -> int:
        return 1 if self._owner is None else self._owner.version + 1

    def is_valid(self, key: bytes) -> bool:
        """False for what is void, and for what is not there (any more)."""
        return self._records.get(key, False)

    def has(self, key: bytes) -> bool:
        """Whether a record under the key, valid or void, was folded in and is not tombstoned."""
        return key in self._records or key in self._takeovers

    def void_keys(self) -> list[bytes]:
        return list(self._void)

    def valid_keys(self) -> list[bytes]:
        return [key for key, valid in self._records.items() if valid]

    def to_clean(self, owner: Owner) -> list[bytes]:
        """Keys that `owner` should tombstone now: void records; once none is left, TAKEOVERs other than its own.

        In this order, or compaction would take the TAKEOVER that makes a void record void and leave the record. The
        second step is named only when the tombstones of the first have been read back. Empty for anyone but the owner.
        """
        if owner != self._owner:
            return []
        return self.void_keys() or [key for key, claim in self._takeovers.items() if claim != owner]
