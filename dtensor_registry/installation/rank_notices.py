"""What each rank decides by, on a notice board that the ranks of a mesh share: nobody waits.

The first rank to use a mesh writes its fingerprint into the store of the default process group.
Every later one compares its own with what it finds there, so of two ranks that differ the later
one sees it at once, before its first decision on the mesh. It writes down what differs. The
earlier ones read that at one of their next decisions.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections import Counter
from typing import Any

from dtensor_registry.errors import RanksDisagreeError
from dtensor_registry.fingerprint import Fingerprint
from dtensor_registry.installation.rank_check import (
    rank_differences,
    read_parts,
    show_ranks,
    write_parts,
)
from dtensor_registry.torch_runtime.process_group_store import Meeting

SHARE = 0.05
"""Share of a rank's time, at most, that goes into reading the board again."""

_notices: Counter[tuple[int, ...]] = Counter()
_lock = threading.Lock()


class UncheckedRanksWarning(UserWarning):
    """The store of the process group could not be read, so ranks are not compared."""


class Notice:
    """The notice of one rank about one mesh.

    Args:
        mine: what this rank decides by.
        meeting: the ranks of the mesh.
    """

    def __init__(self, mine: Fingerprint, meeting: Meeting) -> None:
        self._mine = mine
        self._meeting = meeting
        with _lock:
            # The n-th time that a rank uses a mesh under new rules is the n-th time of all.
            number = _notices[meeting.ranks]
            _notices[meeting.ranks] += 1
        self._key = f"dtensor_registry/notice/{show_ranks(meeting.ranks)}/{number}"
        self._next_look = 0.0
        self._found: RanksDisagreeError | None = None

    def publish(self) -> None:
        """Write this rank's fingerprint, or compare it with that of the first rank.

        One round trip to the store if all agree; a second one for the first rank.

        Raises:
            RanksDisagreeError: if they differ, or others have found that they do.
        """
        mine = json.dumps({"rank": self._meeting.rank, "digest": self._mine.digest})
        found = self._ask(lambda store: store.compare_set(self._key, "", mine))
        if found is None:
            return
        if found == mine.encode():
            self._ask(lambda store: write_parts(store, self._key, self._mine))
        self._compare(json.loads(found))

    def look_again(self) -> None:
        """Read the board, unless that would take too large a share of the time.

        Raises:
            RanksDisagreeError: if a later rank has found that its rules differ.
        """
        if self._found is not None:
            raise RanksDisagreeError(len(self._meeting.ranks), self._found.differences)
        if time.monotonic() >= self._next_look:
            found = self._ask(lambda store: store.get(self._key))
            if found is not None:
                self._compare(json.loads(found))

    def _compare(self, board: dict[str, Any]) -> None:
        if board.get("digest") == self._mine.digest:
            return
        told = board.get("differences")
        if told is None:
            theirs = read_parts(self._meeting.store, self._key, board["digest"], board["rank"])
            both: dict[tuple[int, ...], dict[str, str]]
            both = {(board["rank"],): theirs, (self._meeting.rank,): dict(self._mine.parts)}
            told = rank_differences(both)
            note = json.dumps({"differences": told})
            self._ask(lambda store: store.set(self._key, note))
        self._found = RanksDisagreeError(len(self._meeting.ranks), told)
        raise self._found

    def _ask(self, ask: Any) -> Any:
        """Ask the store; where it is gone, say so once and ask no more."""
        start = time.monotonic()
        try:
            return ask(self._meeting.store)
        except RuntimeError as error:  # what c10d raises for a store that does not answer
            self._next_look = float("inf")
            warnings.warn(
                f"the rules of {show_ranks(self._meeting.ranks)} are not compared: the store of the"
                f" process group does not answer ({error})",
                UncheckedRanksWarning,
                stacklevel=2,
            )
            return None
        finally:
            now = time.monotonic()
            self._next_look = max(self._next_look, now + (now - start) / SHARE)
