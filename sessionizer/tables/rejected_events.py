"""rejected_events: every event that no session took, with the reason and the whole row."""

from collections.abc import Mapping

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.admission.verdicts import (
    BEFORE_START,
    CORRECTION,
    DUPLICATE,
    EXPRESSION_FAILED,
    IGNORED_DELETE,
    IN,
    IN_THE_FUTURE,
    LATE,
    NON_POSITIVE_GAP,
    NULL_KEY,
    NULL_TIME,
    OUT,
)
from sessionizer.lib.config import Config
from sessionizer.lib.config.key import is_named
from sessionizer.tables.delta import Commit, Table
from sessionizer.tables.manifest import Manifest

AFTER_KEY: Mapping[str, T.DataType] = {
    C.EVENT_TIME: T.TimestampType(),
    C.REASON: T.StringType(),
    C.KEPT: T.StringType(),
    C.WATERMARK: T.TimestampType(),
    C.HORIZON: T.TimestampType(),
    C.EVENT: T.StringType(),
    C.EVENT_HASH: T.StringType(),
    C.ORDINAL: T.IntegerType(),
    C.SOURCE_VERSION: T.LongType(),
    C.RUN_ID: T.StringType(),
    C.RUN_SEQ: T.LongType(),
}
FOR_GOOD = frozenset({BEFORE_START, CORRECTION, IGNORED_DELETE})  # whatever is computed again
# The same of what is older than that which has been forgotten: another rule might take it in.
BY_MARK = frozenset({LATE, DUPLICATE, EXPRESSION_FAILED, NULL_KEY, NON_POSITIVE_GAP, IN_THE_FUTURE})
TIMED = BY_MARK | {NULL_TIME}  # the same, where wider columns have given such a one a time
ANEW = "rejected-anew"
KEPT_OUT = sorted(FOR_GOOD | BY_MARK)  # what has no time speaks for itself


