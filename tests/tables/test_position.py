"""Which run is the last one, as the log tells it: what upkeep repeats stands for a run only where none is left."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from sessionizer.tables.delta import Entry
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.position import position_of

VACUUMED, RESTORED = (23, "VACUUM END", 21), (22, "RESTORE", None)
RUN, REPEATED = (21, "MERGE", 21), (20, "SET TBLPROPERTIES", 5)
FIRST = (5, "WRITE", 5)


class Log:
    """Commits, newest first: version, operation, and the number of the run whose manifest they hold."""

    def __init__(self, *commits: tuple[int, str, int | None]) -> None:
        told = [(v, what, {"version": "20"} if what == "RESTORE" else {}, number) for v, what, number in commits]
        self.entries = [Entry(v, 0, what, given, {}, None if n is None else str(n)) for v, what, given, n in told]
        self.version = self.entries[0].version

    def history(self, _: int | None = None) -> Iterator[Entry]:
        return iter(self.entries)


@pytest.fixture(autouse=True)
def told_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(text: str | None) -> Any:
        return None if text is None else SimpleNamespace(run_seq=int(text))

    monkeypatch.setattr(Manifest, "parse", parse)


@pytest.mark.parametrize(
    ("commits", "run_seq", "restored"),
    [
        ((RUN, REPEATED, FIRST), 21, None),
        ((REPEATED,), 5, None),
        ((RESTORED, RUN, REPEATED, FIRST), 5, 22),
        ((VACUUMED, RESTORED, RUN, REPEATED, FIRST), 5, 22),
        ((VACUUMED, RESTORED, RUN, REPEATED), 5, 22),  # what was repeated is of a run that the RESTORE has undone
        (((25, "VACUUM END", 23), (24, "MERGE", 23), RESTORED, RUN, REPEATED), 23, None),
        (((25, "VACUUM END", 5), RESTORED), 5, None),
        # The same of a run that began before upkeep did, and came behind it.
        (((23, "VACUUM END", 19), RESTORED, (21, "MERGE", 19), (20, "VACUUM END", 5)), 5, 22),
        (((23, "VACUUM END", 19), RESTORED, (21, "VACUUM END", 5), (20, "VACUUM START", 5)), 19, None),
    ],
)
def test_the_last_run_is_the_newest_that_no_restore_has_undone(
    commits: tuple[tuple[int, str, int | None], ...], run_seq: int, restored: int | None
) -> None:
    position = position_of(Log(*commits))
    assert position.manifest is not None
    assert (position.version, position.manifest.run_seq, position.restored) == (commits[0][0], run_seq, restored)
