"""Where a history is played: over tables of Delta in a folder, or over tables in memory."""

import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from delta import DeltaTable as DeltaSparkTable
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.commands.maintain import Asked as Upkeep
from sessionizer.jobs.commands.maintain import maintain
from sessionizer.lib.config import Config
from tests.kills import killing
from tests.machine.drawing import sql
from tests.machine.memory import MemoryTable, dying, in_memory
from tests.machine.options import sections
from tests.machine.rule import Row, Rule
from tests.machine.steps import Add, AddColumn, Changes, Delete, Overwrite, Update
from tests.machine.telling import arrow, columns_read, in_source, read, schema
from tests.warehouse import Warehouse

OfSource = Add | Update | Delete | Overwrite | AddColumn
ADDED = "added"
Bag = Counter[Row]


class Place(Protocol):
    """A source, and the tables of one configuration."""

    warehouse: Warehouse

    def change(self, step: OfSource, before: Bag, after: Bag) -> None:
        """One more version of the source: what the step makes of its rows."""

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table."""

    def dying(self, nth: int) -> AbstractContextManager[object]:
        """Inside it a job dies before its nth write."""

    def maintain(self, now: int) -> None:
        """Upkeep."""

    def restore(self, version: int) -> None:
        """Sessions go back to this version of theirs."""

    def follow(self, rule: Rule) -> None:
        """Jobs go by this configuration from now on."""


@contextmanager
def over_delta(spark: SparkSession, folder: Path, rule: Rule) -> Iterator[Place]:
    """An empty place of real tables."""
    shutil.rmtree(folder, ignore_errors=True)
    yield OverDelta(spark, folder, rule)


@contextmanager
def over_memory(spark: SparkSession, folder: Path, rule: Rule) -> Iterator[Place]:
    """An empty place in memory; the folder is a name alone."""
    with in_memory():
        yield OverMemory(spark, folder, rule)


class Configured:
    """What goes by a configuration."""

    warehouse: Warehouse

    def follow(self, rule: Rule) -> None:
        self.warehouse.config = self.warehouse.configured(**sections(rule, self.warehouse.folder))


class OverDelta(Configured):
    """Real tables in a folder."""

    def __init__(self, spark: SparkSession, folder: Path, rule: Rule) -> None:
        self.spark, self.rule = spark, rule
        self.warehouse = Warehouse(spark, folder, **sections(rule, folder))

    def change(self, step: OfSource, before: Bag, after: Bag) -> None:
        match step:
            case Add():
                first = not (self.warehouse.folder / "events").exists()
                self.warehouse.append_frame(self._frame(step.rows))
                if first:
                    self.warehouse.init()
            case Update():
                self._update(step.changes)
            case Delete():
                self.warehouse.delta_source().delete(F.col("n").isin(list(step.numbers)))
            case AddColumn():
                self.spark.sql(
                    f"ALTER TABLE delta.`{self.warehouse.config.source.table}` ADD COLUMN {self._added()} INT"
                )
            case Overwrite():
                frame = self._frame(after.elements())
                frame.write.format("delta").mode("overwrite").save(self.warehouse.config.source.table)

    def rows(self, table: str) -> list[dict[str, Any]]:
        if self.rule.laid == "with vectors":  # which readers without Spark do not open
            found = self.spark.read.format("delta").load(table)
            return read(found.select(columns_read(found.columns)).toArrow(), self.rule)
        return rows_of_delta(table, self.rule)

    def dying(self, nth: int) -> AbstractContextManager[object]:
        return killing(nth, after=False)

    def maintain(self, now: int) -> None:
        maintain(self.spark, self.warehouse.config, Upkeep(now=now), self.warehouse.said.append)

    def restore(self, version: int) -> None:
        DeltaSparkTable.forPath(self.spark, self.warehouse.config.sessions.table).restoreToVersion(version)

    def _added(self) -> str:
        return f"{ADDED}_{len(self.warehouse.tables.events.table.schema.fields)}"

    def _frame(self, rows: Iterable[Row]) -> DataFrame:
        """By way of Arrow, which needs no processes."""
        return self.spark.createDataFrame(arrow(rows, self.rule)).coalesce(1)

    def _update(self, changes: Changes) -> None:
        columns = sorted({name for change in changes.values() for name in change})
        cases = {}
        for name in columns:
            told = {n: sql(name, c[name], self.rule) for n, c in changes.items() if name in c}
            column = in_source(name, self.rule)
            cases[column] = f"CASE n {' '.join(f'WHEN {n} THEN {v}' for n, v in told.items())} ELSE {column} END"
        self.warehouse.delta_source().update(F.col("n").isin(list(changes)), {n: F.expr(c) for n, c in cases.items()})


class OverMemory(Configured):
    """Tables in memory; inside `in_memory`."""

    def __init__(self, spark: SparkSession, folder: Path, rule: Rule) -> None:
        self.spark, self.rule, self.added = spark, rule, 0
        self.warehouse = Warehouse(spark, folder, **sections(rule, folder))

    def change(self, step: OfSource, before: Bag, after: Bag) -> None:
        feed: dict[str, Iterable[Row]] = {}
        match step:
            case Add():
                feed = {"insert": step.rows}
            case Update():
                old = [row for row in before.elements() if row.n in step.changes]
                new = [row._replace(**step.changes[row.n]) for row in old]
                feed = {"update_preimage": old, "update_postimage": new}
            case Delete():
                feed = {"delete": [row for row in before.elements() if row.n in step.numbers]}
            case Overwrite():
                feed = {"delete": before.elements(), "insert": after.elements()}
            case AddColumn():
                self.added += 1
        source = self._table(self.warehouse.config.source.table)
        first = not source.exists()
        told = {kind: self._rows(rows) for kind, rows in feed.items()}
        extra = [T.StructField(f"{ADDED}_{n}", T.IntegerType()) for n in range(self.added)]
        schema = T.StructType([*_of(self.rule).fields, *extra])
        operation = "DELETE" if isinstance(step, Delete) else "WRITE"
        source.change_source(self._rows(after.elements()), told, schema, operation)
        if first:
            self.warehouse.init()

    def rows(self, table: str) -> list[dict[str, Any]]:
        found = self._table(table).rows()
        return read(found.select(columns_read(found.column_names)), self.rule)

    def dying(self, nth: int) -> AbstractContextManager[object]:
        return dying(nth)

    def maintain(self, now: int) -> None:
        """There are no files."""

    def _rows(self, rows: Iterable[Row]) -> pa.Table:
        told = arrow(rows, self.rule)
        for n in range(self.added):
            told = told.append_column(f"{ADDED}_{n}", pa.nulls(told.num_rows, pa.int32()))
        return told

    def restore(self, version: int) -> None:
        self._table(self.warehouse.config.sessions.table).go_back(version)

    def _table(self, location: str) -> MemoryTable:
        return MemoryTable(self.spark, location, location)


def _of(rule: Rule) -> T.StructType:
    found = T.StructType.fromDDL(schema(rule))
    assert isinstance(found, T.StructType)
    return found


def rows_of_delta(table: str, rule: Rule) -> list[dict[str, Any]]:
    """All rows of a real table, as they are told here."""
    found = DeltaTable(table)
    names = columns_read([f.name for f in found.schema().fields])
    return read(found.to_pyarrow_table(columns=names), rule)


def config_of(place: Place) -> Config:
    return place.warehouse.config
