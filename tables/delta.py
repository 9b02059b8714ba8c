"""The few Delta primitives; nothing else in the project reads or writes a table."""

import json
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlparse

import deltalake
from delta import DeltaTable
from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from deltalake.exceptions import DeltaError
from filelock import FileLock
from py4j.protocol import Py4JJavaError
from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib.config import location_kind
from lib.errors import TableError

if TYPE_CHECKING:
    import pyarrow as pa

CHANGE_FEED = "delta.enableChangeDataFeed"
REMOVED_FILES_KEPT = "delta.deletedFileRetentionDuration"
LOG_KEPT = "delta.logRetentionDuration"
COLUMN_MAPPING = "delta.columnMapping.mode"
UNUSUAL_IN_NAMES = set(" ,;{}()\n\t=")  # Parquet refuses them unless columns are mapped
# What Spark and Delta say of a version whose files, or whose place in the log, are there no more.
GONE = (
    "FILE_NOT_EXIST",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
    "DELTA_LOG_FILE_NOT_FOUND",
)
# What Delta raises for a commit that another one has overtaken: in Python none of them is a kind of the first.
OVERTAKEN = (
    *(DeltaConcurrentModificationException, ConcurrentAppendException, ConcurrentDeleteDeleteException),
    *(ConcurrentDeleteReadException, ConcurrentTransactionException, ConcurrentWriteException),
    *(MetadataChangedException, ProtocolChangedException),
)
AS_IT_IS = {"spark.databricks.delta.merge.materializeSource": "none"}
ALSO_OTHERS = {"spark.databricks.delta.replaceWhere.constraintCheck.enabled": "false"}
LOG = "_delta_log"
# What writing without Spark knows: the first features of Delta, and paths that are URLs as they stand.
PLAIN = 2
UNUSUAL_IN_PLAIN_PATHS = set("%[]^|")
PLAIN_COMMITS = 50  # after so many Spark sums up the log
FENCES_KEPT = "delta.setTransactionRetentionDuration"
CUT_OFF = ("ChecksumException", "JsonEOFException", "JsonParseException")  # what Java says of such entries of a log
LOCK_FILE = "_sessionizer.lock"
# The methods of Table that write: all that a kill can fall between.
WRITES = (
    *("create", "change_setting", "change_settings"),
    *("append", "append_few", "overwrite", "replace", "merge", "restore", "delete", "update"),
    *("compact", "keep_removed", "vacuum", "checkpoint"),
)
FENCES_NEAR = 5  # commits looked at one by one before all transactions of the table are loaded
# Bytes: files that are compacted, and what comes of them at most. Files that a first load has made by time are larger.
SMALL, LARGE = 8 << 20, 32 << 20
SHUFFLED = 2 * SMALL  # bytes before Parquet that make a file which is not small
# Operation metrics have other names in appends and in MERGEs.
ROWS_WRITTEN = ("numTargetRowsInserted", "numOutputRows", "numCopiedRows")
FILES_WRITTEN = ("numFiles", "numTargetFilesAdded")
BYTES_WRITTEN = ("numOutputBytes", "numTargetBytesAdded")


class Superseded(Exception):
    """Another run has committed since this one read the table: start over from the new version."""


@dataclass(frozen=True)
class Commit:
    """What goes into a commit besides rows.

    app_id, txn: the fence. Delta writes nothing if `txn` is not greater than the last one of `app_id`.
    """

    app_id: str
    txn: int
    metadata: str | None = None


@dataclass(frozen=True)
class Entry:
    """One commit in a table's history."""

    version: int
    timestamp_us: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    metadata: str | None

    def metric(self, names: tuple[str, ...]) -> int:
        """The first of these operation metrics that the commit has, else 0."""
        return int(next((self.metrics[n] for n in names if n in self.metrics), 0))


