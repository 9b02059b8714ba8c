"""Writing a table, and its upkeep. Each method is a commit, under the lock of a local table."""

import shutil
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import deltalake
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameWriter, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.errors import ConfigError
from sessionizer.lib.schema.evolution import every_name
from sessionizer.tables.delta import settings
from sessionizer.tables.delta.commits import BARRIER, Commit, Superseded, racing
from sessionizer.tables.delta.place import LOG, is_unfinished
from sessionizer.tables.delta.read import Reading, is_in
from sessionizer.tables.places.catalog import NOT_EMPTY, left_over

if TYPE_CHECKING:
    import pyarrow as pa

UNUSUAL_IN_NAMES = set(" ,;{}()\n\t=")  # Parquet refuses them unless columns are mapped
PLAIN_COMMITS = 50  # after so many Spark sums up the log


class Table(Reading):
    """A Delta table at a path, a URL or under a catalog name.

    From the ground up: `place` (where, and its lock), `log` (what Delta knows at once), `read`, and here what changes
    it or, in the end, keeps it quick and small: fewer and fewer old files.
    """

    def create(self, schema: T.StructType, partition_by: list[str], properties: Mapping[str, str]) -> None:
        """Make the table, empty; one that exists stays as it is.

        Errors: TableError where the catalog has no such database, or has other files where the table would lie.
        """
        bare = T.StructType(
            [T.StructField(f.name, f.dataType, f.nullable) for f in schema.fields]
        )  # comments are theirs
        mapped = any(UNUSUAL_IN_NAMES & set(name) for name in every_name(schema))
        told = {settings.COLUMN_MAPPING: "name"} | dict(properties) if mapped else properties
        by = f" PARTITIONED BY ({', '.join(map(C.quoted, partition_by))})" if partition_by else ""
        having = f" TBLPROPERTIES ({_pairs(told)})" if told else ""
        with self._making():
            if (folder := self.local_path) is not None and is_unfinished(folder):
                shutil.rmtree(folder / LOG)  # Delta wants an empty folder
            try:
                self.spark.sql(f"CREATE TABLE IF NOT EXISTS {self.sql_name()} ({bare.toDDL()}) USING delta{by}{having}")
            except AnalysisException as error:
                if not self.by_name or NOT_EMPTY not in str(error):
                    raise
                raise left_over(self.location, self.field, error) from error

    def create_if_missing(self, schema: T.StructType, properties: Mapping[str, str]) -> bool:
        """Make the table, empty, unless it is there; whether it was made."""
        if self.exists():
            return False
        self.create(schema, [], properties)
        return True

    def check_addable(self, names: Sequence[str]) -> None:
        """Raise where columns of such names cannot come to the table, as it was made."""
        mapped, fed = (self.setting(name) for name in (settings.COLUMN_MAPPING, settings.CHANGE_FEED))
        refused = set() if mapped in ("name", "id") else set(UNUSUAL_IN_NAMES)
        refused |= {"`"} if settings.is_on(fed) else set()
        for name in names:
            if refused & set(name):
                raise ConfigError(
                    f"a column of this name cannot be added to {self.field}, which is there already",
                    value=name,
                    remedy="choose a name of letters, digits and _",
                )

    def check_names(self, made: T.StructType) -> None:
        """Raise where a column, or a part of one, has a name that cannot come to the table. Errors: ConfigError."""
        there = {name.lower() for name in every_name(self.schema)}
        new = [name for name in every_name(made) if name.lower() not in there]
        self.check_addable([name for name in new if name in made.names or UNUSUAL_IN_NAMES & set(name)])

    def change_setting(self, name: str, value: str, metadata: str | None = None) -> None:
        """Set a table property."""
        self.change_settings({name: value}, metadata)

    def change_settings(self, properties: Mapping[str, str], metadata: str | None = None) -> None:
        """Set table properties in one commit."""
        with self.lock(), settings.saying(self.spark, metadata), racing():
            self._do(f"ALTER TABLE {self.sql_name()} SET TBLPROPERTIES ({_pairs(properties)})")

    def _let_in(self, columns: T.StructType) -> None:
        """Have the table take TIMESTAMP_NTZ, where these are its first: Delta sees to that only where it makes one."""
        if settings.has_local_times(columns) and not settings.has_local_times(self.schema):
            self.change_setting(settings.LOCAL_TIMES, "supported")

    def append(
        self, rows: DataFrame, commit: Commit, *, add_columns: bool = False, rows_per_file: int | None = None
    ) -> None:
        """Add rows, unless the fence says that they are there already: then nothing is written.

        rows_per_file: at most so many; None: each task writes one file.
        """
        writer = settings.writing(rows, "append").option("mergeSchema", str(add_columns).lower())
        if add_columns:
            self._let_in(rows.schema)
        with self.lock(), settings.committing(self.spark, commit), racing():
            self._save(writer, rows_per_file)

    def append_few(self, rows: "pa.Table", commit: Commit) -> None:
        """The same for rows in hand, without Spark where that is possible: its jobs around one row take a second."""
        with self.lock():
            table = self._plain()
            if table is not None and is_in(table, commit):
                return
            if table is None or not _append_plainly(table, rows, commit):
                self.append(self.spark.createDataFrame(rows), commit)
            elif table.version() % PLAIN_COMMITS == 0:
                self.checkpoint()

    def overwrite(
        self, rows: DataFrame, commit: Commit, partition_by: list[str], rows_per_file: int | None = None
    ) -> None:
        """Replace all rows, and the columns, in one commit, unless the fence says that it is done."""
        writer = settings.writing(rows, "overwrite").option("overwriteSchema", "true")
        writer = writer.option("partitionOverwriteMode", "static")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        self._let_in(rows.schema)
        with self.lock(), settings.committing(self.spark, commit), racing():
            self._save(writer, rows_per_file)

    def replace(self, condition: str, rows: DataFrame, commit: Commit, *, add_columns: bool = False) -> None:
        """Put these rows in the place of those in whole partitions, unless the fence says that it is done.

        condition: SQL over partition columns that says which. The new rows may lie in others as well.
        """
        writer = settings.writing(rows, "overwrite").option("replaceWhere", condition)
        writer = writer.option("mergeSchema", str(add_columns).lower())
        anywhere = settings.having(self.spark, settings.ALSO_OTHERS)
        if add_columns:
            self._let_in(rows.schema)
        with self.lock(), settings.committing(self.spark, commit), anywhere, racing():
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
        add_columns: bool = False,
        computed: bool = False,
        many: bool = False,
    ) -> None:
        """Update, insert and delete by the source's rows (`s`), matched to the table's (`t`).

        insert_when: which unmatched rows to add; None: all but those to delete. update: the columns; None: all.
        add_columns: those of the source that the table has not, but for names with `__`, which are in flight only.
        computed: the source is held by a checkpoint, so that Delta, which reads it twice, need not hold it once more.
        many: so many rows are written anew, those in files that change included, that all cores are to write them.
        Errors: Superseded if another commit came first (raised by Delta, or shown by an empty result).
        """
        if add_columns:
            self._let_in(source.schema)
        own = self.schema.fieldNames()
        new = [name for name in source.columns if name not in own and not name.startswith("__")] if add_columns else []
        names = [C.quoted(name) for name in (*own, *new)]
        changed = ", ".join(f"{name} = s.{name}" for name in (names if update is None else update))
        values = ", ".join(f"s.{name}" for name in names)
        clauses = (
            f"WHEN MATCHED AND ({delete_when}) THEN DELETE",
            f"WHEN MATCHED THEN UPDATE SET {changed}",
            f"WHEN NOT MATCHED AND ({insert_when or f'NOT ({delete_when})'}) THEN "
            f"INSERT ({', '.join(names)}) VALUES ({values})",
        )
        how = (settings.AS_IT_IS if computed else {}) | (settings.by_all_cores() if many else {})
        with self.lock(), settings.having(self.spark, how):
            self._merge(source, condition, clauses, commit, add_columns=add_columns)

    def remove(self, gone: DataFrame, condition: str, commit: Commit) -> None:
        """Remove the rows (`t`) that meet one of these (`s`). Errors: Superseded, as above."""
        with self.lock():
            self._merge(gone, condition, ("WHEN MATCHED THEN DELETE",), commit)

    def restore(self, undoing: Commit, last: int) -> None:
        """Undo the transactions of the application after `last`, and what came after them; once."""
        with self.lock(), settings.saying(self.spark, undoing.note), racing():
            if (version := self.version_before(undoing, last)) is not None:
                self._do(f"RESTORE TABLE {self.sql_name()} TO VERSION AS OF {version}")

    def bar(self, undoing: Commit, last: int) -> None:
        """From here on nothing older of the application gets in: what stalled before this undoing comes too late.

        Errors: as of `check_tells`, which the barrier would answer.
        """
        self.check_tells(undoing.app_id, last)
        barrier = Commit(undoing.app_id, undoing.txn - 1, BARRIER)
        if not self.has_fence(barrier):
            self.append(self.read().limit(0), barrier)

    def delete(self, condition: str, commit: Commit | None = None) -> None:
        """Remove the rows for which the condition is true, unless the fence says that it is done.

        No commit where there are none.
        """
        fence = nullcontext() if commit is None else settings.committing(self.spark, commit)
        with self.lock(), fence, racing():
            self._do(f"DELETE FROM {self.sql_name()} WHERE {condition}")

    def update(self, condition: str, values: Mapping[str, str]) -> None:
        """Set columns, to SQL expressions, where the condition is true; no commit where it is not."""
        with self.lock(), racing():
            changed = ", ".join(f"{C.quoted(name)} = {value}" for name, value in values.items())
            self._do(f"UPDATE {self.sql_name()} SET {changed} WHERE {condition}")

    def compact(self, condition: str, metadata: str | None = None) -> None:
        """Make few files of many small ones, in the partitions that the condition on partition columns allows."""
        sizes = {
            "spark.databricks.delta.optimize.minFileSize": str(settings.SMALL),
            "spark.databricks.delta.optimize.maxFileSize": str(settings.LARGE),
        }
        where = f" WHERE {condition}" if condition != "true" else ""
        with self.lock(), settings.saying(self.spark, metadata), settings.having(self.spark, sizes), racing():
            self._do(f"OPTIMIZE {self.sql_name()}{where}")

    def keep_removed(self, us: int, metadata: str | None = None) -> None:
        """Have Delta keep removed files, and the log that names them, for so long (microseconds)."""
        removed, log = self.kept_us()
        if us != removed:
            # Both at once: Delta refuses files that are kept for longer than the log, by what the command says alone.
            kept = {settings.REMOVED_FILES_KEPT: us, settings.LOG_KEPT: max(us, log)}
            texts = {name: f"interval {-(-duration // 1_000_000)} seconds" for name, duration in kept.items()}
            self.change_settings(texts, metadata)

    def vacuum(self, metadata: str | None = None, *, dry_run: bool = False) -> int:
        """Delete files that no version within REMOVED_FILES_KEPT has; how many (a dry run: how many it would be)."""
        command = f"VACUUM {self.sql_name()}"
        # Delta lists the folders in as many tasks as this allows: 10,000 took 100 seconds for a table of ten files.
        tasks = 4 * settings.cores_of(self.spark)
        listing = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": str(tasks)}
        with self.lock(), settings.saying(self.spark, metadata), settings.having(self.spark, listing):
            # The list has folders too, even such as are not empty and stay.
            name = F.element_at(F.split("path", "/"), -1)
            number = self.spark.sql(f"{command} DRY RUN").where(name.contains(".") & ~name.contains("=")).count()
            if number and not dry_run:  # where there are none, two commits would only say so
                self._do(command)
        return number

    def _merge(
        self, source: DataFrame, condition: str, clauses: Sequence[str], commit: Commit, *, add_columns: bool = False
    ) -> None:
        name = f"__source_of_{uuid4().hex}"
        settings.bare(source).createOrReplaceTempView(name)
        evolving = "WITH SCHEMA EVOLUTION " if add_columns else ""
        text = f"MERGE {evolving}INTO {self.sql_name()} AS t USING {name} AS s ON {condition} {' '.join(clauses)}"
        try:
            with settings.committing(self.spark, commit), racing():
                result = self._do(text)
        finally:
            self.spark.catalog.dropTempView(name)
        if not result:
            raise Superseded(f"transaction {commit.txn} of {commit.app_id} was there already")

    def _save(self, writer: DataFrameWriter, rows_per_file: int | None = None) -> None:
        """rows_per_file: at most so many, in the order in which each task has them."""
        if rows_per_file is not None:
            writer = writer.option("maxRecordsPerFile", rows_per_file)
        with settings.having(self.spark, settings.BOTH_AT_ONCE if rows_per_file is not None else {}):
            save = writer.saveAsTable if self.by_name else writer.save
            settings.to_its_end(self.spark, partial(save, self.location))

    def _do(self, command: str) -> list[Row]:
        """Do a command of SQL, to its end."""
        return settings.to_its_end(self.spark, lambda: self.spark.sql(command).collect())


def _pairs(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{C.literal(name)} = {C.literal(value)}" for name, value in properties.items())


def _append_plainly(table: deltalake.DeltaTable, rows: "pa.Table", commit: Commit) -> bool:
    """Whether it could be done. Whatever stops it, Spark may try: the fence is the same."""
    fence = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(commit.app_id, commit.txn)])
    no_more = deltalake.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    try:
        deltalake.write_deltalake(
            table, rows, mode="append", commit_properties=fence, post_commithook_properties=no_more
        )
    except Exception:  # it raises whatever its own libraries do
        return False
    return True
