"""What a table's log says: by its files on this machine's disk; elsewhere by the JVM beside, or by public means."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.engine import is_remote, sees_this_disk
from sessionizer.lib.errors import TableError
from sessionizer.lib.schema.evolution import physical
from sessionizer.tables.delta.logs.files import FilesLog
from sessionizer.tables.delta.logs.jvm import JvmLog
from sessionizer.tables.delta.logs.public import PublicLog
from sessionizer.tables.delta.place import Place, check_nothing_else
from sessionizer.tables.delta.settings import FENCES_KEPT, SMALL
from sessionizer.tables.places.catalog import has_table


class DeltaLog(Place):
    """What the log says of the latest version, and the lines of its entries."""

    @cached_property
    def _log(self) -> FilesLog | JvmLog | PublicLog:
        by_spark = PublicLog(self) if is_remote(self.spark) else JvmLog(self)
        folder = self.local_path if sees_this_disk(self.spark) else None
        return by_spark if folder is None else FilesLog(by_spark, folder)

    @contextmanager
    def one_look(self) -> Iterator[None]:
        """Inside it all answers are as of one version, and the log is listed once. Nothing is written there."""
        before = self._log.look
        self._log.look = [] if before is None else before
        try:
            yield
        finally:
            self._log.look = before

    def exists(self) -> bool:
        """Whether there is a Delta table. Errors: TableError if something else is there."""
        if self.by_name:
            return has_table(self.spark, self.location, self.field)
        if self._log.exists():
            return True
        if (folder := self.local_path) is not None:
            check_nothing_else(folder, self.location, self.field)
        return False

    def require(self, remedy: str) -> None:
        """Raise a TableError unless the table exists."""
        if not self.exists():
            raise TableError(f"{self.field} does not exist", value=self.location, remedy=remedy)

    def require_memory(self) -> None:
        """Raise a TableError where Delta is told to forget which writes went into the table."""
        if (kept := self.setting(FENCES_KEPT)) is not None:
            raise TableError(
                f"{self.field} must remember what went into it, and Delta forgets it after a time",
                value=f"{FENCES_KEPT} = {kept}",
                remedy=f"ALTER TABLE … UNSET TBLPROPERTIES ('{FENCES_KEPT}'); what it has forgotten is not known again",
            )

    @property
    def version(self) -> int:
        """The latest version."""
        return self._log.version()

    @property
    def id(self) -> str:
        """The table's own id; a table that is dropped and made again has another."""
        return self._log.id()

    @property
    def schema(self) -> T.StructType:
        """The columns."""
        return self._log.schema()

    def schema_at(self, version: int) -> T.StructType:
        """The columns as of a version, however old, whose log is there still."""
        with self.one_look():
            return self.schema if version == self.version else self._log.schema_at(version)

    def size(self) -> tuple[int, int]:
        """Number of files and of bytes, latest version."""
        return self._log.size()

    def setting(self, name: str) -> str | None:
        """A table property, or None."""
        return self._log.setting(name)

    def transaction(self, app_id: str) -> int | None:
        """The last transaction version of this application, or None."""
        return self._log.transaction(app_id)

    def transactions(self) -> list[str]:
        """The ids of all applications that have written with a fence."""
        return self._log.transactions()

    def kept_us(self) -> tuple[int, int]:
        """How long, in microseconds, Delta keeps removed files and the log of this table."""
        return self._log.kept_us()

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return self._log.partition_columns()

    def small_files(self, condition: str) -> int:
        """How many files smaller than SMALL could be made fewer, in the partitions that the condition allows."""
        there, names = self.schema, self.partition_columns
        partition = [F.col("partitionValues")[physical(there[n])].cast(there[n].dataType).alias(n) for n in names]
        files = self._log.files().select("size", *partition)
        small = files.where(F.expr(condition) & (F.col("size") < SMALL))
        several = small.groupBy(*[C.col(n) for n in names]).count().where("count > 1")
        return int(several.agg(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0])

    def checkpoint(self) -> None:
        """Sum up the log in a checkpoint; Delta then removes the parts of the log that it need not keep."""
        with self.lock():
            self._log.checkpoint()

    def _actions(self, version: int, *, whole: bool = False) -> list[str]:
        """The lines of a commit; the first are enough for what Spark says of one. None where it is not there."""
        lines = self._log.lines(version, whole=whole)
        if lines == []:
            raise self.damaged(version)
        return lines or []
