"""Delta's log by what every Spark has, behind Spark Connect too: DESCRIBE, and the files of the log read as text."""

import json
from importlib import import_module

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, Row
from pyspark.sql import functions as F

from sessionizer.lib.schema.evolution import physical
from sessionizer.tables.delta.commits import CUT_OFF, told
from sessionizer.tables.delta.logs.state import TOLD, ByState, State, last_checkpoint, of_interest
from sessionizer.tables.delta.place import LOG, Place

NO_TABLE = (
    "DELTA_TABLE_ONLY_OPERATION",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "PATH_NOT_FOUND",
)


class PublicLog(ByState):
    """`DeltaLog` by public means: each answer is a small job of Spark's, so that what has been read is kept."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.spark = place.spark
        self.known: State | None = None
        import_module("delta.connect.exceptions")  # from here on Spark's client tells Delta's errors apart

    def exists(self) -> bool:
        """Whether there is a Delta table at the path."""
        try:
            self._state()
        except AnalysisException as error:
            if any(sign in str(error) for sign in NO_TABLE):
                return False
            raise
        return True

    def size(self) -> tuple[int, int]:
        """Files and bytes."""
        found = self._detail("numFiles", "sizeInBytes")
        return int(found["numFiles"]), int(found["sizeInBytes"])

    def files(self) -> DataFrame:
        """One row a file that has rows: `size`, and `partitionValues` by the names that the log has."""
        there = self.schema()
        values = [
            x
            for name in self.partition_columns()
            for x in (F.lit(physical(there[name])), F.col(f"`{name}`").cast("string"))
        ]
        rows = self.spark.sql(f"SELECT *, _metadata.file_path, _metadata.file_size FROM {self.place.sql_name()}")
        parts = F.create_map(*values) if values else F.lit(None).cast("map<string,string>")
        each = rows.groupBy("file_path").agg(
            F.first("file_size").alias("size"), F.first(parts).alias("partitionValues")
        )
        return each.select("size", "partitionValues")

    def checkpoint(self) -> None:
        """Behind a server Delta sums its log up by itself, every so many commits; nobody else may ask for it."""

    def read_ahead(self) -> None:
        """Nor may anybody ask for this."""

    def lines(self, version: int, *, whole: bool) -> list[str] | None:
        """Of a commit; None: it is not there."""
        try:
            rows = self._reader().text(self._entry(version)).collect()
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return None
            raise
        return of_interest([row[0] for row in rows], whole=whole)

    def _caught_up(self) -> State:
        try:
            if self.known is None:
                self.known = self._replayed(self._latest())
            while (lines := self.lines(self.known.version + 1, whole=True)) is not None:
                self.known.take([line for line in lines if TOLD.match(line)])
                self.known.version += 1
        except json.JSONDecodeError as error:
            raise self.place.damaged() from error
        return self.known

    def _latest(self) -> int:
        try:
            found = self.spark.sql(f"DESCRIBE HISTORY {self.place.sql_name()} LIMIT 1").select("version").collect()
        except Exception as error:
            if any(sign in told(error) for sign in CUT_OFF):
                raise self.place.damaged() from error
            raise
        return int(found[0]["version"])

    def _replayed(self, version: int) -> State:
        state = State(-1, {}, {})
        if (found := last_checkpoint(self._names(), version)) is not None:
            state.version, parts = found
            state.take(self._summed_up(parts))
        self._read_on(state, version)
        return state

    def _read_on(self, state: State, version: int) -> None:
        """The commits up to this version."""
        paths = [self._entry(number) for number in range(state.version + 1, version + 1)]
        if paths:
            rows = self._reader().text(paths).where(F.col("value").rlike(TOLD.pattern))
            told_by = rows.select("value", F.col("_metadata.file_name").alias("name")).collect()
            state.take([row["value"] for row in sorted(told_by, key=lambda row: row["name"])])
        state.version = version

    def _summed_up(self, parts: list[str]) -> list[str]:
        """The actions of a checkpoint that are not of files, as lines."""
        paths = [f"{self._folder()}/{name}" for name in parts]
        rows = self._reader().json(paths) if parts[0].endswith(".json") else self._reader().parquet(*paths)
        named = [name for name in ("metaData", "txn") if name in rows.columns]
        wanted = rows.where(" OR ".join(f"{name} IS NOT NULL" for name in named))
        return [row[0] for row in wanted.select(F.to_json(F.struct(*named))).collect()]

    def _names(self) -> list[str]:
        """Of the files of the log."""
        return [row["path"].rsplit("/", 1)[1] for row in self._listing().select("path").collect()]

    def _detail(self, *columns: str) -> Row:
        return self.spark.sql(f"DESCRIBE DETAIL {self.place.sql_name()}").select(*columns).collect()[0]

    def _folder(self) -> str:
        return f"{self.place.path}/{LOG}"

    def _entry(self, version: int) -> str:
        return f"{self._folder()}/{version:020d}.json"

    def _listing(self) -> DataFrame:
        return self._reader().format("binaryFile").load(self._folder())

    def _reader(self) -> DataFrameReader:
        """In whose paths [ and { are letters like others."""
        return self.spark.read.option("__globPaths__", "false")
