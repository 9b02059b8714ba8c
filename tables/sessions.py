"""The sessions table: its columns, its position, its live rows, its commits."""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.changes import DELETE
from lib.config import Config
from lib.errors import TableError
from tables.delta import CHANGE_FEED, Commit, Entry, Superseded, Table
from tables.manifest import Manifest

FIRST_LOOK = 10  # commits of the history: the last manifest is nearly always the latest commit
HARMLESS = {"OPTIMIZE", "VACUUM START", "VACUUM END", "SET TBLPROPERTIES", "COMPUTE STATISTICS"}
ROWS_PER_FILE = 2_000_000
FILTERED_BY = (C.SESSION_START, C.SESSION_END, C.EXPIRES_AT, C.SESSION_ID)


@dataclass(frozen=True)
class Position:
    """Where the table stands: its version, and the manifest in force (None: no run yet)."""

    version: int
    manifest: Manifest | None


class Sessions:
    """The sessions table."""

    def __init__(self, spark: SparkSession, config: Config) -> None:
        self.config = config
        self.table = Table(spark, config.sessions.table, "sessions.table")

    def require(self) -> None:
        """Raise unless the table is there."""
        self.table.require("`sessionizer init` makes it")

    def create(self, schema: T.StructType) -> None:
        """Make the table, empty, with the properties that the configuration asks for."""
        filtered = [*self.config.source.key, *FILTERED_BY]
        self.table.create(
            schema,
            list(self.config.sessions.partition_by),
            {
                CHANGE_FEED: str(self.config.sessions.change_feed).lower(),
                "delta.enableDeletionVectors": str(self.config.sessions.deletion_vectors).lower(),
                "delta.dataSkippingStatsColumns": ",".join(f"`{n.replace('`', '``')}`" for n in filtered),
            },
        )

    def check_schema(self, expected: T.StructType) -> None:
        """Raise unless the table has the columns that the rule makes, in name and type."""
        found = {f.name: f.dataType for f in self.table.schema.fields}
        wanted = {f.name: f.dataType for f in expected.fields}
        wrong = [
            f"{name} is {_type(found.get(name))} and must be {_type(wanted.get(name))}"
            for name in sorted(found.keys() | wanted.keys())
            if _plain(found.get(name)) != _plain(wanted.get(name))
        ]
        if wrong:
            raise TableError(
                "the sessions table must have the columns that the configuration and the source make: "
                + "; ".join(wrong),
                value=self.config.sessions.table,
                remedy="a source column has changed its type, or the aggregates have: undo it, or name a new "
                "sessions table and run `sessionizer init`",
            )

    def position(self) -> Position:
        """The latest version and the last manifest in force: a RESTORE puts an older one in force again."""
        version = self.table.version
        for history in (self.table.history(FIRST_LOOK), self.table.history()):
            found, complete = _manifest_in_force(history)
            if complete:
                return Position(version, found)
        return Position(version, None)

    def live(self, version: int) -> DataFrame:
        """The rows that may still change, as of a version."""
        return self.table.read(version).where(~C.col(C.IS_FINAL))

    def commit(self, changes: DataFrame, manifest: Manifest) -> None:
        """Write the changes and the manifest in one commit.

        Where no row in the table changes, the rows are appended, final ones in files by time. Else they are merged
        into the live rows: the literal `is_final = false` keeps Delta from even opening the history.
        Errors: Superseded if the table has moved on since the version that the manifest names.
        """
        fence = Commit(f"{self.table.id}:sessions", manifest.run_seq, manifest.text())
        self._check_not_moved(manifest)
        rows = changes.withColumn(C.RUN_ID, F.lit(manifest.run_id))
        columns = self.table.schema.fieldNames()
        if manifest.sessions["updated"] == 0 and manifest.sessions["deleted"] == 0:
            self._append(rows.select(*C.cols(tuple(columns))), manifest, fence)
            return
        self.table.merge(
            rows.select(*C.cols(tuple(columns)), C.col(C.CHANGE)),
            f"t.{C.SESSION_ID} = s.{C.SESSION_ID} AND t.{C.IS_FINAL} = false",
            fence,
            delete_when=f"s.{C.CHANGE} = '{DELETE}'",
        )

    def written(self, manifest: Manifest) -> tuple[int, int]:
        """Files and bytes that the run's commit has added."""
        for entry in self.table.history(self.table.version - manifest.sessions_version):
            if (found := Manifest.parse(entry.metadata)) is not None and found.run_id == manifest.run_id:
                names = ("numFiles", "numTargetFilesAdded"), ("numOutputBytes", "numTargetBytesAdded")
                return (entry.metric(names[0]), entry.metric(names[1]))
        return (0, 0)

    def _append(self, rows: DataFrame, manifest: Manifest, fence: Commit) -> None:
        files = 1 + manifest.sessions["rows"] // ROWS_PER_FILE
        by_time = rows.repartitionByRange(files, C.IS_FINAL, C.SESSION_START) if files > 1 else rows.coalesce(1)
        if not self.table.append(by_time, fence) or not self._is_mine(manifest):
            raise Superseded(f"run_seq {manifest.run_seq} was there already")

    def _is_mine(self, manifest: Manifest) -> bool:
        since = self.table.version - manifest.sessions_version
        return any(
            (found := Manifest.parse(e.metadata)) is not None and found.run_id == manifest.run_id
            for e in self.table.history(max(since, 1))
        )

    def _check_not_moved(self, manifest: Manifest) -> None:
        """The fence stops other runs; this stops a run that was overtaken by a RESTORE or a manual change."""
        moved = self.table.version - manifest.sessions_version
        if moved and any(e.operation not in HARMLESS for e in self.table.history(moved)):
            raise Superseded(f"sessions has moved on since version {manifest.sessions_version}")


def _manifest_in_force(history: list[Entry]) -> tuple[Manifest | None, bool]:
    """The manifest in force, and whether this much history was enough to tell."""
    upto = history[0].version if history else 0
    for entry in history:
        if entry.version > upto:
            continue
        if entry.operation == "RESTORE":
            upto = _restored_version(entry, history)
        elif (manifest := Manifest.parse(entry.metadata)) is not None:
            return manifest, True
    return None, bool(history) and history[-1].version == 0


def _restored_version(entry: Entry, history: list[Entry]) -> int:
    if version := entry.parameters.get("version"):
        return int(version)
    from_text = entry.parameters.get("timestamp", "")
    older = [e.version for e in history if e.version < entry.version]
    raise TableError(
        "sessions was restored by timestamp, and its history does not say to which version",
        value=from_text,
        remedy=f"restore it again by version, for example RESTORE … TO VERSION AS OF {max(older, default=0)}",
    )


def _plain(data_type: T.DataType | None) -> str | None:
    """The type without what does not matter here: whether parts may be null."""
    return None if data_type is None else data_type.simpleString()


def _type(data_type: T.DataType | None) -> str:
    return "absent" if data_type is None else data_type.simpleString().upper()
