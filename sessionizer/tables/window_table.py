"""A table of windows, of either kind: its columns, its position, its live rows, its commits."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.evolution import Evolution, mismatches, told_by, widened
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import ConfigError, TableError
from sessionizer.lib.time.spans import Spans
from sessionizer.lib.windows.sessions.lifecycle import CLOSED
from sessionizer.lib.windows.windows import DELETE, apply
from sessionizer.tables.delta import CHANGE_FEED, STATISTICS, Commit, Entry, Superseded, Table, cores_of
from sessionizer.tables.layout import Layout
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.position import HARMLESS, Position, counts_hold, in_force, position_of

KEPT = "sessionizer.lastRunSeq"  # a property that changes where a commit is needed only for what it says
MADE_FOR = "sessionizer.madeFor"  # a property: the hash of the rule and the source that gave the table its columns
LIVE = f"{C.IS_FINAL} = false"
FEW = 50_000  # rows that one task writes as quickly as several, into one file


class WindowTable:
    """A table of windows, one row each, with the position of its runs."""

    def __init__(self, table: Table, layout: Layout, key: tuple[str, ...]) -> None:
        self.table = table
        self.layout = layout
        self.key = key

    def require(self) -> None:
        """Raise unless the table is there."""
        self.table.require("`sessionizer init` makes it")

    def create(self, schema: T.StructType, made_for: str) -> None:
        """Make the table, empty, with the properties that the configuration asks for.

        made_for: what `events.schema_hash` says, for `fits`.
        """
        layout = self.layout
        if layout.change_feed and any("`" in name for name in schema.names):
            raise ConfigError(
                f"a column name with a backtick does not go with the change data feed of {layout.name}: "
                "Delta cannot write such changes",
                value=next(name for name in schema.names if "`" in name),
                remedy="rename the column, or (of sessions) set sessions.change_feed: false",
            )
        self.table.create(
            schema,
            list(layout.partition_by),
            {
                CHANGE_FEED: str(layout.change_feed).lower(),
                "delta.enableDeletionVectors": str(layout.deletion_vectors).lower(),
                STATISTICS: self._filtered(schema),
                MADE_FOR: made_for,
            },
        )

    def fits(self, schema: str, done: Manifest | None) -> bool:
        """Whether rule and source, by their hash, are still those of the last run, or of the making of the table."""
        return schema == (self.table.setting(MADE_FOR) if done is None else done.source_schema)

    def check_schema(self, expected: T.StructType, evolved: Evolution) -> None:
        """Raise unless the table has the columns that the rule makes, in name and type, or may get them.

        evolved: which of them a run is to add, and which others earlier ones have left.
        """
        if wrong := mismatches(self.table.schema, expected, evolved):
            raise TableError(
                f"the {self.layout.name} table must have the columns that the configuration and the source make: "
                + "; ".join(wrong),
                value=self.table.location,
                remedy=self.layout.remedy,
            )

    def position(self) -> Position:
        """The latest version and the last manifest in force, with the number of live rows after it."""
        with self.table.one_look():
            at = position_of(self.table)
            is_own = at.manifest is None or counts_hold(self.table, at.manifest)
        if (run := at.manifest) is None or (is_own and run.live_sessions is not None):
            return at
        made = self.committed(run) if is_own else None
        live = None if made is None else self.table.rows_added(made.version, (C.IS_FINAL, "false"))
        live = self.live(at.version).count() if live is None else live
        return replace(at, manifest=run.model_copy(update={"live_sessions": live}))

    def counts_of_new(self, version: int) -> dict[str, int]:
        """What was counted as its rows were written, all of them as new ones."""
        rows, final = self.table.read(version), F.count_if(C.col(C.IS_FINAL))
        closed = F.count_if(C.col(C.STATUS) == CLOSED) if self.layout.start == C.SESSION_START else F.lit(0)
        n, ended, over = rows.agg(F.count(F.lit(1)), closed, final).collect()[0]
        return dict.fromkeys(("rows", "created"), n) | {"closed": ended, "finalised": over, "live_change": n - over}

    def manifests(self, version: int | None = None) -> Iterator[Manifest]:
        """The manifests in force, as of a version or the latest, newest first, as far back as the history goes."""
        found = in_force(self.table, self.table.version if version is None else version)
        return (manifest for manifest, _ in found if manifest is not None)

    def live(self, version: int | None = None) -> DataFrame:
        """The rows that may still change, as of a version or the latest."""
        return self.table.read(version).where(~C.col(C.IS_FINAL))

    def final(self, version: int) -> DataFrame:
        """The rows that do not change of themselves any more, as of a version."""
        return self.table.read(version).where(C.col(C.IS_FINAL))

    def commit(self, changes: DataFrame, manifest: Manifest, touched: Spans = (), most: int = 0) -> Entry:
        """Write the changes, which are computed, and the manifest in one commit, and return it.

        touched: spans of start times (microseconds, inclusive) that hold the rows to change, where some are final.
        most: at most so many rows where the manifest does not know; they are new, and the write computes them.
        Errors: Superseded if the table has moved on since the version that the manifest names.
        """
        fence = self._fence(manifest)
        rows = changes.withColumn(C.RUN_ID, F.lit(manifest.run_id))
        named = tuple(n for n in rows.columns if n not in (C.RUN_ID, C.STATE, C.CHANGE))
        made = rows.select(*C.cols((*named, C.RUN_ID, C.STATE))).schema
        columns = made if manifest.mode == "rebuild" else widened(self.table.schema, made)
        told = told_by(rows, T.StructType([*columns.fields, rows.schema[C.CHANGE]]))
        with self.table.lock():
            self._check_not_moved(manifest)
            if manifest.sessions:
                self._write(told, manifest, touched, fence)
            else:
                self._write_new(told.drop(C.CHANGE), manifest, most, fence)
        return self._own(manifest)

    def ended(self, before: int, version: int | None = None) -> DataFrame:
        """The final rows, as of a version or the latest, that ended before this time (microseconds, exclusive)."""
        return self.table.read(version).where(self._ended(before))

    def forget(self, before: int, manifest: Manifest) -> Entry:
        """Take these rows away, and write the manifest, in one commit. Errors: Superseded, as above."""
        with self.table.lock():
            self._check_not_moved(manifest)
            self.table.delete(self._ended(before), self._fence(manifest))
        return self._own(manifest)

    def latest_end(self) -> int | None:
        """The latest time at which a row ends, in microseconds; None: there is no row."""
        end = F.unix_micros(F.max(C.col(self.layout.end)))
        return self.table.read().agg(end).collect()[0][0]  # type: ignore[no-any-return]

    def _ended(self, before: int) -> str:
        return f"{C.IS_FINAL} AND {self.layout.end} < timestamp_micros({before}L)"

    def _fence(self, manifest: Manifest) -> Commit:
        return Commit(f"{self.table.id}:{self.layout.name}", manifest.run_seq, manifest.text())

    def _own(self, manifest: Manifest) -> Entry:
        if (entry := self.committed(manifest)) is None:
            raise Superseded(f"run_seq {manifest.run_seq} was there already")
        return entry

    def _write_new(self, rows: DataFrame, manifest: Manifest, most: int, fence: Commit) -> None:
        """All rows that there are to be, computed now. Each task has its own in order of time, and so have its files.

        To order them across tasks they would have to be computed twice.
        """
        rows, most = rows.coalesce(1) if most <= FEW else rows, self.layout.rows_per_file
        if manifest.mode == "rebuild":
            self._overwrite(rows, fence, most)
        else:
            self.table.append(rows, fence, add_columns=self._is_wider(rows), rows_per_file=most)

    def _write(self, rows: DataFrame, manifest: Manifest, touched: Spans, fence: Commit) -> None:
        """Where no row in the table changes, the rows are appended, final ones in files by time.

        Else they are merged into the live rows: the literal `is_final = false`, or the spans that are touched, keep
        Delta from even opening the history. Or, as `sessions.commit` says, all live rows are written anew instead,
        those that stay as Delta's transaction finds them: what others have changed by hand in the meantime is kept.
        """
        counts, live, adds = manifest.sessions, manifest.live_sessions or 0, self._is_wider(rows.drop(C.CHANGE))
        number = counts["rows"]
        if manifest.mode == "rebuild":
            self._overwrite(self._by_time(rows.drop(C.CHANGE), number), fence)
        elif counts["updated"] == 0 and counts["deleted"] == 0:
            self.table.append(self._by_time(rows.drop(C.CHANGE), number), fence, add_columns=adds)
        elif not touched and self.layout.replaces(live, number):
            whole = apply(told_by(self.live(), rows.drop(C.CHANGE).schema), rows, self.layout.identity)
            self.table.replace(LIVE, whole.coalesce(self._files(live + number, rows)), fence, add_columns=adds)
        else:
            same = " AND ".join(f"t.{name} <=> s.{name}" for name in map(C.quoted, self.layout.identity))
            self.table.merge(
                rows,
                f"{same} AND ({self._reachable(touched)})",
                fence,
                delete_when=f"s.{C.CHANGE} = '{DELETE}'",
                add_columns=adds,
                computed=True,
                many=self._writes_many(live, number, touched=bool(touched)),
            )

    def _overwrite(self, rows: DataFrame, fence: Commit, rows_per_file: int | None = None) -> None:
        """All rows and the columns anew; where the key is another, first with statistics of what stays alone."""
        is_other = self.table.setting(STATISTICS) != (statistics := self._filtered(rows.schema))
        if is_other:
            there = {field.name: field.dataType for field in self.table.schema.fields}
            staying = T.StructType([f for f in rows.schema.fields if there.get(f.name) == f.dataType])
            text = done.text() if (done := self.position().manifest) else None  # with which each commit may be the last
            self.table.change_setting(STATISTICS, self._filtered(staying), text)
        self.table.overwrite(rows, fence, list(self.layout.partition_by), rows_per_file)
        if is_other:
            self.table.change_setting(STATISTICS, statistics)

    def _is_wider(self, rows: DataFrame) -> bool:
        """Whether the rows, which have all columns of the table, have others, too, or structs with other fields."""
        there = self.table.schema
        return widened(there, rows.schema).simpleString() != there.simpleString()

    def _filtered(self, schema: T.StructType) -> str:
        """The columns of these that files are left closed by, as Delta's property has them."""
        names = [name for name in (*self.key, *self.layout.filtered_by) if name in schema.names]
        return ",".join(C.quoted(name) for name in names if _has_statistics(schema[name].dataType))

    def committed(self, manifest: Manifest) -> Entry | None:
        """The commit of this very run, which what is harmless may repeat, or None if another stands in its place."""
        since = self.table.history(self.table.version - manifest.sessions_version)
        return next((e for e in since if e.operation not in HARMLESS and _has(e, manifest)), None)

    def recent(self, since: int | None) -> str:
        """The partitions whose files are worth compacting: live rows and, where there are dates, those from one on.

        since: microseconds since the epoch, compared with session_date, inclusive; None: none of the history.
        """
        if self._few_partitions():
            return "true"
        if since is None:
            return LIVE
        return f"{LIVE} OR {C.SESSION_DATE} >= date_from_unix_date({since // DAY})"

    def keep_manifest(self, manifest: Manifest, now: int) -> bool:
        """Repeat the manifest in a commit of its own, unless the log has it in a commit young enough; whether it did.

        Delta removes the log of commits older than its retention: half of it is young enough for daily upkeep. What
        was repeated before a RESTORE is undone by it.
        """
        oldest = now - self.table.kept_us()[1] // 2
        young = takewhile(lambda e: e.timestamp_us >= oldest and e.operation != "RESTORE", self.table.history())
        if any(_has(entry, manifest) for entry in young):
            return False
        self.table.change_setting(KEPT, str(manifest.run_seq), manifest.text())
        return True

    def _writes_many(self, live: int, changed: int, *, touched: bool) -> bool:
        """Whether a MERGE writes more rows than one file is to have; where dates divide the rows, files are smaller.

        With deletion vectors it writes those that change; else all rows of each file in which one does.
        """
        if not self._few_partitions():
            return False
        most = self.layout.rows_per_file
        return changed > most if self.layout.deletion_vectors else touched or live + changed > most

    def _few_partitions(self) -> bool:
        """Whether a partition may get many rows of one run, as no dates divide them."""
        return C.SESSION_DATE not in self.table.partition_columns

    def _check_not_moved(self, manifest: Manifest) -> None:
        """The fence stops other runs; this stops a run that was overtaken by a RESTORE or a manual change."""
        moved = self.table.version - manifest.sessions_version
        if moved and any(e.operation not in HARMLESS for e in self.table.history(moved)):
            raise Superseded(f"{self.layout.name} has moved on since version {manifest.sessions_version}")

    def _reachable(self, touched: Spans) -> str:
        """The rows of the table that a run may change, by literals alone: only those keep files closed."""
        if not touched:
            return f"t.{LIVE}"
        start = f"t.{self.layout.start}"
        return " OR ".join(
            f"({start} >= timestamp_micros({low}L) AND {start} <= timestamp_micros({high}L))" for low, high in touched
        )

    def _by_time(self, rows: DataFrame, number: int) -> DataFrame:
        """Rows in files by time, so that a look at one day opens few of them."""
        files = self._files(number, rows)
        return rows.coalesce(1) if files == 1 else rows.repartitionByRange(files, C.IS_FINAL, self.layout.start)

    def _files(self, number: int, rows: DataFrame) -> int:
        """How many files so many rows make; more than cores in multiples of them, so that none idles for the last."""
        files = 1 + number // self.layout.rows_per_file
        cores = 1 if files == 1 else cores_of(rows.sparkSession)
        return files if files <= cores else cores * -(-files // cores)


def _has_statistics(data_type: T.DataType) -> bool:
    """Whether Delta keeps the least and the greatest value of such a column: it refuses to be asked for others."""
    return not isinstance(data_type, T.BooleanType | T.BinaryType)


def _has(entry: Entry, manifest: Manifest) -> bool:
    found = Manifest.parse(entry.metadata)
    return found is not None and found.run_id == manifest.run_id
