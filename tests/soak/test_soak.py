"""Three hundred increments in one process: runs do not get slower, files and log stay bounded, the table is right.

`make test-soak`: it takes about half an hour, so that it is no part of `make test-all`.
"""

import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

import delta
import pytest
from pyspark.sql import SparkSession

from bench.clicks import DAY, Clicks, make_source
from bench.ways import Ours
from sessionizer.jobs.commands.maintain import Asked as Upkeep
from sessionizer.jobs.commands.maintain import maintain
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.tables.delta import Commit
from sessionizer.tables.queries.local import LocalTable
from tests.summary import Tally

RUNS = int(os.environ.get("SESSIONIZER_SOAK_RUNS", "300"))
SIZES = (1_000, 100, 20_000, 1_000, 5_000, 100, 50_000, 1_000, 10_000, 2_000)  # events; then again from the first
CORRECTED, KEPT_UP = 10, 25  # every so many runs
HOUR = 3600
EDGE = 50  # runs at either end that are compared


@dataclass
class Seen:
    """What was noted of each run."""

    seconds: list[float] = field(default_factory=list)
    files: list[int] = field(default_factory=list)
    log: list[int] = field(default_factory=list)

    def edges(self, values: list[float]) -> tuple[float, float]:
        return statistics.median(values[:EDGE]), statistics.median(values[-EDGE:])

    def log_of_a_run(self) -> list[float]:
        """Bytes that each run has added to the log of sessions."""
        return [float(later - earlier) for earlier, later in zip([0, *self.log], self.log, strict=False)]


@pytest.mark.timeout(3 * HOUR)
def test_three_hundred_runs_are_as_quick_as_the_first_and_leave_the_right_table(
    spark: SparkSession, tmp_path: Path, tally: Tally
) -> None:
    assert RUNS >= 2 * EDGE, "fewer have no first and last fifty"
    before = Clicks(200_000, 10_000, 5)
    source = make_source(before.of(spark), tmp_path / "events")
    ours = Ours(spark, tmp_path / "events", tmp_path, late_events="amend")
    ours.forget()
    ours.load()
    seen, more = Seen(), before
    for number in range(RUNS):
        more = more.then(SIZES[number % len(SIZES)], 1 / 24, 1000 + number)
        source.append(more.of(spark).coalesce(1), Commit("soak", number + 1))
        if number % CORRECTED == CORRECTED - 1:
            correct(spark, str(tmp_path / "events"), more.start - DAY // 2, number)
        began = time.perf_counter()
        ours.update()
        seen.seconds.append(time.perf_counter() - began)
        if number % KEPT_UP == KEPT_UP - 1:
            maintain(spark, ours.config, Upkeep())
        seen.files.append(len(LocalTable(ours.table, "sessions").dataset().files))
        seen.log.append(sum(f.stat().st_size for f in (Path(ours.table) / "_delta_log").iterdir()))
    tally.add("soak: runs", RUNS)
    first, last = seen.edges(seen.seconds)
    tally.note("soak: seconds of a run, first and last fifty", f"{first:.2f} {last:.2f} ({last / first:.2f})")
    tally.note("soak: files of sessions at most, and at the end", f"{max(seen.files)} {seen.files[-1]}")
    log_first, log_last = seen.edges(seen.log_of_a_run())
    tally.note("soak: log of sessions, bytes a run, first and last fifty", f"{log_first:,.0f} {log_last:,.0f}")
    report = verify(spark, ours.config, Asked())
    tally.add("soak: sessions that verify found wrong", report.differing)
    assert report.clean, report
    assert last / first <= 1.2
    assert max(seen.files[-KEPT_UP:]) <= max(seen.files[KEPT_UP : 3 * KEPT_UP])
    assert log_last <= 1.2 * log_first


def correct(spark: SparkSession, events: str, since: int, number: int) -> None:
    """Some events of the last half day change, and some go."""
    table = delta.DeltaTable.forPath(spark, events)
    recent = f"event_time >= timestamp_seconds({since})"
    table.update(f"{recent} AND crc32(page) % 97 = {number % 97}", {"amount": "amount + 1"})
    table.delete(f"{recent} AND crc32(page) % 89 = {number % 89}")
