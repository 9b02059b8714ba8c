"""Real tables in a folder, and runs over them: what the tests of the main job play with."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

from delta import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.kinds import Kind, kind_of
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.tables.delta import Table
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.table_set import TableSet
from tests import quick_tables
from tests.oracle import us
from tests.text_tables import clock, rows

# What `init` asks of a source: where it is there already, init adds no version.
SOURCE = {"delta.enableChangeDataFeed": "true", "delta.deletedFileRetentionDuration": "interval 30 days"}
EVENTS = "user STRING, at TIMESTAMP, n INT"
NOW = us(clock("+9d 00:00"))
# The columns of a session row that tell how it came about, not what it is.
HOW = (C.RUN_ID, C.SUPERSEDES, C.STATE)
FIRST_EVENTS = """
    user | at     | n
    ann  | 08:00  | 1
    ann  | 08:10  | 2
    bob  | 10:50  | 3
    bob  | 11:55  | 4
    cat  | 12:00  | 5
    -    | 11:00  | 6
    cat  | -      | 7
    """
# ann's is late, bob's two join his two sessions into one, dan's moves the watermark to 13:00.
MORE_EVENTS = """
    user | at     | n
    ann  | 08:20  | 1
    bob  | 11:20  | 1
    bob  | 11:40  | 1
    cat  | 12:10  | 1
    dan  | 13:00  | 1
    """


class Warehouse:
    """A source, and the tables of one configuration beside it."""

    def __init__(self, spark: SparkSession, folder: Path, **sections: Any) -> None:
        """`sections` are those of the config file; what they leave out is set here."""
        self.spark = spark
        self.folder = folder
        self.said: list[str] = []
        self.config = self.configured(**sections)

    def configured(self, **sections: Any) -> Config:
        """The config with these sections."""
        source = {"table": str(self.folder / "events"), "key": ["user"], "event_time": "at"}
        sessions = {"table": str(self.folder / "sessions")}
        return Config.model_validate(
            {"session": {"gap": "30m"}, "aggregates": [{"name": "total", "fn": "sum", "of": "n"}]}
            | sections
            | {"source": source | sections.get("source", {}), "sessions": sessions | sections.get("sessions", {})}
        )

    @property
    def tables(self) -> TableSet:
        return TableSet(self.spark, self.config)

    @property
    def kind(self) -> Kind:
        """Sessions, as configured."""
        return kind_of(self.spark, self.config)

    @property
    def windows(self) -> Kind:
        """Sliding windows, as configured."""
        return kind_of(self.spark, self.config, windows=True)

    # The source.

    def append(self, events: str | list[tuple[Any, ...]], schema: str = EVENTS) -> None:
        """Add events as one version of the source: a text table, or rows of `schema`; made where it is missing."""
        if isinstance(events, str):
            events = [tuple(r.values()) for r in rows(events, at=clock, n=int)]
        if not quick_tables.append(self.folder / "events", events, schema, SOURCE):
            self.append_frame(self.spark.createDataFrame(events, schema).coalesce(1))

    def append_frame(self, events: DataFrame) -> None:
        writer = events.write.format("delta").mode("append")
        if not (self.folder / "events").exists():
            writer = writer.options(**SOURCE)
        writer.save(self.config.source.table)

    # The product.

    def init(self) -> "Warehouse":
        init(self.spark, self.config, None, self.said.append)
        return self

    def run(self, config: Config | None = None, **options: Any) -> list[RunReport]:
        return run(self.spark, config or self.config, RunOptions(**{"now": NOW} | options), self.said.append)

    # What came out.

    def sessions(self, *columns: str, version: int | None = None) -> list[tuple[Any, ...]]:
        """Session rows in order, of these columns; times as the tests write them."""
        return self._rows(self.tables.sessions.table, columns, version)

    def sessions_table(self) -> list[tuple[Any, ...]]:
        """All session rows but the columns that tell how they came about."""
        table = self.tables.sessions.table
        return self._rows(table, tuple(n for n in table.schema.names if n not in HOW))

    def rejected(self, *columns: str) -> list[tuple[Any, ...]]:
        return self._rows(self.tables.rejected_events.table, columns)

    def ledger(self, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of `runs`, in the order of run_seq."""
        table = self.tables.runs.table
        found = quick_tables.read(table.location, (C.RUN_SEQ, *columns))
        rows = table.read().select(C.RUN_SEQ, *columns).collect() if found is None else found
        return [tuple(row[1:]) for row in sorted(rows, key=lambda row: row[0])]

    def _rows(self, table: Table, columns: tuple[str, ...], version: int | None = None) -> list[tuple[Any, ...]]:
        found = quick_tables.read(table.location, columns, version)
        if found is None:
            return self.sorted_rows(table.read(version), *columns)
        return sorted((tuple(map(_told, row)) for row in found), key=repr)

    def sorted_rows(self, frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
        """Rows as tuples, sorted; times as `2026-01-01 10:00:00[.000001]`."""
        texts = [
            C.col(n).cast("string").alias(n)
            if frame.schema[n].dataType.typeName() in ("timestamp", "date")
            else C.col(n)
            for n in columns
        ]
        return sorted((tuple(r) for r in frame.select(*texts).collect()), key=repr)

    def position(self) -> Manifest:
        manifest = self.tables.sessions.position().manifest
        assert manifest is not None
        return manifest

    def versions(self) -> dict[str, int]:
        """The version that each table is at: the same before and after means that nothing was written."""
        tables = self.tables
        by_name = (tables.events.table, tables.sessions.table, tables.rejected_events.table, tables.runs.table)
        return {t.field: t.version for t in by_name if t.exists()}

    def by_hand(self, statement: str) -> None:
        """SQL of somebody else upon the sessions table, which is `{}` in it; by Spark Connect, too."""
        self.spark.sql(statement.replace("{}", f"delta.`{self.config.sessions.table}`")).collect()

    def delta(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.config.sessions.table)

    def delta_source(self) -> DeltaTable:
        return DeltaTable.forPath(self.spark, self.config.source.table)


def _told(cell: Any) -> Any:
    if isinstance(cell, datetime):
        return f"{cell.year:04}{cell:-%m-%d %H:%M:%S.%f}".rstrip("0").rstrip(".")
    return str(cell) if isinstance(cell, date) else cell


def files_of_final_rows(warehouse: Warehouse) -> set[str]:
    frame = warehouse.tables.sessions.table.read().where(C.col(C.IS_FINAL))
    return {r[0] for r in frame.select(F.input_file_name()).distinct().collect()}
