"""Lakes to break: small tables of every kind, what a job may find in them, and what they hold afterwards."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from sessionizer.lib import columns as C
from sessionizer.lib.durations import DAY
from sessionizer.tables.queries.local import LocalTable
from tests.jobs.driver import JOBS
from tests.oracle import us
from tests.text_tables import clock
from tests.warehouse import FIRST_EVENTS, MORE_EVENTS, NOW, Warehouse

CLICKS = "user,at,n\nann,2026-01-01T08:00:00Z,1\nann,yesterday,2\nbob,2026-01-01T08:10:00Z,3\n"
TABLES = (
    *("events", "sessions", "rejected_events", "event_sessions", "session_updates", "runs"),
    *("windows", "windows_rejected_events", "windows_runs"),
)
# What differs between two runs that do the same.
BY_THE_WAY = {C.RUN_ID, "started_at", "finished_at", "seconds", "files_written", "bytes_written"}
BY_VERSION = {C.RUN_SEQ, "sessions_version", "windows_version"}
LEDGERS = ("runs", "windows_runs")
TRACED = ("event_sessions",)
ALL = ("event_sessions", "session_updates", "windows")
WINDOWS = {"table": "", "rejected_events": "_rejected_events", "runs": "_runs"}
Contents = dict[str, Counter[str]]


def lake_at(spark: SparkSession, folder: Path, *optional: str, **sections: Any) -> Warehouse:
    """The source is `folder/events`; optional: which of the tables beside that not everyone has."""
    outputs = {name: str(folder / name) for name in ("event_sessions", "session_updates") if name in optional}
    windows = {name: str(folder / f"windows{end}") for name, end in WINDOWS.items()}
    sliding = {"sliding": {**windows, "time_difference": "20m", "grace": "1h"}} if "windows" in optional else {}
    made = {"time": {"allowed_lateness": "1h"}, "outputs": outputs, **sliding}
    return Warehouse(spark, folder, **made | sections)


def last_runs(folder: Path) -> dict[str, int]:
    """The number of the last run that each ledger has."""
    found = {}
    for name in LEDGERS:
        if (folder / name).is_dir():
            rows = LocalTable(str(folder / name), name).dataset().to_table(columns=[C.RUN_SEQ])
            found[name] = max(rows[C.RUN_SEQ].to_pylist(), default=0)
    return found


def contents(folder: Path, *, versions: bool = True, up_to: Mapping[str, int] | None = None) -> Contents:
    """The rows of every table as texts, read without Spark.

    versions: also what follows from their numbers. up_to: the last run of which each ledger is shown.
    """
    unlike = BY_THE_WAY | (set() if versions else BY_VERSION)
    found: Contents = {}
    for name in TABLES:
        if (folder / name / "_delta_log").is_dir() and any((folder / name / "_delta_log").glob("*.json")):
            shown = pc.field(C.RUN_SEQ) <= up_to[name] if up_to is not None and name in up_to else None
            rows: pa.Table = LocalTable(str(folder / name), name).dataset().to_table(filter=shown)
            kept = rows.select([c for c in rows.column_names if c not in unlike]).to_pylist()
            found[name] = Counter(repr(row) for row in kept)
    return found


def lost_and_doubled(expected: Contents, found: Contents) -> tuple[int, int]:
    """How many rows are missing, and how many are there that should not be."""
    names = expected.keys() | found.keys()
    none: Counter[str] = Counter()
    pairs = [(expected.get(name, none), found.get(name, none)) for name in names]
    return sum((e - f).total() for e, f in pairs), sum((f - e).total() for e, f in pairs)


# What a job finds.


def bare(lake: Warehouse) -> None:
    """Events, and no tables."""
    lake.append(FIRST_EVENTS)


def made(lake: Warehouse) -> None:
    """Tables, and nothing in them."""
    bare(lake)
    lake.init()


def waiting(lake: Warehouse) -> None:
    """What can be made of FIRST_EVENTS is; MORE_EVENTS has not been read."""
    made(lake)
    lake.run()
    if lake.config.sliding is not None:
        JOBS["slide"](lake.spark, lake.config, now=NOW)
    lake.append(MORE_EVENTS)


def consumed(lake: Warehouse) -> None:
    """Sessions of FIRST_EVENTS and of MORE_EVENTS."""
    waiting(lake)
    lake.run()


def slid(lake: Warehouse) -> None:
    """Windows of FIRST_EVENTS and of MORE_EVENTS."""
    waiting(lake)
    JOBS["slide"](lake.spark, lake.config, now=NOW)


def corrected(lake: Warehouse) -> None:
    """Updates and deletes have come to a final session, to a live one, and to an event that was rejected."""
    consumed(lake)
    lake.delta_source().delete("user = 'ann' AND n = 2")
    lake.delta_source().update("user = 'bob' AND n = 3", {"at": f"timestamp_micros({us(clock('09:00'))})"})
    lake.delta_source().delete("user = 'ann' AND at = timestamp_micros({})".format(us(clock("08:20"))))


def restored(lake: Warehouse) -> None:
    """sessions has been brought back to the first run."""
    consumed(lake)
    lake.delta().restoreToVersion(1)


def worn(lake: Warehouse) -> None:
    """Small files everywhere, and one that no version has."""
    consumed(lake)
    orphan = lake.folder / "sessions" / "is_final=true" / "part-left-behind.snappy.parquet"
    orphan.write_bytes(b"of a run that was killed")
    os.utime(orphan, (0, 0))


def outlived(lake: Warehouse) -> None:
    """Days after all others there was one more event."""
    consumed(lake)
    lake.append("user | at | n \n eve | +3d 12:00 | 1")
    lake.run()


def clicks(lake: Warehouse) -> None:
    """A file, and no tables."""
    (lake.folder / "clicks.csv").write_text(CLICKS)


SPAN = {"low": us(clock("06:00")), "high": us(clock("15:00")), "now": NOW}


@dataclass(frozen=True)
class Scenario:
    """A job, what it finds, what it is asked.

    optional: tables that not everyone has. by_file: it is asked with files of the folder. versions: whether a restart
    leaves the same numbers of versions. again: a restart after its last commit does all of it once more.
    """

    job: str
    finds: Callable[[Warehouse], None]
    asked: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Any] = field(default_factory=dict)
    optional: tuple[str, ...] = ()
    by_file: bool = False
    versions: bool = True
    again: bool = False

    def options(self, folder: Path) -> dict[str, Any]:
        """What it is asked, in this folder."""
        return {**self.asked, **({"files": [str(folder / "clicks.csv")], "format": "csv"} if self.by_file else {})}

    def lake(self, spark: SparkSession, folder: Path) -> Warehouse:
        """The tables in a folder, as the job is configured."""
        return lake_at(spark, folder, *self.optional, **self.sections)

    def do(self, lake: Warehouse) -> Any:
        """The job."""
        return JOBS[self.job](lake.spark, lake.config, **self.options(lake.folder))


UPKEEP = {"retain": 2 * DAY, "keep": {"rejected_events": 2 * DAY}, "now": NOW + 400 * DAY}
SCENARIOS = {
    "init": Scenario("init", bare, optional=ALL),
    "ingest": Scenario("ingest", clicks, by_file=True),
    "first run": Scenario("run", made, {"now": NOW}),
    "run": Scenario("run", waiting, {"now": NOW}, optional=ALL),
    "replacing run": Scenario("run", waiting, {"now": NOW}, {"sessions": {"commit": "replace"}}, TRACED),
    "amending run": Scenario("run", waiting, {"now": NOW}, {"late_events": "amend"}),
    "run with corrections": Scenario("run", corrected, {"now": NOW}, optional=("session_updates",)),
    "run after a RESTORE": Scenario("run", restored, {"now": NOW}, optional=TRACED),
    "backfill": Scenario("backfill", consumed, SPAN, optional=TRACED, versions=False, again=True),
    "readmit": Scenario("readmit", consumed, SPAN, optional=TRACED),
    "rebuild": Scenario(
        "rebuild", consumed, {"now": NOW}, {"session": {"gap": "45m"}}, TRACED, versions=False, again=True
    ),
    "slide": Scenario("slide", waiting, {"now": NOW}, optional=ALL),
    "backfill of windows": Scenario(
        "backfill",
        slid,
        {**SPAN, "windows": True, "chunk": (SPAN["high"] - SPAN["low"]) // 2},
        optional=("windows",),
        versions=False,
        again=True,
    ),
    "maintain": Scenario("maintain", worn, UPKEEP, versions=False),
    "forgetting": Scenario("maintain", outlived, {"keep": {"sessions": DAY}, "now": NOW}, optional=TRACED),
}


class Stock:
    """Lakes as a job finds them: each made once, and copied for whoever breaks it."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder

    def copy(self, finds: Callable[[Warehouse], None], to: Path, *optional: str) -> None:
        """A copy of such a lake, in a folder that is not there yet."""
        made_once = self.folder / "-".join([finds.__name__, *optional])
        if not made_once.exists():
            made_once.mkdir()
            finds(lake_at(self.spark, made_once, *optional))
        shutil.copytree(made_once, to)