class RejectedEvents:
    """The rejected_events table."""

    def __init__(self, config: Config, table: Table) -> None:
        self.config = config
        self.table = table

    def create_if_missing(self, source_schema: T.StructType) -> bool:
        """Make the table, empty, unless it is there; whether it was made."""
        return self.table.create_if_missing(rejected_schema(self.config, source_schema), {})

    def fit(self, source_schema: T.StructType) -> None:
        """Give the table its columns while it has no more than lines that nobody could read: they are of no key."""
        wanted = rejected_schema(self.config, source_schema)
        if _kinds(self.table.schema) != _kinds(wanted) and not self.is_of_runs:
            self.table.check_addable(wanted.names)
            rows = self._with_unread(self.table.spark.createDataFrame([], wanted))
            self.table.overwrite(rows, Commit(ANEW, self.table.version), [])

    def before(self, run_seq: int) -> DataFrame | None:
        """The rows that runs before this one have written; None: there are none."""
        return None if self.is_empty else self.table.read().where(C.col(C.RUN_SEQ) < run_seq)

    def without(self, undoing: Commit, last: int) -> DataFrame | None:
        """The rows of runs as they are once the transactions after `last` are undone; None: there are none to undo.

        Those of the latest version serve where none has been taken away since, and each transaction since is of a run
        that has rows of its own there: one of an earlier run, which a RESTORE had it write again, has none. So files
        that the version of then had need not be there. Errors: TableError as of `version_before`.
        """
        if (version := self.table.version_before(undoing, last)) is None:
            return None
        of_runs = self.table.read().where(C.col(C.RUN_SEQ).isNotNull())
        if not any(map(self.table.removes_rows, range(version + 1, self.table.version + 1))):
            later = of_runs.where(C.col(C.RUN_SEQ) > last).select(C.RUN_SEQ).distinct()
            if self.table.acts_since(version, undoing.app_id) <= {row[0] for row in later.collect()}:
                return of_runs.where(C.col(C.RUN_SEQ) <= last)
        return self.table.read(version).where(C.col(C.RUN_SEQ).isNotNull())

    @property
    def is_empty(self) -> bool:
        """Whether nothing has ever been rejected, as the table's log tells at once."""
        return self.table.size()[0] == 0

    @property
    def is_of_runs(self) -> bool:
        """Whether runs have rejected any of these: lines that nobody could read are of none."""
        return not self.is_empty and not self.table.read().where(C.col(C.RUN_SEQ).isNotNull()).isEmpty()

    @property
    def _times_are_columns(self) -> bool:
        """Whether each source has a column of times, and what lacks one has none for good."""
        return all(is_named(source.event_time) for source in self.config.sources or (self.config.source,))

    def bar(self, undoing: Commit, last: int) -> None:
        """As of any table."""
        self.table.bar(undoing, last)

    def restore(self, undoing: Commit, last: int) -> None:
        """Undo the transactions after `last`, once. Lines that nobody could read are of none, and stay."""
        with self.table.lock():
            if (before := self.without(undoing, last)) is not None:
                noted = Commit(undoing.note, undoing.txn, undoing.note)
                self.table.overwrite(self._with_unread(before), noted, [])

    def forgettable(self, run_seq: int, since: int | None = None) -> tuple[tuple[str, Mapping[str, str]], ...]:
        """Of runs up to this one: which rows may go, and which may lose the event itself.

        since: the time in microseconds before which no event is in a session that is left; None: nobody knows.

        Rows of events without a time may go, but where wider columns may give them one, or an update may wait that has
        taken it away. The others stay, as with `late_events: drop`: key, time and hash say which events the sessions
        are made without. A line that nobody could read has no run, and stays.
        """
        waits = (C.col(C.REASON) == CORRECTION) & (C.col(C.KEPT) == IN)
        goes = self._times_are_columns and self.table.read().where(waits).isEmpty()
        lasts = KEPT_OUT if goes else sorted({*KEPT_OUT, NULL_TIME})
        old, reasons = f"{C.RUN_SEQ} <= {run_seq}", ", ".join(f"'{reason}'" for reason in lasts)
        gone = f"{C.REASON} = '{IGNORED_DELETE}' AND {C.EVENT_TIME} < timestamp_micros({since})"
        stays = f"({C.REASON} IN ({reasons}) OR {C.EVENT_TIME} IS NOT NULL)"
        return (
            *(() if since is None else ((f"{old} AND {gone}", dict[str, str]()),)),
            (f"{old} AND NOT {stays}", {}),
            (f"{old} AND {stays} AND {C.KEPT} = '{OUT}' AND {C.EVENT} IS NOT NULL", {C.EVENT: "NULL"}),
        )

    def write(self, rejected: DataFrame | None, gone: DataFrame | None, manifest: Manifest, commit: Commit) -> None:
        """Add the rejected events of a run and remove those that the source no longer has, once.

        gone: rows of this table. Either may be None.
        """
        new = None if rejected is None else _of_run(rejected, manifest)
        if gone is None:
            if new is not None:
                self.table.append(new, commit)
            return
        old = gone.withColumn(C.CHANGE, F.lit("delete"))
        self.table.merge(
            old if new is None else old.unionByName(new.withColumn(C.CHANGE, F.lit("insert"))),
            " AND ".join(f"t.{name} = s.{name}" for name in (C.EVENT_HASH, C.ORDINAL, C.RUN_SEQ))
            + f" AND s.{C.CHANGE} = 'delete'",
            commit,
            delete_when=f"s.{C.CHANGE} = 'delete'",
        )

    def write_anew(self, rejected: DataFrame, stay: DataFrame | None, manifest: Manifest, commit: Commit) -> None:
        """Put the rejected events of a rebuild in the place of all rows, with the columns of its rule, once.

        stay: rows with these columns that outlast it, or None. So do lines that nobody could read.
        """
        rows = _of_run(rejected, manifest)
        if stay is not None:
            rows = rows.unionByName(stay)
        self.table.overwrite(self._with_unread(rows), commit, [])

    def _with_unread(self, rows: DataFrame) -> DataFrame:
        """The rows, and those of the table that are of no run and no key: lines that nobody could read."""
        lines = self.table.read().where(C.col(C.RUN_SEQ).isNull())
        origin = (C.SOURCE,) if self.config.sources and C.SOURCE in lines.columns else ()
        unread = lines.select(*C.cols((*origin, *AFTER_KEY)))
        return rows.unionByName(unread, allowMissingColumns=True)


def _kinds(columns: T.StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in columns.fields}


def _of_run(rejected: DataFrame, manifest: Manifest) -> DataFrame:
    """Rows with the columns that tell which run has added them."""
    return rejected.withColumns({C.RUN_ID: F.lit(manifest.run_id), C.RUN_SEQ: F.lit(manifest.run_seq).cast("bigint")})


def rejected_schema(config: Config, source_schema: T.StructType) -> T.StructType:
    """The columns of rejected_events. source_schema: for the types of the key columns, those it has not among them."""
    types = {f.name.lower(): f.dataType for f in source_schema.fields}
    keys = [T.StructField(name, types.get(name.lower(), T.StringType())) for name in config.source.key]
    origin = [T.StructField(C.SOURCE, T.StringType())] if config.sources else []
    return T.StructType([*keys, *origin, *[T.StructField(name, kind) for name, kind in AFTER_KEY.items()]])
