"""Plays of sliding windows by the same verbs as those of sessions; and what the definition makes of their events."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from sessionizer.jobs.commands.verify import Asked
from sessionizer.jobs.commands.verify_windows import verify_windows
from sessionizer.jobs.reporting.verdict import Verdict
from sessionizer.jobs.run.driver import slide
from sessionizer.jobs.run.kinds import Kind
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from tests import quick_tables
from tests.exactness.play import TOTAL, Play, at
from tests.oracle import us
from tests.sliding_oracle import windows

D = 10  # minutes
NUMBERS = {"name": "numbers", "fn": "list", "of": "n"}
SECTION: dict[str, Any] = {"time_difference": f"{D}m", "grace": "0s", "time_unit": "1m"}
MINUTE = 60_000_000


class Slides(Play):
    """A play whose jobs make windows: of ten minutes, by whole minutes, no grace, unless told."""

    def configured(self, **sections: Any) -> Config:
        section = SECTION | {"table": str(self.folder / "windows"), "aggregates": [*TOTAL, NUMBERS]}
        return super().configured(**sections | {"sliding": section | sections.get("sliding", {})})

    @property
    def kind(self) -> Kind:
        return self.windows

    def run(self, config: Config | None = None, **options: Any) -> list[RunReport]:
        asked = RunOptions(**{"now": self.now} | options)
        return slide(self.spark, config or self.config, asked, self.said.append)

    def verify(self, low: float | None = None, high: float | None = None, sample: float | None = None) -> Verdict:
        first, last = (None if edge is None else at(edge) for edge in (low, high))
        return verify_windows(self.spark, self.config, Asked(first, last, sample))

    def assert_windows(self, events: str) -> None:
        """The table holds the windows of these events (as `told_short` reads them, n tells them apart), and no others.

        `verify` agrees, and the ledger accounts for all.
        """
        wanted = {(u, s): sorted(v) for (u, s), v in windows(numbered(events), D * MINUTE, MINUTE).items()}
        found = self.found()
        assert found == wanted, (sorted(found.items()), sorted(wanted.items()))
        self.assert_clean()

    def found(self) -> dict[tuple[Any, int], list[int]]:
        """The numbers in each window, by key and start."""
        columns = ("u", C.WINDOW_START, C.WINDOW_END, C.EVENT_COUNT, "numbers")
        table = quick_tables.read(self.place(), columns)
        rows = self.kind.home.table.read().select(*columns).collect() if table is None else table
        told = {(u, in_utc(s)): sorted(n) for u, s, _, _, n in rows}
        assert len(told) == len(rows), "a window is there twice"
        assert all(in_utc(e) - in_utc(s) == D * MINUTE and count == len(n) for _, s, e, count, n in rows)
        return told

    def place(self) -> str:
        return str(self.kind.home.table.location)

    def told(self, header: str, **by: Any) -> list[dict[str, Any]]:
        return self.told_of(self.place(), header, **by)

    def told_rejected(self, header: str) -> list[dict[str, Any]]:
        return self.told_of(str(self.kind.rejected_events.table.location), header)

    def damage(self, statement: str, table: str = "windows") -> None:
        with self.kind.home.table.lock():
            self.spark.sql(statement.replace("{}", f"delta.`{self.folder / table}`"))


def slides(spark: SparkSession, folder: Path, events: str, **sections: Any) -> Slides:
    made = Slides(spark, folder / "play", **sections)
    made.runs(events)
    return made


def in_utc(time: datetime) -> int:
    return us(time.replace(tzinfo=UTC))


def numbered(events: str) -> list[tuple[str, int, int]]:
    found = []
    for event in events.split():
        user, _, rest = event.partition("@")
        minute, _, n = rest.partition("=")
        found.append((user, at(int(minute)), int(n)))
    return found
