"""Totals over all runs: what a monitoring system wants to know."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from lib import columns as C
from tables.manifest import Manifest
from tables.runs import EVENTS, FILES, SESSIONS
from tables.table_set import TableSet

SUMMED = (*EVENTS, *[f"sessions_{name}" for name in SESSIONS], *FILES)


@dataclass(frozen=True)
class Totals:
    """Sums over all runs of the ledger, so that they only grow; the last run; and the keys that are live now.

    runs: by mode. rejected, seconds: by reason, by phase.
    keys: those with a session that may still change; idle_keys: those of them without an open one.
    last_run: its row of the ledger, times in microseconds.
    """

    runs: Mapping[str, int]
    sums: Mapping[str, int]
    rejected: Mapping[str, int]
    seconds: Mapping[str, float]
    keys: int
    idle_keys: int
    manifest: Manifest | None
    last_run: Mapping[str, Any] | None


def read_totals(tables: TableSet) -> Totals:
    """From the ledger and the live rows, in a second or so."""
    ledger, last = tables.runs.table.read(), tables.runs.last(1)
    live = tables.sessions.table.read().where(~C.col(C.IS_FINAL))
    is_open = F.bool_or(C.col(C.STATUS) == "open").alias("is_open")
    by_key = live.groupBy(*C.cols(tuple(tables.config.source.key)), F.lit(0).alias("__any")).agg(is_open)
    keys = by_key.agg(F.count(F.lit(1)), F.count_if(~C.col("is_open"))).collect()[0]
    return Totals(
        runs={row["mode"]: row["count"] for row in ledger.groupBy("mode").count().collect()},
        sums=tables.runs.sums(SUMMED),
        rejected=_summed(ledger, "rejected"),
        seconds=_summed(ledger, "seconds"),
        keys=keys[0],
        idle_keys=keys[1],
        manifest=tables.sessions.position().manifest,
        last_run=last[0] if last else None,
    )


def _summed(ledger: Any, name: str) -> dict[str, Any]:
    """A map column, summed by its keys."""
    rows = ledger.select(F.explode(name)).groupBy("key").agg(F.sum("value").alias("value"))
    return {row["key"]: row["value"] for row in rows.orderBy("key").collect()}