class Table:
    """A Delta table at a path, a URL or under a catalog name."""

    def __init__(self, spark: SparkSession, location: str, field: str, *, small: bool = False) -> None:
        """`field` is the configuration key that names the table, for errors. small: its commits have a few rows."""
        self.spark = spark
        self.location = location
        self.field = field
        self.small = small
        self.by_name = location_kind(location) == "name"

    def exists(self) -> bool:
        """Whether there is a Delta table. Errors: TableError if something else is there."""
        if self.by_name:
            return self.spark.catalog.tableExists(self.location)
        if DeltaTable.isDeltaTable(self.spark, self.location):
            return True
        if (folder := self.local_path) is not None:
            check_nothing_else(folder, self.location, self.field)
        return False

    def require(self, remedy: str) -> None:
        """Raise a TableError unless the table exists."""
        if not self.exists():
            raise TableError(f"{self.field} does not exist", value=self.location, remedy=remedy)

    # Reading.

    def read(self, version: int | None = None) -> DataFrame:
        """All rows, as of a version or the latest."""
        reader = self.spark.read.format("delta")
        if version is not None:
            reader = reader.option("versionAsOf", version)
        return reader.table(self.location) if self.by_name else reader.load(self.location)

    def changes(self, first: int, last: int) -> DataFrame:
        """The change feed of these versions, both inclusive, with Delta's three `_…` columns."""
        reader = (
            self.spark.read.format("delta")
            .option("readChangeFeed", "true")
            .option("startingVersion", first)
            .option("endingVersion", last)
        )
        return reader.table(self.location) if self.by_name else reader.load(self.location)

    def history(self, limit: int | None = None) -> Iterator[Entry]:
        """Commits, newest first, read one by one as they are asked for; ends where the log was cleaned up."""
        latest = self.version
        for version in range(latest, -1 if limit is None else max(latest - limit, -1), -1):
            if (entry := self.entry(version)) is None:
                return
            yield entry

    def entry(self, version: int) -> Entry | None:
        """One commit, or None if the log no longer has it. Reads one small file, without a Spark job."""
        actions = self._actions(version)
        infos = [self._parsed(line, version)["commitInfo"] for line in actions if line.startswith('{"commitInfo"')]
        return entry_of(version, infos[0] if infos else {}) if actions else None

    def has_fence(self, commit: Commit) -> bool:
        """Whether this transaction of the application, or a later one, is in the table."""
        if (table := self._plain()) is not None:
            return _is_in(table, commit)
        for version in range(self.version, max(self.version - FENCES_NEAR, -1), -1):
            for line in self._actions(version, whole=True):
                if line.startswith('{"txn"'):
                    fence = self._parsed(line, version)["txn"]
                    if fence["appId"] == commit.app_id:
                        return int(fence["version"]) >= commit.txn
        last = self.transaction(commit.app_id)
        return last is not None and last >= commit.txn

    def version_with(self, commit: Commit) -> int | None:
        """The version that this transaction of the application, or the last one before it, has made."""
        for version in range(self.version, -1, -1):
            for line in self._actions(version, whole=True):
                if line.startswith('{"txn"'):
                    fence = self._parsed(line, version)["txn"]
                    if fence["appId"] == commit.app_id and int(fence["version"]) <= commit.txn:
                        return version
        return None

    @property
    def version(self) -> int:
        """The latest version."""
        return int(self._snapshot().version())

    @contextmanager
    def reading_ahead(self) -> Iterator[None]:
        """Inside it Delta finds out, beside, which files the latest version has; errors come where they are needed."""
        with ThreadPoolExecutor(1) as beside:
            beside.submit(inheritable_thread_target(self.spark)(self.size))
            yield

    @property
    def id(self) -> str:
        """The table's own id; a table that is dropped and made again has another."""
        return str(self._snapshot().metadata().id())

    @property
    def schema(self) -> T.StructType:
        """The columns."""
        return T.StructType.fromJson(json.loads(self._snapshot().metadata().schemaString()))

    def size(self) -> tuple[int, int]:
        """Number of files and of bytes, latest version."""
        snapshot = self._snapshot()
        return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())

    def setting(self, name: str) -> str | None:
        """A table property, or None."""
        found = self._snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def transaction(self, app_id: str) -> int | None:
        """The last transaction version of this application, or None."""
        found = self._snapshot().transactions().get(app_id)
        return int(found.get()) if found.isDefined() else None

    def kept_us(self) -> tuple[int, int]:
        """How long, in microseconds, Delta keeps removed files and the log of this table."""
        log, metadata = self._log(), self._snapshot().metadata()
        return int(log.tombstoneRetentionMillis(metadata)) * 1000, int(log.deltaRetentionMillis(metadata)) * 1000

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return [line for line in str(self._snapshot().metadata().partitionColumns().mkString("\n")).split("\n") if line]

    def small_files(self, condition: str) -> int:
        """How many files smaller than SMALL could be made fewer, in the partitions that the condition allows."""
        files = DataFrame(self._snapshot().allFiles().toDF(), self.spark)
        types = {f.name: f.dataType for f in self.schema.fields}
        partition = [F.col("partitionValues")[n].cast(types[n]).alias(n) for n in self.partition_columns]
        small = files.select("size", *partition).where(F.expr(condition) & (F.col("size") < SMALL))
        several = small.groupBy(*[F.col(f"`{n}`") for n in self.partition_columns]).count().where("count > 1")
        return int(several.agg(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0])

    def transactions(self) -> list[str]:
        """The ids of all applications that have written with a fence."""
        keys = self._snapshot().transactions().keys().mkString("\n")
        return [line for line in str(keys).split("\n") if line]

    # Writing. Each is one commit, under the lock of a local table.

    def create(self, schema: T.StructType, partition_by: list[str], properties: Mapping[str, str]) -> None:
        """Make the table, empty; one that exists stays as it is."""
        builder = DeltaTable.createIfNotExists(self.spark).addColumns(schema)
        builder = builder.tableName(self.location) if self.by_name else builder.location(self.location)
        if any(UNUSUAL_IN_NAMES & set(field.name) for field in schema.fields):
            builder = builder.property(COLUMN_MAPPING, "name")
        for name, value in properties.items():
            builder = builder.property(name, value)
        if partition_by:
            builder = builder.partitionedBy(*partition_by)
        with self._making():
            if (folder := self.local_path) is not None and _is_unfinished(folder):
                shutil.rmtree(folder / LOG)  # Delta wants an empty folder
            builder.execute()

    def change_setting(self, name: str, value: str, metadata: str | None = None) -> None:
        """Set a table property."""
        self.change_settings({name: value}, metadata)

    def change_settings(self, settings: Mapping[str, str], metadata: str | None = None) -> None:
        """Set table properties in one commit."""
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in settings.items())
        with self.lock(), self._saying(metadata), _racing():
            self.spark.sql(f"ALTER TABLE {self._sql_name()} SET TBLPROPERTIES ({pairs})")

    def append(self, rows: DataFrame, commit: Commit, *, add_columns: bool = False) -> None:
        """Add rows, unless the fence says that they are there already: then nothing is written."""
        writer = rows.write.format("delta").mode("append").option("mergeSchema", str(add_columns).lower())
        with self.lock(), self._committing(commit), _racing():
            self._save(writer)

    def append_few(self, rows: "pa.Table", commit: Commit) -> None:
        """The same for rows in hand, without Spark where that is possible: its jobs around one row take a second."""
        with self.lock():
            if not self._append_plainly(rows, commit):
                self.append(self.spark.createDataFrame(rows), commit)

    def overwrite(self, rows: DataFrame, commit: Commit, partition_by: list[str]) -> None:
        """Replace all rows, and the columns, in one commit, unless the fence says that it is done."""
        writer = rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        with self.lock(), self._committing(commit), _racing():
            self._save(writer)

    def replace(self, condition: str, rows: DataFrame, commit: Commit) -> None:
        """Put these rows in the place of those in whole partitions, unless the fence says that it is done.

        condition: SQL over partition columns that says which. The new rows may lie in others as well.
        """
        writer = rows.write.format("delta").mode("overwrite").option("replaceWhere", condition)
        with self.lock(), self._committing(commit), self._having(ALSO_OTHERS), _racing():
            self._save(writer)

    def merge(  # noqa: PLR0913
        self,
        source: DataFrame,
        condition: str,
        commit: Commit,
        *,
        delete_when: str,
        insert_when: str | None = None,
        update: tuple[str, ...] | None = None,
        computed: bool = False,
        many: bool = False,
    ) -> None:
        """Update, insert and delete by the source's rows (`s`), matched to the table's (`t`).

        insert_when: which unmatched rows to add; None: all but those to delete. update: the columns; None: all.
        computed: the source is held by a checkpoint, so that Delta, which reads it twice, need not hold it once more.
        many: so many rows are written anew, those in files that change included, that all cores are to write them.
        Errors: Superseded if another commit came first (raised by Delta, or shown by an empty result).
        """
        quoted = [f"`{name.replace('`', '``')}`" for name in self.schema.fieldNames()]
        columns: dict[str, str | Column] = {name: f"s.{name}" for name in quoted}
        merge = (
            self._delta()
            .alias("t")
            .merge(source.alias("s"), condition)
            .whenMatchedDelete(delete_when)
            .whenMatchedUpdate(set=columns if update is None else {name: f"s.{name}" for name in update})
            .whenNotMatchedInsert(insert_when or f"NOT ({delete_when})", values=columns)
        )
        settings = (AS_IT_IS if computed else {}) | (by_all_cores() if many else {})
        with self.lock(), self._committing(commit), self._having(settings), _racing():
            result = merge.execute()
            if result is not None and not result.collect():
                raise Superseded(f"transaction {commit.txn} of {commit.app_id} was there already")

    def restore(self, commit: Commit) -> None:
        """Bring the table back to where this transaction has left it; without one, all rows are removed."""
        version = self.version_with(commit)
        if version is None:
            self.delete("true")
        elif version < self.version:
            with self.lock(), _racing():
                self._delta().restoreToVersion(version)

    def delete(self, condition: str) -> None:
        """Remove the rows for which the condition is true; no commit where there are none."""
        with self.lock(), _racing():
            self._delta().delete(condition)

    def update(self, condition: str, values: Mapping[str, str]) -> None:
        """Set columns, to SQL expressions, where the condition is true; no commit where it is not."""
        with self.lock(), _racing():
            self._delta().update(condition, dict(values))

    # Upkeep: what the table holds stays as it is.

    def compact(self, condition: str, metadata: str | None = None) -> None:
        """Make few files of many small ones, in the partitions that the condition on partition columns allows."""
        sizes = {
            "spark.databricks.delta.optimize.minFileSize": str(SMALL),
            "spark.databricks.delta.optimize.maxFileSize": str(LARGE),
        }
        where = f" WHERE {condition}" if condition != "true" else ""
        with self.lock(), self._saying(metadata), self._having(sizes), _racing():
            self.spark.sql(f"OPTIMIZE {self._sql_name()}{where}").collect()

    def keep_removed(self, us: int, metadata: str | None = None) -> None:
        """Have Delta keep removed files, and the log that names them, for so long (microseconds)."""
        removed, log = self.kept_us()
        if us != removed:
            # Both at once: Delta refuses files that are kept for longer than the log, by what the command says alone.
            kept = {REMOVED_FILES_KEPT: us, LOG_KEPT: max(us, log)}
            texts = {name: f"interval {-(-duration // 1_000_000)} seconds" for name, duration in kept.items()}
            self.change_settings(texts, metadata)

    def vacuum(self, metadata: str | None = None, *, dry_run: bool = False) -> int:
        """Delete files that no version within REMOVED_FILES_KEPT has; how many (a dry run: how many it would be)."""
        command = f"VACUUM {self._sql_name()}"
        # Delta lists the folders in as many tasks as this allows: 10,000 took 100 seconds for a table of ten files.
        tasks = 4 * self.spark.sparkContext.defaultParallelism
        listing = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": str(tasks)}
        with self.lock(), self._saying(metadata), self._having(listing):
            # The list has folders too, even such as are not empty and stay.
            name = F.element_at(F.split("path", "/"), -1)
            number = self.spark.sql(f"{command} DRY RUN").where(name.contains(".") & ~name.contains("=")).count()
            if number and not dry_run:  # where there are none, two commits would only say so
                self.spark.sql(command).collect()
        return number

    def checkpoint(self) -> None:
        """Sum up the log in a checkpoint; Delta then removes the parts of the log that it need not keep."""
        with self.lock():
            self._log().checkpoint(self._snapshot(), self.spark._jvm.scala.Option.empty())  # type: ignore[union-attr]

    # Underneath.

    @property
    def local_path(self) -> Path | None:
        """The folder of a table on this machine's disk, else None."""
        if location_kind(self.location) == "path":
            return Path(self.location)  # in which # and % are letters like others
        parsed = urlparse(self._path if not self.by_name or self.exists() else "none://")
        return Path(unquote(parsed.path)) if parsed.scheme in ("", "file") else None

    @cached_property
    def _path(self) -> str:
        if not self.by_name:
            return self.location
        return str(self._delta().detail().select("location").first()["location"])  # type: ignore[index]

    def _plain(self) -> deltalake.DeltaTable | None:
        """A small table's latest version without Spark; None where Spark alone knows how to open or write it."""
        if not self.small or location_kind(self.location) != "path":
            return None
        folder = Path(self.location).absolute()
        if UNUSUAL_IN_PLAIN_PATHS & set(str(folder)):
            return None
        try:
            table = deltalake.DeltaTable(folder)
        except (DeltaError, OSError):  # Spark tells better what is wrong
            return None
        forgets = FENCES_KEPT in table.metadata().configuration
        return None if forgets or table.protocol().min_writer_version > PLAIN else table

    def _append_plainly(self, rows: "pa.Table", commit: Commit) -> bool:
        """Whether the rows are in the table now. Whatever stops it, Spark may try: the fence is the same."""
        if (table := self._plain()) is None:
            return False
        if _is_in(table, commit):
            return True
        fence = deltalake.Transaction(commit.app_id, commit.txn)
        try:
            deltalake.write_deltalake(
                table,
                rows,
                mode="append",
                commit_properties=deltalake.CommitProperties(app_transactions=[fence]),
                post_commithook_properties=deltalake.PostCommitHookProperties(
                    create_checkpoint=False, cleanup_expired_logs=False
                ),
            )
        except Exception:  # it raises whatever its own libraries do
            return False
        if table.version() % PLAIN_COMMITS == 0:
            self.checkpoint()
        return True

    def _delta(self) -> DeltaTable:
        if self.by_name:
            return DeltaTable.forName(self.spark, self.location)
        return DeltaTable.forPath(self.spark, self.location)

    def _sql_name(self) -> str:
        return self.location if self.by_name else f"delta.`{self.location}`"

    def _snapshot(self) -> Any:
        """Delta's own snapshot of the latest version: metadata from the log, without a Spark job."""
        nothing = self.spark._jvm.scala.Option.empty()  # type: ignore[union-attr]
        try:
            return self._log().update(False, nothing, nothing)
        except Py4JJavaError as error:
            if any(sign in told(error) for sign in CUT_OFF):
                raise self._damaged() from error
            raise

    def _log(self) -> Any:
        jvm: Any = self.spark._jvm
        # Where Delta reads a checkpoint it asks the thread for its session, and a caller's own thread has none.
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(self.spark._jsparkSession)
        return jvm.org.apache.spark.sql.delta.DeltaLog.forTable(self.spark._jsparkSession, self._path)

    def lock(self) -> AbstractContextManager[object]:
        """Delta's log on a local disk is not atomic between processes: a lock of the OS guards each commit there.

        Whoever holds it may take it again, so that a check and the commit it allows can be one step.
        """
        return self._file_lock or nullcontext()

    @cached_property
    def _file_lock(self) -> FileLock | None:
        folder = self.local_path
        return None if folder is None else FileLock(folder.absolute() / LOCK_FILE)

    def _making(self) -> AbstractContextManager[object]:
        """The lock lies beside a table that is being made: Delta wants an empty folder for it."""
        folder = self.local_path
        if folder is None:
            return nullcontext()
        folder = folder.absolute()
        folder.parent.mkdir(parents=True, exist_ok=True)
        return FileLock(folder.with_name(f".{folder.name}{LOCK_FILE}"))

    def _actions(self, version: int, *, whole: bool = False) -> list[str]:
        """The lines of a commit as Delta's own log store reads them; of a long one the first is mostly enough."""
        jvm: Any = self.spark._jvm
        log = self._log()
        path = jvm.org.apache.spark.sql.delta.util.FileNames.unsafeDeltaFile(log.logPath(), version)
        try:
            lines = log.store().read(path, log.newDeltaHadoopConf())
        except Py4JJavaError as error:
            if "FileNotFoundException" in str(error.java_exception):
                return []
            raise
        if lines.isEmpty():
            raise self._damaged(version)
        first = str(lines.head())
        if first.startswith('{"commitInfo"') and not whole:
            return [first]
        return str(lines.mkString("\n")).split("\n")

    def _parsed(self, line: str, version: int) -> Any:
        try:
            return json.loads(line)
        except ValueError as error:
            raise self._damaged(version) from error

    def _damaged(self, version: int | None = None) -> TableError:
        return TableError(
            f"{self.field} has a damaged log: "
            + ("an entry is cut off" if version is None else f"the entry of version {version} is cut off"),
            value=self.location,
            remedy="bring it back from a copy of the table; without one, name a new table",
        )

    def _save(self, writer: DataFrameWriter) -> None:
        if self.by_name:
            writer.saveAsTable(self.location)
        else:
            writer.save(self.location)

    @contextmanager
    def _committing(self, commit: Commit) -> Iterator[None]:
        fence = {
            "spark.databricks.delta.write.txnAppId": commit.app_id,
            "spark.databricks.delta.write.txnVersion": str(commit.txn),
        }
        with self._having(fence), self._saying(commit.metadata):
            yield

    def _saying(self, metadata: str | None) -> AbstractContextManager[None]:
        """Commits inside carry this text."""
        return self._having({} if metadata is None else {"spark.databricks.delta.commitInfo.userMetadata": metadata})

    @contextmanager
    def _having(self, settings: Mapping[str, str]) -> Iterator[None]:
        """Spark's own settings are put back as they were; Delta's are of one write, so that no fence ever stays."""
        before = {name: self.spark.conf.get(name, None) for name in settings if name.startswith("spark.sql.")}
        for name, value in settings.items():
            self.spark.conf.set(name, value)
        try:
            yield
        finally:
            for name in settings:
                if (was := before.get(name)) is None:
                    self.spark.conf.unset(name)
                else:
                    self.spark.conf.set(name, was)


