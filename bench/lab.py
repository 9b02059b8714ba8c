"""Measuring ways against each other: same data, same process, in turn, after a warm-up, results compared first."""

import os
import platform
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bench.clicks import Clicks, make_source
from bench.meter import Cost, metered
from bench.ways import Ours, Way
from sessionizer.jobs.spark import spark_session
from sessionizer.tables.delta import Commit, Table

MEMORY = "8g"


@dataclass
class Result:
    """What one way took in one case: medians over the rounds; `least` and `most` seconds; bytes.

    ratio: its seconds by those of the way that the case compares with, or the other way round, as `goal` says.
    differs: rows that are not in our table, or the other way round; None: not compared.
    """

    case: str
    way: str
    seconds: float
    least: float
    most: float
    cpu: float
    peak: int
    read: int
    written: int
    files_read: int
    files_written: int
    rounds: int
    ratio: float | None = None
    goal: str | None = None
    met: bool | None = None
    differs: int | None = None
    phases: Mapping[str, float] = field(default_factory=dict)

    @classmethod
    def of(cls, case: str, way: str, costs: list[Cost], **more: Any) -> "Result":
        """Of the costs of all rounds."""

        def middle(name: str) -> float:
            return statistics.median(getattr(c, name) for c in costs)

        seconds = [c.seconds for c in costs]
        return cls(
            case,
            way,
            seconds=round(middle("seconds"), 3),
            least=round(min(seconds), 3),
            most=round(max(seconds), 3),
            cpu=round(middle("cpu"), 3),
            peak=int(middle("peak")),
            read=int(middle("read")),
            written=int(middle("written")),
            files_read=int(middle("files_read")),
            files_written=int(middle("files_written")),
            rounds=len(costs),
            **more,
        )

    def judge(self, ratio: float, *, at_least: float | None = None, at_most: float | None = None) -> "Result":
        """With a ratio, and whether it is as good as it is meant to be."""
        self.ratio = round(ratio, 2)
        if at_least is not None:
            self.goal, self.met = f"≥ {at_least:g}", ratio >= at_least
        if at_most is not None:
            self.goal, self.met = f"≤ {at_most:g}", ratio <= at_most
        return self


class Lab:
    """A Spark session, a folder, and how often each thing is done."""

    def __init__(self, spark: SparkSession, folder: Path, events: int, rounds: int, warm_up: int) -> None:
        self.spark, self.folder = spark, folder
        self.events, self.rounds, self.warm_up = events, rounds, warm_up
        self.commits = 0

    def tidy(self) -> None:
        """Free what earlier cases have left in the process: garbage, and the state stores of streams that are over."""
        java: Any = self.spark._jvm
        java.org.apache.spark.sql.execution.streaming.state.StateStore.stop()
        java.System.gc()

    def source(self, clicks: Clicks, name: str) -> Path:
        """A table of these events, in files of a million by time, made once."""
        return self.source_of(clicks.of(self.spark), name, max(clicks.events // 1_000_000, 1))

    def source_of(self, events: DataFrame, name: str, files: int) -> Path:
        """The same of events in hand."""
        path = self.folder / name
        if not path.exists():
            make_source(events, path, files)
        return path

    def append(self, source: Path, clicks: Clicks) -> None:
        """More events."""
        self.commits += 1
        files = max(clicks.events // 1_000_000, 1)
        rows = clicks.of(self.spark).coalesce(files)
        Table(self.spark, str(source), "events").append(rows, Commit("bench", self.commits))

    def in_turn(
        self,
        case: str,
        works: Mapping[str, Callable[[], None]],
        before: Callable[[int], None] = lambda _: None,
        *,
        warm_up: int | None = None,
    ) -> dict[str, list[Cost]]:
        """Costs of each work, after warming up; `before` each round something may be made ready."""
        costs: dict[str, list[Cost]] = {name: [] for name in works}
        warm_up = self.warm_up if warm_up is None else warm_up
        for number in range(warm_up + self.rounds):
            before(number)
            for name, work in works.items():
                with metered(self.folder) as cost:
                    work()
                warming = number < warm_up
                say(f"{case}: {name}: {cost.seconds:.2f} s{' (warm-up)' * warming}")
                if not warming:
                    costs[name].append(cost)
        return costs

    def differences(self, ours: Way, other: Way) -> int:
        """Rows of either table that the other does not have; sessions that may still grow only where both have them."""
        mine, theirs = ours.sessions(), other.sessions()
        unlike = theirs.exceptAll(mine).count()
        return unlike + mine.exceptAll(theirs).count() if other.keeps_live else unlike


def phases(ours: Ours) -> dict[str, float]:
    """Seconds by phase of our last run."""
    return dict(ours.reports[-1].timing.seconds or {}) if ours.reports else {}


@contextmanager
def laboratory(events: int, rounds: int, warm_up: int, keep: Path | None = None) -> Iterator[Lab]:
    """A lab whose folder goes with it, unless it is to be kept."""
    spark = spark_session({"spark.driver.memory": MEMORY})
    folder = keep or Path(tempfile.mkdtemp(prefix="sessionizer-bench-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield Lab(spark, folder, events, rounds, warm_up)
    finally:
        if keep is None:
            shutil.rmtree(folder, ignore_errors=True)


def environment() -> dict[str, Any]:
    """Versions, cores and memory."""
    packages = ("pyspark", "delta-spark", "deltalake", "duckdb", "polars")
    return {
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "driver_memory": MEMORY,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def as_document(results: list[Result]) -> dict[str, Any]:
    """Everything, for a JSON file."""
    return {"environment": environment(), "results": [asdict(r) for r in results]}


def say(text: str) -> None:
    """Progress."""
    sys.stderr.write(text + "\n")
