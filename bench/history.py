"""What changing history costs: a backfill of one day, and late events that amend final sessions.

`make bench-history` prints it. A backfill of a day is timed in a table of one year and in one of five: it must not
cost more where there is more history. Late events spread over a month amend a table of a million final sessions; they
are timed against ordinary increments of the same table. All run warm in one process, in turn: only ratios mean
anything.
"""

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

import delta
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console
from rich.table import Table

from bench.clicks import Clicks, make_source
from bench.ways import Ours
from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.kinds import kind_of
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.jobs.spark import spark_session
from sessionizer.tables.delta import Commit

START = 1_600_000_000  # seconds
DAY, YEAR = 86_400, 365
A_DAY, A_YEAR = 1_000, 365_000  # sessions
EVENTS_OF_ONE, USERS = 4, 50_000
SESSIONS, ORDINARY, LATE, SPREAD = 1_000_000, 100_000, 100, 30
ROUNDS, WARM_UP = 5, 2
MORE_HISTORY, AMENDING = 1.3, 2.0


class Timed:
    """One table with its history, and seconds of what is done to it."""

    def __init__(self, spark: SparkSession, folder: Path, sessions: int, days: int, late_events: str) -> None:
        self.spark, self.days = spark, days
        ours = Ours(spark, folder / "events", folder, late_events=late_events)
        self.config = ours.config
        history = clicks(spark, sessions * EVENTS_OF_ONE, 1, START, days * DAY)
        self.source = make_source(history, folder / "events", max(days // 5, 1))
        ours.forget()
        ours.load()
        self.appended = 0

    def backfill_of_a_day(self, number: int) -> float:
        """Seconds to make a day right in which every tenth session is wrong."""
        low = START + (self.days // 3 + number) * DAY
        table = delta.DeltaTable.forPath(self.spark, self.config.sessions.table)
        wrong = f"session_start >= timestamp_seconds({low}) AND session_start < timestamp_seconds({low + DAY})"
        table.update(f"{wrong} AND crc32(session_id) % 10 = 0", {"revenue": F.col("revenue") + 1})
        asked = LookBack(low * 1_000_000, (low + DAY) * 1_000_000)
        started = time.perf_counter()
        (report,) = backfill(kind_of(self.spark, self.config), asked)
        took = time.perf_counter() - started
        assert report.manifest.sessions["updated"] > 0, report.manifest
        return took

    def increment(self, events: DataFrame, amends: int = 0) -> float:
        """Seconds of the run that takes these events; amends: how many final sessions they change."""
        self.appended += 1
        self.source.append(events.coalesce(1), Commit("bench", self.appended))
        started = time.perf_counter()
        (report,) = run(self.spark, self.config, RunOptions())
        took = time.perf_counter() - started
        assert not report.manifest.rejected, report.manifest
        assert report.manifest.sessions["touched_final"] == amends, report.manifest
        return took

    def ordinary(self, number: int) -> float:
        """An increment at the end of the table's time."""
        begin = START + self.days * DAY + self.appended * 1800
        return self.increment(clicks(self.spark, ORDINARY, 100 * number + 7, begin, 1800))

    def amending(self, number: int) -> float:
        """An increment of late events, each in another final session of a month long past."""
        return self.increment(self.late_events.where(F.col("round") == number).drop("round"), amends=LATE)

    @cached_property
    def late_events(self) -> DataFrame:
        """Those of all rounds, chosen before the first: so that no round reads the table just before it is timed."""
        low, rounds = START + (self.days // 2) * DAY, WARM_UP + ROUNDS
        month = f"session_start >= timestamp_seconds({low}) AND session_start < timestamp_seconds({low + SPREAD * DAY})"
        sessions = self.spark.read.format("delta").load(self.config.sessions.table)
        some = sessions.where(month).orderBy(F.xxhash64("session_id")).limit(LATE * rounds).coalesce(1)
        middle = (F.unix_seconds("session_start") + F.unix_seconds("session_end")) / 2
        late = some.select(
            "user_id",
            F.timestamp_seconds(middle).alias("event_time"),
            F.lit("/shop/late").alias("page"),
            F.lit(1).cast("decimal(8,2)").alias("amount"),
            (F.monotonically_increasing_id() % rounds).alias("round"),
        )
        return late.localCheckpoint()


def clicks(spark: SparkSession, events: int, seed: int, start: int, seconds: int) -> DataFrame:
    """Visits of a few events each, by people alone, none of them late."""
    shape = Clicks(events, USERS, seconds / DAY, start, seed, visit=EVENTS_OF_ONE, bots=0, late=0)
    return shape.of(spark)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=1.0, help="of the numbers of sessions")
    share = parser.parse_args().share
    spark = spark_session()
    folder = Path(tempfile.mkdtemp(prefix="sessionizer-bench-"))
    try:
        one, five = (
            Timed(spark, folder / name, int(years * A_YEAR * share), years * YEAR, "quarantine")
            for name, years in (("one", 1), ("five", 5))
        )
        took = in_turn({"one year": one.backfill_of_a_day, "five years": five.backfill_of_a_day})
        shutil.rmtree(folder, ignore_errors=True)
        million = Timed(spark, folder / "million", int(SESSIONS * share), YEAR, "amend")
        million.late_events.count()
        took |= in_turn({"ordinary": million.ordinary, "amending": million.amending})
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    show(took)


def in_turn(ways: dict[str, Callable[[int], float]]) -> dict[str, list[float]]:
    """Seconds of each, after warming up."""
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(WARM_UP + ROUNDS):
        for name, way in ways.items():
            seconds = way(number)
            sys.stderr.write(f"{name}: {seconds:.2f} s{' (warm-up)' * (number < WARM_UP)}\n")
            if number >= WARM_UP:
                taken[name].append(seconds)
    return taken


def show(took: dict[str, list[float]]) -> None:
    """Medians and the ratios that are promised."""
    out = Console(width=100, highlight=False)
    table = Table(box=None, pad_edge=False)
    for header in ("", "seconds", "min", "max"):
        table.add_column(header, justify="left" if not header else "right")
    named = {
        "one year": f"backfill of a day, one year of {A_DAY:,} sessions a day",
        "five years": "backfill of a day, five years of them",
        "ordinary": f"{ORDINARY:,} events at the end of {SESSIONS:,} sessions",
        "amending": f"{LATE} late events, spread over {SPREAD} days of them",
    }
    for name, values in took.items():
        table.add_row(named[name], *(f"{f(values):.2f}" for f in (statistics.median, min, max)))
    out.print(table)
    more = _ratio(took["five years"], took["one year"])
    amending = _ratio(took["amending"], took["ordinary"])
    out.print(f"\nfive years to one {more:.2f} (at most {MORE_HISTORY} is promised)")
    out.print(f"amending to ordinary {amending:.2f} (at most {AMENDING:.0f} is promised)")
    if more > MORE_HISTORY or amending > AMENDING:
        raise SystemExit(1)


def _ratio(ours: list[float], theirs: list[float]) -> float:
    return statistics.median(ours) / statistics.median(theirs)


if __name__ == "__main__":
    main()
