"""Delta's log by what every Spark has, behind Spark Connect too: DESCRIBE, and the files of the log read as text.

Where the server is on this machine, the files are opened here: that takes a thousandth of the time.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import deltalake
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, DataFrameReader, Row
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib.engine import sees_this_disk
from sessionizer.lib.schema.evolution import physical
from sessionizer.tables.delta.commits import CUT_OFF, FIRST_LINES, told
from sessionizer.tables.delta.place import LOG, Looking, Place

NO_TABLE = (
    "DELTA_TABLE_ONLY_OPERATION",
    "DELTA_MISSING_DELTA_TABLE",
    "DELTA_TABLE_NOT_FOUND",
    "DELTA_PATH_DOES_NOT_EXIST",
    "PATH_NOT_FOUND",
)
# How long Delta keeps files and the log where a table does not say.
USUALLY_KEPT = {
    "delta.deletedFileRetentionDuration": "interval 1 week",
    "delta.logRetentionDuration": "interval 30 days",
}
_ENTRY = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.(?:(\d{10})\.(\d{10})\.|[0-9a-f-]{36}\.)?(parquet|json)")
_TOLD = re.compile(r'\{"(?:metaData|txn)"')


@dataclass
class State:
    """What the log has come to, as of a version: the newest metadata, and the last transaction of each application."""

    version: int
    metadata: dict[str, Any]
    transactions: dict[str, int]

    def take(self, lines: list[str]) -> None:
        """Actions, in order."""
        for action in map(json.loads, lines):
            if found := action.get("metaData"):
                self.metadata = found
            if found := action.get("txn"):
                self.transactions[found["appId"]] = int(found["version"])


class PublicLog(Looking):
    """`DeltaLog` by public means: each answer is a small job of Spark's, so that what has been read is kept."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.spark = place.spark
        self.known: State | None = None
        import_module("delta.connect.exceptions")  # from here on Spark's client tells Delta's errors apart

    @cached_property
    def _here(self) -> bool:
        """Whether the files of the log may be opened by this process."""
        return sees_this_disk(self.spark) and self.place.local_path is not None

    def exists(self) -> bool:
        """Whether there is a Delta table at the path."""
        if self._here and not self._versions():
            return False
        try:
            self._state()
        except AnalysisException as error:
            if any(sign in str(error) for sign in NO_TABLE):
                return False
            raise
        return True

    def version(self) -> int:
        """The latest."""
        return self._state().version

    def id(self) -> str:
        """As the metadata have it."""
        return str(self._state().metadata["id"])

    def schema(self) -> T.StructType:
        """With what the log alone knows of columns."""
        return _schema(self._state())

    def schema_at(self, version: int) -> T.StructType:
        """The same, of an older version."""
        return _schema(self._replayed(version))

    def size(self) -> tuple[int, int]:
        """Files and bytes."""
        if self._here:
            with suppress(DeltaError):  # of a table with features that it does not know
                sizes = deltalake.DeltaTable(self.place.local_path or "").get_add_actions().column("size_bytes")
                return len(sizes), sum(sizes.to_pylist())
        found = self._detail("numFiles", "sizeInBytes")
        return int(found["numFiles"]), int(found["sizeInBytes"])

    def setting(self, name: str) -> str | None:
        """Of the metadata."""
        found = self._state().metadata.get("configuration") or {}
        return found.get(name)

    def transaction(self, app_id: str) -> int | None:
        """The last one."""
        return self._state().transactions.get(app_id)

    def transactions(self) -> list[str]:
        """Of whom there are any."""
        return list(self._state().transactions)

    def kept_us(self) -> tuple[int, int]:
        """Removed files, and the log."""
        kept = [interval_of(self.setting(name) or usual) for name, usual in USUALLY_KEPT.items()]
        ends = [f"TIMESTAMP '1970-01-01' + {interval}" for interval in kept]
        removed, log = self.spark.sql(f"SELECT {', '.join(f'unix_micros({end})' for end in ends)}").collect()[0]
        return int(removed), int(log)

    def partition_columns(self) -> list[str]:
        """Of the metadata."""
        return list(self._state().metadata["partitionColumns"])

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
        if self._here:
            deltalake.DeltaTable(self.place.local_path or "").create_checkpoint()

    def lines(self, version: int, *, whole: bool) -> list[str] | None:
        """Of a commit; None: it is not there."""
        try:
            if self._here:
                lines = self._text(self._entry(version))
            else:
                lines = [row[0] for row in self._reader().text(self._entry(version)).collect()]
        except FileNotFoundError:
            return None
        except AnalysisException as error:
            if "PATH_NOT_FOUND" in str(error):
                return None
            raise
        return lines if whole or not lines or not lines[0].startswith('{"commitInfo"') else lines[:FIRST_LINES]

    def _state(self) -> State:
        """As of the latest version, or the one look."""
        return self.seen(self._caught_up)

    def _caught_up(self) -> State:
        """As of the latest version: entries are numbered, so that what is new is found by its name."""
        try:
            if self.known is None:
                self.known = self._replayed(self._latest())
            while (lines := self.lines(self.known.version + 1, whole=True)) is not None:
                self.known.take([line for line in lines if _TOLD.match(line)])
                self.known.version += 1
        except json.JSONDecodeError as error:
            raise self.place.damaged() from error
        return self.known

    def _latest(self) -> int:
        if self._here:
            return max(self._versions())
        try:
            found = self.spark.sql(f"DESCRIBE HISTORY {self.place.sql_name()} LIMIT 1").select("version").collect()
        except Exception as error:
            if any(sign in told(error) for sign in CUT_OFF):
                raise self.place.damaged() from error
            raise
        return int(found[0]["version"])

    def _replayed(self, version: int) -> State:
        """As of a version, from the last checkpoint before it on."""
        found: dict[int, list[str]] = {}
        for name in self._names():
            if (match := _CHECKPOINT.fullmatch(name)) and int(match[1]) <= version:
                found.setdefault(int(match[1]), []).append(name)
        state = State(-1, {}, {})
        for summed, parts in sorted(found.items(), reverse=True):
            if _is_whole(parts):
                state = State(summed, {}, {})
                state.take(self._summed_up(parts))
                break
        self._read_on(state, version)
        return state

    def _read_on(self, state: State, version: int) -> None:
        """The commits up to this version."""
        paths = [self._entry(number) for number in range(state.version + 1, version + 1)]
        if paths and self._here:
            try:
                state.take([line for path in paths for line in self._text(path) if _TOLD.match(line)])
            except FileNotFoundError:
                raise self.place.forgotten(version) from None
        elif paths:
            rows = self._reader().text(paths).where(F.col("value").rlike(_TOLD.pattern))
            told_by = rows.select("value", F.col("_metadata.file_name").alias("name")).collect()
            state.take([row["value"] for row in sorted(told_by, key=lambda row: row["name"])])
        state.version = version

    def _summed_up(self, parts: list[str]) -> list[str]:
        """The actions of a checkpoint that are not of files, as lines."""
        paths = [f"{self._folder()}/{name}" for name in parts]
        if self._here:
            return self._summed_up_here(paths)
        rows = self._reader().json(paths) if parts[0].endswith(".json") else self._reader().parquet(*paths)
        named = [name for name in ("metaData", "txn") if name in rows.columns]
        wanted = rows.where(" OR ".join(f"{name} IS NOT NULL" for name in named))
        return [row[0] for row in wanted.select(F.to_json(F.struct(*named))).collect()]

    def _summed_up_here(self, paths: list[str]) -> list[str]:
        if paths[0].endswith(".json"):
            return [line for path in paths for line in self._text(path) if _TOLD.match(line)]
        import pyarrow.parquet as pq  # noqa: PLC0415

        tables = [pq.read_table(path, columns=["metaData", "txn"]) for path in paths]
        rows = [row for table in tables for row in table.to_pylist(maps_as_pydicts="strict")]
        return [json.dumps(row) for row in rows if row.get("metaData") or row.get("txn")]

    def _names(self) -> list[str]:
        """Of the files of the log."""
        if self._here:
            folder = Path(self._folder())
            return sorted(file.name for file in folder.iterdir()) if folder.is_dir() else []
        return [row["path"].rsplit("/", 1)[1] for row in self._listing().select("path").collect()]

    def _versions(self) -> list[int]:
        """Of its entries and checkpoints."""
        found = (_ENTRY.fullmatch(name) or _CHECKPOINT.fullmatch(name) for name in self._names())
        return [int(match[1]) for match in found if match]

    def _text(self, path: str) -> list[str]:
        return Path(path).read_text(encoding="utf-8").rstrip("\n").split("\n")

    def _detail(self, *columns: str) -> Row:
        return self.spark.sql(f"DESCRIBE DETAIL {self.place.sql_name()}").select(*columns).collect()[0]

    def _folder(self) -> str:
        return f"{self.place.local_path if self._here else self.place.path}/{LOG}"

    def _entry(self, version: int) -> str:
        return f"{self._folder()}/{version:020d}.json"

    def _listing(self) -> DataFrame:
        return self._reader().format("binaryFile").load(self._folder())

    def _reader(self) -> DataFrameReader:
        """In whose paths [ and { are letters like others."""
        return self.spark.read.option("__globPaths__", "false")


def interval_of(text: str) -> str:
    """What a property of Delta's says, as SQL has it: Delta takes `30 days` for the same as `interval 30 days`."""
    return text if text.strip().lower().startswith("interval") else f"INTERVAL {text}"


def _is_whole(parts: list[str]) -> bool:
    """Whether a checkpoint has all its parts; one of another kind has but one."""
    numbered = [match for name in parts if (match := _CHECKPOINT.fullmatch(name)) and match[3]]
    return len(numbered) < len(parts) or len(numbered) == int(numbered[0][3])


def _schema(state: State) -> T.StructType:
    return T.StructType.fromJson(json.loads(state.metadata["schemaString"]))
