"""The product in a notebook: what the command line does, as calls that return frames and plain objects."""

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.commands.report import by_spark, write_report
from sessionizer.jobs.commands.status import status
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.queries.lookups import OfKeys, sessions_at, windows_at
from sessionizer.jobs.queries.sql import query_frame
from sessionizer.jobs.reporting.run_output import as_row
from sessionizer.jobs.reporting.verdict import Verdict
from sessionizer.jobs.run.driver import increments
from sessionizer.jobs.run.kinds import kind_of
from sessionizer.jobs.run.phases import RunOptions, wall_clock
from sessionizer.jobs.spark import spark_session
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.lib.reading.lookups import Instant, find_sessions, find_windows, microseconds
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.lib.windows.sliding.rule import sliding_of
from sessionizer.tables.places.catalog import check_lasting
from sessionizer.tables.table_set import TableSet


@dataclass(frozen=True)
class Project:
    """The tables of one config. Errors of all calls: as of the command of the same name."""

    config: Config
    spark: SparkSession

    @classmethod
    def of(cls, config: str | Path) -> "Project":
        """By a config file; with the Spark session that runs, or one of its own."""
        loaded = load_config(config)
        spark = spark_session(loaded.spark)
        check_lasting(spark, loaded.tables)
        return cls(TableSet(spark, loaded).config, spark)

    def init(self) -> list[str]:
        """Make the tables; what was done, as sentences."""
        said: list[str] = []
        init(self.spark, self.config, None, said.append)
        return said

    def run(self, *, flush: bool = False, windows: bool = False) -> list[dict[str, Any]]:
        """Merge what is new, until caught up: the rows of the ledger, times as ISO-8601. windows: as `slide`."""
        options = RunOptions(override=WatermarkOverride(flush=flush))
        return [as_row(report) for report in increments(kind_of(self.spark, self.config, windows=windows), options)]

    def backfill(self, start: datetime, end: datetime, *, windows: bool = False) -> list[dict[str, Any]]:
        """Recompute what touches this time, the end exclusive: rows as of `run`. Without a zone it is UTC."""
        asked = LookBack(microseconds(start), microseconds(end))
        return [as_row(report) for report in backfill(kind_of(self.spark, self.config, windows=windows), asked)]

    def sessions(self, *, version: int | None = None, at: Instant | None = None, **asked: Any) -> DataFrame:
        """Rows of sessions, in order of time. asked: key, key_from, earliest_end, …, as `find_sessions` has them.

        version, at: the table as it was then. What `sessions.retention` leaves out is not found, as by the command.
        """
        rows = sessions_at(TableSet(self.spark, self.config), version, at).drop(C.STATE)
        rows = OfKeys().of(rows, C.SESSION_END, self.config.sessions.retention)
        return find_sessions(rows, self.config.source.key, **asked)

    def windows(self, *, version: int | None = None, at: Instant | None = None, **asked: Any) -> DataFrame:
        """Rows of sliding windows; asked: as `find_windows` has it."""
        rows = windows_at(TableSet(self.spark, self.config), version, at).drop(C.STATE)
        rows = OfKeys().of(rows, C.WINDOW_END, sliding_of(self.config).retention)
        return find_windows(rows, self.config.source.key, **asked)

    def sql(self, query: str) -> DataFrame:
        """What a query over the tables and views finds; nothing can be changed."""
        return query_frame(self.spark, self.config, query)

    def status(self) -> dict[str, Any]:
        """Where the tables stand."""
        return status(self.spark, self.config)

    def verify(self) -> Verdict:
        """Recompute the sessions from their events and compare row by row; see its `clean`."""
        return verify(self.spark, self.config, Asked())

    def report(self, file: str | Path = "report.html") -> Path:
        """Write the page about the sessions; where it is."""
        write_report(by_spark(self.spark, self.config), self.config, Path(file), wall_clock())
        return Path(file)
