"""Commits: what goes into one besides rows, what a table's history says of one, what Delta raises against one."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import delta.exceptions
from pyspark.sql import types as T

# What Spark and Delta say of a version whose files, or whose place in the log, are there no more.
GONE = (
    "FILE_NOT_EXIST",
    ".bin does not exist",  # a deletion vector, where Delta reads two by itself for what lies between
    "No such file or directory: s3",
    "DELTA_VERSION_NOT_FOUND",
    "DELTA_UNSUPPORTED_TIME_TRAVEL_BEYOND_DELETED_FILE_RETENTION_DURATION",
    "DELTA_LOG_FILE_NOT_FOUND",
    "DELTA_TRUNCATED_TRANSACTION_LOG",
    "DELTA_VERSIONS_NOT_CONTIGUOUS",
    "DELTA_NO_RECREATABLE_HISTORY_FOUND",
)
# What they say of versions whose changes were never recorded, or are by other columns.
NO_CHANGES = ("DELTA_MISSING_CHANGE_DATA", "DELTA_CHANGE_DATA_FEED_INCOMPATIBLE", "COLUMN_DATA_TYPE_MISMATCH")
CUT_OFF = ("ChecksumException", "JsonEOFException", "JsonParseException")  # what Java says of such entries of a log
# What Delta raises for a commit that another one has overtaken: in Python none of them is a kind of another.
OVERTAKEN = tuple(getattr(delta.exceptions, name) for name in delta.exceptions.__all__)
# Operation metrics have other names in appends and in MERGEs, whose output has rows that are copied as they were.
OF_MERGE = ("numTargetRowsInserted", "numTargetRowsUpdated", "numTargetRowsDeleted")
OUTPUT, COPIED = "numOutputRows", "numCopiedRows"
OF_OTHERS = (OUTPUT, "numUpdatedRows", "numDeletedRows")
BARRIER = "sessionizer: nothing older from here on"  # what a commit says that holds a fence alone
REARRANGES = {"OPTIMIZE", "RESTORE"}
FIRST_LINES = 8  # of a commit of Spark's: what it says of itself, the columns, what it needs; files come behind
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

    @property
    def note(self) -> str:
        """The same as metadata: of a commit that Delta lets nobody fence."""
        return f"{self.app_id}@{self.txn}"


@dataclass(frozen=True)
class Entry:
    """One commit in a table's history. columns: the table's; None: the commit changes none of them."""

    version: int
    timestamp_us: int
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    metadata: str | None
    columns: T.StructType | None = None

    @property
    def tells_rows(self) -> bool:
        """Whether the commit itself says how many rows it changes, or there are none."""
        return self.operation in REARRANGES or any(name in self.metrics for name in (*OF_MERGE, *OF_OTHERS))

    @property
    def rows(self) -> int:
        """How many rows it adds, changes or takes away, as far as it says so."""
        names = OF_MERGE if any(name in self.metrics for name in OF_MERGE) else OF_OTHERS
        told = {name: int(self.metrics[name]) for name in names if name in self.metrics}
        copied = int(self.metrics.get(COPIED, 0)) if OUTPUT in told else 0  # where a part is overwritten
        return sum(told.values()) - copied

    def with_columns_of(self, table: Mapping[str, Any]) -> "Entry":
        """With the columns that this `metaData` of the commit tells."""
        return replace(self, columns=T.StructType.fromJson(json.loads(table["schemaString"])))

    def with_rows_of(self, actions: Iterable[Mapping[str, Any]]) -> "Entry":
        """With what its files say of rows, files and bytes written: writers other than Spark leave it to them."""
        added = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
        rows = sum(json.loads(add.get("stats") or "{}").get("numRecords", 0) for add in added)
        size = sum(add["size"] for add in added)
        counted = {"numOutputRows": rows, "numFiles": len(added), "numOutputBytes": size}
        return replace(self, metrics={name: str(n) for name, n in counted.items()} | dict(self.metrics))

    def metric(self, names: tuple[str, ...]) -> int:
        """The first of these operation metrics that the commit has, else 0."""
        return int(next((self.metrics[n] for n in names if n in self.metrics), 0))


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


def entry_of_text(version: int, text: str) -> Entry:
    """The commit that all its lines tell of; another writer's may say nothing of itself."""
    lines = [line for line in text.split("\n") if line]  # which may hold other ends of lines
    infos = (action["commitInfo"] for action in map(json.loads, lines) if "commitInfo" in action)
    found = entry_of(version, next(infos, {}))
    return found if found.tells_rows else found.with_rows_of(map(json.loads, lines))


@contextmanager
def racing() -> Iterator[None]:
    """Inside it, a commit that another one has overtaken is Superseded."""
    try:
        yield
    except OVERTAKEN as error:
        raise Superseded(str(error).splitlines()[0]) from error


def told(error: BaseException) -> str:
    """All that an error says, with the causes that Java knows of it."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"
