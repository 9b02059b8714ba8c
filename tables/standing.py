"""Where the tables stand, in figures: by Spark, or without it, to the same values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from lib import columns as C
from lib.config import Config
from lib.errors import SessionizerError
from tables.delta import BYTES_WRITTEN, Entry
from tables.lake import Lake
from tables.local import LocalLake, NeedsSpark
from tables.manifest import Manifest
from tables.runs import EVENTS, TIMES
from tables.sessions import position_of

SMALL_BYTES, SMALL_LIVE = 32 << 20, 200_000  # compressed bytes of new events, and live rows: what counts as little


@dataclass(frozen=True)
class Standing:
    """What the tables say. Times: microseconds.

    behind: commits of the source after the last one consumed. totals: sums over the ledger, by its column.
    last_runs: rows of the ledger, newest first.
    """

    manifest: Manifest | None
    latest_version: int
    behind: Sequence[Entry]
    by_status: Mapping[str, int]
    runs: int
    totals: Mapping[str, int]
    last_runs: Sequence[Mapping[str, Any]]


def standing(lake: Lake, last_runs: int) -> Standing:
    """By Spark: any table."""
    lake.require()
    manifest = lake.sessions.position().manifest
    latest = lake.events.table.version
    counts = lake.sessions.table.read().groupBy(C.STATUS).count().collect()
    ledger = lake.runs.table.read()
    sums = ledger.agg(F.count(F.lit(1)).alias("runs"), *[F.sum(name).alias(name) for name in EVENTS]).collect()[0]
    in_micros = [F.unix_micros(name).alias(name) if name in TIMES else C.col(name) for name in ledger.columns]
    last = ledger.orderBy(F.desc(C.RUN_SEQ)).limit(last_runs).select(*in_micros).collect()
    return Standing(
        manifest,
        latest,
        list(lake.events.table.history(_waiting(manifest, latest))),
        {row[C.STATUS]: row["count"] for row in counts},
        sums["runs"],
        {name: sums[name] or 0 for name in EVENTS},
        [row.asDict() for row in last],
    )


def local_standing(lake: LocalLake, last_runs: int) -> Standing:
    """Without Spark. Errors: NeedsSpark."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # noqa: PLC0415

    lake.require()
    manifest = position_of(lake.sessions).manifest
    latest = lake.events.version
    try:
        sessions, ledger = lake.sessions.dataset(), lake.runs.dataset().to_table()
        live = sessions.to_table(columns=[C.STATUS], filter=~pc.field(C.IS_FINAL))[C.STATUS]  # history stays closed
        final = sessions.count_rows(filter=pc.field(C.IS_FINAL))
    except (OSError, pa.ArrowException) as error:
        raise NeedsSpark(f"a file cannot be read without it ({str(error).splitlines()[0]})") from error
    by_status = {row["values"]: row["counts"] for row in live.value_counts().to_pylist()}
    for name in TIMES:  # as numbers, which know years beyond 9999
        ledger = ledger.set_column(ledger.schema.get_field_index(name), name, ledger[name].cast(pa.int64()))
    last = ledger.sort_by([(C.RUN_SEQ, "descending")]).slice(0, last_runs)
    return Standing(
        manifest,
        latest,
        list(lake.events.history(_waiting(manifest, latest))),
        {**by_status, "final": final},
        ledger.num_rows,
        {name: pc.sum(ledger[name]).as_py() or 0 for name in EVENTS},
        last.to_pylist(maps_as_pydicts="strict"),
    )


def _waiting(manifest: Manifest | None, latest: int) -> int:
    """How many versions of the source no run has read; none of them is looked at before the first run."""
    consumed = manifest.source_to_version if manifest else None
    return 0 if consumed is None else max(latest - consumed, 0)


def is_small(config: Config) -> bool:
    """Whether the next run has little to do, as far as the logs tell at once, without Spark."""
    try:
        lake = LocalLake(config)
        manifest = position_of(lake.sessions).manifest
        if manifest is None or manifest.live_sessions > SMALL_LIVE:
            return False
        behind = lake.events.history(_waiting(manifest, lake.events.version))
        return sum(entry.metric(BYTES_WRITTEN) for entry in behind) < SMALL_BYTES
    except (NeedsSpark, SessionizerError):
        return False
