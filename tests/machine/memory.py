"""Tables in memory in the place of those of Delta: the public jobs over them take a fraction of the time.

They do what those do as far as one job after another can tell: versions, the change feed, a MERGE, fences, history.
What is Delta's own (files, locks, statistics, others at the same time) is played over Delta itself.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import to_arrow_schema

from sessionizer.lib import columns as C
from sessionizer.lib.admission.united import as_type, together
from sessionizer.tables import event_outputs, events, runs, table_set
from sessionizer.tables.delta import Commit, Entry, Superseded, Table
from sessionizer.tables.delta.commits import BARRIER
from sessionizer.tables.stitch import mapping
from tests.kills import Killed
from tests.warehouse import SOURCE

USERS = (events, event_outputs, mapping, runs, table_set)  # the modules that make tables
TYPE = pa.field(C.CHANGE_TYPE, pa.string())


@dataclass
class Version:
    """What a table holds after a commit, and what the commit says of itself. feed: the changed rows, of a source."""

    schema: T.StructType
    rows: pa.Table
    entry: Entry
    feed: pa.Table | None = None
    fence: tuple[str, int] | None = None


@dataclass
class Content:
    """All versions of a table."""

    settings: dict[str, str]
    partition_by: list[str]
    versions: list[Version] = field(default_factory=list)
    fences: dict[str, int] = field(default_factory=dict)


THERE: dict[str, Content] = {}
LEFT: list[int] = []  # how many writes there are to the death of a job


@contextmanager
def in_memory() -> Iterator[None]:
    """Inside it the jobs find and make tables in memory; at its end they are gone."""
    THERE.clear()
    for module in USERS:
        module.Table = MemoryTable  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in USERS:
            module.Table = Table  # type: ignore[attr-defined]
        THERE.clear()


@contextmanager
def dying(nth: int) -> Iterator[None]:
    """Inside it a job dies before its nth write."""
    LEFT.append(nth)
    try:
        yield
    finally:
        LEFT.clear()


def come_to_write() -> None:
    """Before every write."""
    if LEFT:
        LEFT[0] -= 1
        if not LEFT[0]:
            raise Killed


class MemoryTable(Table):
    """A table in memory, by its location."""

    # What is there.

    def exists(self) -> bool:
        return self.location in THERE

    @property
    def local_path(self) -> None:
        return None

    @property
    def version(self) -> int:
        return len(self._content.versions) - 1

    @property
    def id(self) -> str:
        return self.location

    @property
    def schema(self) -> T.StructType:
        return self._last.schema

    def schema_at(self, version: int) -> T.StructType:
        return self._content.versions[version].schema

    def size(self) -> tuple[int, int]:
        return int(self._last.rows.num_rows > 0), self._last.rows.nbytes

    def setting(self, name: str) -> str | None:
        return self._content.settings.get(name)

    @property
    def partition_columns(self) -> list[str]:
        return self._content.partition_by

    def read(self, version: int | None = None) -> DataFrame:
        found = self._content.versions[-1 if version is None else version]
        return self.spark.createDataFrame(
            found.rows.combine_chunks(), found.schema
        )  # of empty chunks Spark sees no further

    def removes_rows(self, version: int) -> bool:
        done, before = self._content.versions[version], self._content.versions[max(version - 1, 0)].rows
        if done.feed is None:
            return not done.rows.slice(0, before.num_rows).equals(before)
        return pc.any(pc.not_equal(done.feed[TYPE.name], "insert")).as_py() is True

    def changes(self, first: int, last: int) -> DataFrame:
        numbered = [(n, self._content.versions[n].feed) for n in range(first, last + 1)]
        parts = [
            feed.append_column(C.COMMIT_VERSION, pa.array([n] * feed.num_rows, pa.int64()))
            for n, feed in numbered
            if feed is not None
        ]
        wanted = self._fed(last)
        if not parts:
            return _dated(self.spark.createDataFrame([], wanted))
        whole = pa.concat_tables(parts, promote_options="default")
        for name in {f.name for f in wanted.fields} - {*whole.column_names}:
            whole = whole.append_column(name, pa.nulls(whole.num_rows, pa.int32()))
        return _dated(self.spark.createDataFrame(whole.select(wanted.names).combine_chunks(), wanted))

    def _fed(self, last: int) -> T.StructType:
        told = [T.StructField(C.CHANGE_TYPE, T.StringType()), T.StructField(C.COMMIT_VERSION, T.LongType())]
        return T.StructType([*self.schema_at(last).fields, *told])

    def entry(self, version: int) -> Entry | None:
        return self._content.versions[version].entry

    def actions(self, _: int) -> Iterator[dict[str, Any]]:
        return iter(())  # there are no files

    def rows_added(self, version: int, partition: tuple[str, str]) -> None:
        return None  # there are no files

    def has_fence(self, commit: Commit) -> bool:
        return self._content.fences.get(commit.app_id, -1) >= commit.txn

    def _acts(self, app_id: str) -> Iterator[tuple[int, int]]:
        for number, version in reversed(list(enumerate(self._content.versions))):
            note = version.entry.metadata or ""
            of, _, undoing = note.rpartition("@")
            if of == app_id:
                yield number, int(undoing)
            elif note != BARRIER and version.fence is not None and version.fence[0] == app_id:
                yield number, version.fence[1]

    @contextmanager
    def reading_ahead(self) -> Iterator[None]:
        yield

    # What changes it.

    def create(self, schema: T.StructType, partition_by: list[str], properties: Mapping[str, str]) -> None:
        THERE[self.location] = Content(dict(properties), partition_by)
        self._put("CREATE TABLE", to_arrow_schema(schema, timezone="UTC").empty_table(), schema)

    def change_settings(self, properties: Mapping[str, str], metadata: str | None = None) -> None:
        self._content.settings |= properties
        self._put("SET TBLPROPERTIES", self._last.rows, metadata=metadata)

    def append(
        self, rows: DataFrame, commit: Commit, *, add_columns: bool = False, rows_per_file: int | None = None
    ) -> None:
        schema = self._grown(rows) if add_columns else self.schema

        def made() -> pa.Table:
            there = self._last.rows if schema == self.schema else self._arrow(_as(self.read(), schema), schema)
            return pa.concat_tables([there, self._arrow(_as(rows, schema), schema)])

        self._commit(commit, "WRITE", made, schema)

    def append_few(self, rows: pa.Table, commit: Commit) -> None:
        self._commit(commit, "WRITE", lambda: pa.concat_tables([self._last.rows, rows]))

    def overwrite(
        self, rows: DataFrame, commit: Commit, partition_by: list[str], rows_per_file: int | None = None
    ) -> None:
        if not self.has_fence(commit):
            schema = rows.schema.toNullable()
            self._put("WRITE", self._arrow(rows, schema), schema, commit)

    def replace(self, condition: str, rows: DataFrame, commit: Commit, *, add_columns: bool = False) -> None:
        schema = self._grown(rows) if add_columns else self.schema
        both = _as(self.read().where(~F.expr(condition)), schema).union(_as(rows, schema))
        self._commit(commit, "WRITE", lambda: self._arrow(both, schema), schema)

    def delete(self, condition: str, commit: Commit | None = None) -> None:
        if commit is not None and self.has_fence(commit):
            return
        rows = self._arrow(self.read().where(f"NOT coalesce({condition}, false)"))
        self._put("DELETE", rows, commit=commit)

    def remove(self, gone: DataFrame, condition: str, commit: Commit) -> None:
        if self.has_fence(commit):
            raise Superseded(f"transaction {commit.txn} of {commit.app_id} was there already")
        left = self.read().alias("t").join(gone.alias("s"), F.expr(condition), "left_anti")
        self._put("MERGE", self._arrow(left), commit=commit)

    def merge(
        self,
        source: DataFrame,
        condition: str,
        commit: Commit,
        *,
        delete_when: str,
        insert_when: str | None = None,
        update: tuple[str, ...] | None = None,
        add_columns: bool = False,
        computed: bool = False,
        many: bool = False,
    ) -> None:
        """As Delta's MERGE, by a full join."""
        if self.has_fence(commit):
            raise Superseded(f"transaction {commit.txn} of {commit.app_id} was there already")
        schema = self._grown(source) if add_columns else self.schema
        told = tuple(name for name in source.columns if name.startswith("__"))
        news = _as(source, schema, told).withColumn("__comes", F.lit(True)).alias("s")
        table = _as(self.read(), schema).withColumn("__there", F.lit(True)).alias("t")
        met = table.join(news, F.expr(condition), "full_outer")
        there, comes = F.col("t.__there").isNotNull(), F.col("s.__comes").isNotNull()
        stays = (
            F.when(there & comes, ~F.expr(delete_when))
            .when(comes, F.expr(insert_when or f"NOT ({delete_when})"))
            .otherwise(F.lit(True))
        )
        changed = []
        for name in schema.fieldNames():
            mine, new = F.col(f"t.{C.quoted(name)}"), F.col(f"s.{C.quoted(name)}")
            is_new = comes if update is None or name in update else comes & ~there
            changed.append(F.when(is_new, new).otherwise(mine).alias(name))
        rows = self._arrow(met.where(stays).select(*changed), schema)
        self._put("MERGE", rows, schema, commit)

    def restore(self, undoing: Commit, last: int) -> None:
        if (version := self.version_before(undoing, last)) is not None:
            self.go_back(version, undoing.note)

    def go_back(self, version: int, metadata: str | None = None) -> None:
        """As RESTORE does."""
        then = self._content.versions[version]
        self._put("RESTORE", then.rows, then.schema, metadata=metadata, parameters={"version": str(version)})

    def change_source(
        self, rows: pa.Table, feed: dict[str, pa.Table], schema: T.StructType, operation: str = "WRITE"
    ) -> None:
        """One more version of a source: all its rows, and its change rows by type."""
        if not self.exists():
            THERE[self.location] = Content(dict(SOURCE), [])
        told = [t.append_column(TYPE, pa.array([kind] * t.num_rows, pa.string())) for kind, t in feed.items()]
        self._put(operation, rows, schema, feed=pa.concat_tables(told) if told else None)

    # Inside.

    @property
    def _content(self) -> Content:
        return THERE[self.location]

    @property
    def _last(self) -> Version:
        return self._content.versions[-1]

    def rows(self) -> pa.Table:
        """All rows, latest version, without a job of Spark's."""
        return self._last.rows

    def _arrow(self, rows: DataFrame, schema: T.StructType | None = None) -> pa.Table:
        wanted = self.schema if schema is None else schema
        in_order = rows.select(*[_nullable(f) for f in wanted.fields])
        return in_order.toArrow().cast(to_arrow_schema(wanted, timezone="UTC"))

    def _grown(self, rows: DataFrame) -> T.StructType:
        """The columns with those of the rows that are not there yet, parts of them as well: last, as Delta has it."""
        told = T.StructType([field for field in rows.schema.toNullable().fields if not field.name.startswith("__")])
        return together([self.schema, told], widest=True)

    def _commit(
        self, commit: Commit, operation: str, made: Callable[[], pa.Table], schema: T.StructType | None = None
    ) -> None:
        if not self.has_fence(commit):
            self._put(operation, made(), schema, commit)

    def _put(
        self,
        operation: str,
        rows: pa.Table,
        schema: T.StructType | None = None,
        commit: Commit | None = None,
        *,
        metadata: str | None = None,
        feed: pa.Table | None = None,
        parameters: Mapping[str, str] = {},
    ) -> None:
        come_to_write()
        versions = self._content.versions
        counted = {"numOutputRows": str(rows.num_rows)}
        told = commit.metadata if commit else metadata
        columns = schema if not versions or schema != self.schema else None
        entry = Entry(len(versions), time.time_ns() // 1000, operation, parameters, counted, told, columns)
        fence = None if commit is None else (commit.app_id, commit.txn)
        versions.append(Version(self.schema if schema is None else schema, rows, entry, feed, fence))
        if commit is not None:
            self._content.fences[commit.app_id] = commit.txn


def _as(rows: DataFrame, schema: T.StructType, beside: tuple[str, ...] = ()) -> DataFrame:
    """The rows with these columns, and parts of them: null what they have not."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    told = [
        as_type(C.col(f.name), kinds[f.name], f.dataType) if f.name in kinds else F.lit(None).cast(f.dataType)
        for f in schema.fields
    ]
    named = [column.alias(field.name) for column, field in zip(told, schema.fields, strict=True)]
    return rows.select(*named, *C.cols(beside))


def _dated(changes: DataFrame) -> DataFrame:
    return changes.withColumn(C.COMMIT_TIMESTAMP, F.timestamp_seconds(F.lit(0)))


def _nullable(field: T.StructField) -> Column:
    """The column; where it is a struct, Arrow wants to know that its parts may be null."""
    column = C.col(field.name)
    return column.cast(field.dataType).alias(field.name) if isinstance(field.dataType, T.StructType) else column