def by_all_cores() -> dict[str, str]:
    """Settings for a MERGE of many rows: else Delta gives each partition of the table to one task, however large.

    As many tasks as the join has, but that small ones are put together, so that files do not become small.
    """
    return {
        "spark.databricks.delta.merge.repartitionBeforeWrite.enabled": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false",
        "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(SHUFFLED),
    }


@contextmanager
def _racing() -> Iterator[None]:
    """Inside it, a commit that another one has overtaken is Superseded."""
    try:
        yield
    except OVERTAKEN as error:
        raise Superseded(str(error).splitlines()[0]) from error


def _is_in(table: deltalake.DeltaTable, commit: Commit) -> bool:
    last = table.transaction_version(commit.app_id)
    return last is not None and last >= commit.txn


def told(error: BaseException) -> str:
    """All that an error says, with the causes that Java knows of it."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"


def check_nothing_else(folder: Path, location: str, field: str) -> None:
    """Raise a TableError if anything is there, which is no Delta table."""
    others = [p for p in _entries(folder) if p != LOCK_FILE] if folder.exists() else []
    if _is_unfinished(folder):
        others.remove(LOG)
    if others:
        shown = ", ".join(sorted(others, key=lambda name: (name.startswith("."), name))[:3])
        raise TableError(
            f"{field} must be a Delta table, and this is not one: it holds {shown}",
            value=location,
            remedy="name an empty folder or a Delta table; files become one with `sessionizer ingest`, "
            "a Parquet table with Spark's CONVERT TO DELTA",
        )


def _is_unfinished(folder: Path) -> bool:
    """Whether somebody who made a table here was cut off before its first commit."""
    log = folder / LOG
    return log.is_dir() and all(p.is_dir() or p.name.startswith(".") for p in log.rglob("*"))


def _entries(folder: Path) -> list[str]:
    return [p.name for p in folder.iterdir()] if folder.is_dir() else [folder.name]


def entry_of(version: int, info: Mapping[str, Any]) -> Entry:
    """The commit that this `commitInfo` of the log tells of."""
    millis = info.get("inCommitTimestamp") or info.get("timestamp") or 0
    return Entry(
        version=version,
        timestamp_us=int(millis) * 1000,
        operation=info.get("operation", ""),
        parameters={k: "" if v is None else str(v) for k, v in (info.get("operationParameters") or {}).items()},
        metrics=info.get("operationMetrics") or {},
        metadata=info.get("userMetadata"),
    )
