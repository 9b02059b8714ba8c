"""The ledgers: runs of sessions, window_runs of sliding windows; one row a run."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.tables.delta import STATISTICS, Commit, Table, arrow_schema
from sessionizer.tables.manifest import Manifest

TIMES = ("started_at", "finished_at", "watermark_before", "watermark_after", "horizon_before", "horizon_after")
EVENTS = ("events_read", "accepted", "late", "invalid", "duplicates", "amended")
CHANGES = {
    "sessions": ("created", "extended", "merged", "split", "closed", "finalised", "deleted"),
    "windows": ("created", "updated", "finalised", "deleted"),
}
FILES = ("files_read", "bytes_read", "files_written", "bytes_written")
SOURCES = "sources"  # up to which version each of several has been read
BY_REASON = T.MapType(T.StringType(), T.LongType())


def change_columns(of: str) -> tuple[str, ...]:
    """What the ledger of sessions, or of windows, counts of their rows."""
    return tuple(f"{of}_{name}" for name in CHANGES[of])


def ledger_schema(of: str, *, several: bool = False) -> T.StructType:
    """The columns of the ledger of sessions, or of windows; several: of more than one source."""
    longs = (*EVENTS, "rejected", *change_columns(of), f"live_{of}")
    return T.StructType(
        [
            T.StructField(C.RUN_ID, T.StringType()),
            T.StructField(C.RUN_SEQ, T.LongType()),
            T.StructField("mode", T.StringType()),
            T.StructField("started_at", T.TimestampType()),
            T.StructField("finished_at", T.TimestampType()),
            T.StructField("source_from_version", T.LongType()),
            T.StructField("source_to_version", T.LongType()),
            T.StructField(f"{of}_version", T.LongType()),
            *[T.StructField(name, T.TimestampType()) for name in TIMES[2:]],
            T.StructField("rule_fingerprint", T.StringType()),
            *[T.StructField(name, BY_REASON if name == "rejected" else T.LongType()) for name in longs],
            T.StructField("seconds", T.MapType(T.StringType(), T.DoubleType())),
            *[T.StructField(name, T.LongType()) for name in FILES],
            T.StructField("product_version", T.StringType()),
            *([T.StructField(SOURCES, BY_REASON)] if several else []),
        ]
    )


@dataclass(frozen=True)
class Timing:
    """What only the process that ran can tell; a repaired run has none."""

    finished_at: int | None = None
    seconds: Mapping[str, float] | None = None
    files_written: int | None = None
    bytes_written: int | None = None


class Runs:
    """A ledger. of: `sessions` or `windows`; several: of more than one source."""

    def __init__(self, table: Table, of: str, several: bool = False) -> None:
        self.table = table
        self.of = of
        self.several = several

    def create_if_missing(self) -> bool:
        """Make the table, empty, unless it is there; whether it was made."""
        schema = ledger_schema(self.of, several=self.several)
        return self.table.create_if_missing(schema, {STATISTICS: f"{C.RUN_SEQ},started_at"})

    def last_before(self, us: int) -> int | None:
        """The run_seq of the last run that began before this time (microseconds, exclusive), or None."""
        early = self.table.read().where(F.unix_micros("started_at") < us)
        return early.agg(F.max(C.RUN_SEQ)).collect()[0][0]  # type: ignore[no-any-return]

    def first(self) -> int | None:
        """The least run_seq, or None."""
        return self.table.read().agg(F.min(C.RUN_SEQ)).collect()[0][0]  # type: ignore[no-any-return]

    def before(self, run_seq: int) -> dict[str, int] | None:
        """Of several sources how far each was read by the run before this one; empty of one. None: there was none."""
        rows = self.table.read().where(C.col(C.RUN_SEQ) < run_seq).orderBy(F.desc(C.RUN_SEQ)).limit(1)
        found = [row.asDict() for row in rows.collect()]
        return (found[0].get(SOURCES) or {}) if found else None

    def last(self, number: int) -> list[dict[str, Any]]:
        """The rows of so many last runs, newest first; times in microseconds."""
        rows = self.table.read()
        in_micros = [F.unix_micros(name).alias(name) if name in TIMES else C.col(name) for name in rows.columns]
        return [row.asDict() for row in rows.orderBy(F.desc(C.RUN_SEQ)).limit(number).select(*in_micros).collect()]

    def since(self, run_seq: int) -> list[tuple[int, str]]:
        """Number and id of each run from this number on."""
        rows = self.table.read().where(C.col(C.RUN_SEQ) >= run_seq)
        return [(row[0], row[1]) for row in rows.select(C.RUN_SEQ, C.RUN_ID).collect()]

    def reasons(self, run_seq: int) -> set[str]:
        """For which reasons runs up to this one have rejected events."""
        rows = self.table.read().where(C.col(C.RUN_SEQ) <= run_seq)
        return {row[0] for row in rows.select(F.explode(F.map_keys("rejected"))).distinct().collect()}

    def sums(self, names: Sequence[str]) -> dict[str, int]:
        """Of these columns over all runs; and `runs`, how many there are."""
        of_all = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names]
        return self.table.read().agg(F.count(F.lit(1)).alias("runs"), *of_all).collect()[0].asDict()

    def append(self, manifest: Manifest, timing: Timing, commit: Commit) -> None:
        """Add a run's row, once."""
        import pyarrow as pa  # noqa: PLC0415

        has_sources = SOURCES in self.table.schema.names  # it may have been begun with one source, or with several
        row = {SOURCES: None} | ledger_row(manifest, timing, self.of)
        schema = arrow_schema(ledger_schema(self.of, several=has_sources))
        self.table.append_few(pa.Table.from_pylist([row], schema), commit)


def ledger_row(manifest: Manifest, timing: Timing, of: str = "sessions") -> dict[str, object]:
    """The row of the ledger for a manifest; times in microseconds."""
    known = {
        **dict(manifest),
        **{name: manifest.told(name) for name in TIMES[2:]},
        "source_from_version": None if manifest.read_no_events else manifest.source_from_version,
        f"{of}_version": manifest.sessions_version,
        f"live_{of}": manifest.live_sessions,
        **{name: manifest.events.get(name, 0) for name in EVENTS},
        **{f"{of}_{name}": manifest.sessions.get(name, 0) for name in CHANGES[of]},
        **asdict(timing),
        "rejected": dict(manifest.rejected),
        "files_read": manifest.source_files,
        "bytes_read": manifest.source_bytes,
        SOURCES: {name: one.to_version for name, one in manifest.sources.items()},
    }
    return {name: known[name] for name in ledger_schema(of, several=bool(manifest.sources)).names}
