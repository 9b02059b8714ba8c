"""Delta's log by way of the JVM beside this process: every answer at once, without a Spark job."""

import json
from typing import Any

from delta import DeltaTable
from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from sessionizer.lib.engine import with_flag
from sessionizer.tables.delta.commits import CUT_OFF, FIRST_LINES, told
from sessionizer.tables.delta.place import Looking, Place


class JvmLog(Looking):
    """`DeltaLog` by Delta's own classes."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.spark = place.spark

    def exists(self) -> bool:
        """Whether there is a Delta table at the path."""
        return DeltaTable.isDeltaTable(self.spark, self.place.location)

    def version(self) -> int:
        """The latest."""
        return int(self._snapshot().version())

    def id(self) -> str:
        """As the metadata have it."""
        return str(self._snapshot().metadata().id())

    def schema(self) -> T.StructType:
        """With what the log alone knows of columns."""
        return _schema(self._snapshot())

    def schema_at(self, version: int) -> T.StructType:
        """The same, of an older version."""
        nothing = self._class("scala.Option").empty()
        return _schema(with_flag(self._log().getSnapshotAt, version, nothing, nothing))

    def size(self) -> tuple[int, int]:
        """Files and bytes."""
        snapshot = self._snapshot()
        if (summed_up := snapshot.checksumOpt()).isDefined():  # written beside each commit; else Spark adds them up
            return int(summed_up.get().numFiles()), int(summed_up.get().tableSizeBytes())
        return int(snapshot.numOfFiles()), int(snapshot.sizeInBytes())

    def setting(self, name: str) -> str | None:
        """Of the metadata."""
        found = self._snapshot().metadata().configuration().get(name)
        return str(found.get()) if found.isDefined() else None

    def transaction(self, app_id: str) -> int | None:
        """The last one."""
        found = self._snapshot().transactions().get(app_id)
        return int(found.get()) if found.isDefined() else None

    def transactions(self) -> list[str]:
        """Of whom there are any."""
        return _lines(self._snapshot().transactions().keys())

    def kept_us(self) -> tuple[int, int]:
        """Removed files, and the log."""
        log, metadata = self._log(), self._snapshot().metadata()
        return int(log.tombstoneRetentionMillis(metadata)) * 1000, int(log.deltaRetentionMillis(metadata)) * 1000

    def partition_columns(self) -> list[str]:
        """Of the metadata."""
        return _lines(self._snapshot().metadata().partitionColumns())

    def files(self) -> DataFrame:
        """One row a file: `size`, and `partitionValues` by the names that the log has."""
        return DataFrame(self._snapshot().allFiles().toDF(), self.spark).select("size", "partitionValues")

    def checkpoint(self) -> None:
        """Sum it up."""
        self._log().checkpoint(self._snapshot(), self._class("scala.Option").empty())

    def read_ahead(self) -> None:
        """Have Delta find out which files the latest version has."""
        self._latest().transactions()

    def lines(self, version: int, *, whole: bool) -> list[str] | None:
        """Of a commit, as Delta's own log store reads them; None: it is not there."""
        log = self._log()
        path = self._class("org.apache.spark.sql.delta.util.FileNames").unsafeDeltaFile(log.logPath(), version)
        try:
            lines = log.store().read(path, log.newDeltaHadoopConf())
        except Py4JJavaError as error:
            if "FileNotFoundException" in str(error.java_exception):
                return None
            raise
        if lines.isEmpty():
            return []
        if str(lines.head()).startswith('{"commitInfo"') and not whole:
            lines = lines.take(FIRST_LINES)
        return str(lines.mkString("\n")).split("\n")

    def _snapshot(self) -> Any:
        """Delta's own snapshot of the latest version, or of the one look: from the log, without a Spark job."""
        return self.seen(self._latest)

    def _latest(self) -> Any:
        nothing = self._class("scala.Option").empty()
        try:
            return self._log().update(False, nothing, nothing)
        except Py4JJavaError as error:
            if any(sign in told(error) for sign in CUT_OFF):
                raise self.place.damaged() from error
            raise

    def _log(self) -> Any:
        jvm: Any = self.spark._jvm
        # Where Delta reads a checkpoint it asks the thread for its session, and a caller's own thread has none.
        SparkSession._get_j_spark_session_class(jvm).setActiveSession(self.spark._jsparkSession)
        return self._class("org.apache.spark.sql.delta.DeltaLog").forTable(self.spark._jsparkSession, self.place.path)

    def _class(self, name: str) -> Any:
        """A class of the JVM's; by one name, which is looked up but once (`jobs.spark`), not package by package."""
        return getattr(self.spark._jvm, name)


def _schema(snapshot: Any) -> T.StructType:
    return T.StructType.fromJson(json.loads(snapshot.metadata().schemaString()))


def _lines(found: Any) -> list[str]:
    return [line for line in str(found.mkString("\n")).split("\n") if line]
