"""Delta's own log, by way of the JVM, which no other module knows."""

import json
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib.errors import TableError
from tables.delta.commits import CUT_OFF, told
from tables.delta.place import Place
from tables.delta.settings import SMALL


def physical(column: T.StructField) -> str:
    """The name that a column has in files and in the log."""
    return str(column.metadata.get("delta.columnMapping.physicalName", column.name))


class DeltaLog(Place):
    """What the log says of the latest version, without a Spark job, and the lines of its entries."""

    @property
    def version(self) -> int:
        """The latest version."""
        return int(self._snapshot().version())

    @property
    def id(self) -> str:
        """The table's own id; a table that is dropped and made again has another."""
        return str(self._snapshot().metadata().id())

    @property
    def schema(self) -> T.StructType:
        """The columns."""
        return T.StructType.fromJson(json.loads(self._snapshot().metadata().schemaString()))

    def schema_at(self, version: int) -> T.StructType:
        """The columns as of a version, however old, whose log is there still."""
        nothing = self._class("scala.Option").empty()
        snapshot = self._log().getSnapshotAt(version, nothing, nothing, False)
        return T.StructType.fromJson(json.loads(snapshot.metadata().schemaString()))

    def size(self) -> tuple[int, int]:
        """Number of files and of bytes, latest version."""
        snapshot = self._snapshot()
        if (summed_up := snapshot.checksumOpt()).isDefined():  # written beside each commit; else Spark adds them up
            return int(summed_up.get().numFiles()), int(summed_up.get().tableSizeBytes())
        return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())

    def setting(self, name: str) -> str | None:
        """A table property, or None."""
        found = self._snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def transaction(self, app_id: str) -> int | None:
        """The last transaction version of this application, or None."""
        found = self._snapshot().transactions().get(app_id)
        return int(found.get()) if found.isDefined() else None

    def transactions(self) -> list[str]:
        """The ids of all applications that have written with a fence."""
        keys = self._snapshot().transactions().keys().mkString("\n")
        return [line for line in str(keys).split("\n") if line]

    def kept_us(self) -> tuple[int, int]:
        """How long, in microseconds, Delta keeps removed files and the log of this table."""
        log, metadata = self._log(), self._snapshot().metadata()
        return int(log.tombstoneRetentionMillis(metadata)) * 1000, int(log.deltaRetentionMillis(metadata)) * 1000

    @property
    def root(self) -> str:
        """The folder of the table, as Hadoop names it."""
        return str(self._log().dataPath().toString())

    @property
    def partition_columns(self) -> list[str]:
        """The columns that the table is partitioned by."""
        return [line for line in str(self._snapshot().metadata().partitionColumns().mkString("\n")).split("\n") if line]

    def small_files(self, condition: str) -> int:
        """How many files smaller than SMALL could be made fewer, in the partitions that the condition allows."""
        files = DataFrame(self._snapshot().allFiles().toDF(), self.spark)
        there = self.schema
        partition = [
            F.col("partitionValues")[physical(there[n])].cast(there[n].dataType).alias(n)
            for n in self.partition_columns
        ]
        small = files.select("size", *partition).where(F.expr(condition) & (F.col("size") < SMALL))
        several = small.groupBy(*[F.col(f"`{n}`") for n in self.partition_columns]).count().where("count > 1")
        return int(several.agg(F.coalesce(F.sum("count"), F.lit(0))).collect()[0][0])

    def checkpoint(self) -> None:
        """Sum up the log in a checkpoint; Delta then removes the parts of the log that it need not keep."""
        with self.lock():
            self._log().checkpoint(self._snapshot(), self._class("scala.Option").empty())

    def _snapshot(self) -> Any:
        """Delta's own snapshot of the latest version: metadata from the log, without a Spark job."""
        nothing = self._class("scala.Option").empty()
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
        return self._class("org.apache.spark.sql.delta.DeltaLog").forTable(self.spark._jsparkSession, self._path)

    def _class(self, name: str) -> Any:
        """A class of the JVM's; by one name, which is looked up but once (`jobs.spark`), not package by package."""
        return getattr(self.spark._jvm, name)

    def _actions(self, version: int, *, whole: bool = False) -> list[str]:
        """The lines of a commit as Delta's own log store reads them; of a long one the first is mostly enough."""
        log = self._log()
        path = self._class("org.apache.spark.sql.delta.util.FileNames").unsafeDeltaFile(log.logPath(), version)
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

    def _damaged(self, version: int | None = None) -> TableError:
        return TableError(
            f"{self.field} has a damaged log: "
            + ("an entry is cut off" if version is None else f"the entry of version {version} is cut off"),
            value=self.location,
            remedy="bring it back from a copy of the table; without one, name a new table",
        )
