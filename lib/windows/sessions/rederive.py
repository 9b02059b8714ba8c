"""Rederive: sessions recomputed from events, where merging what is stored cannot give them.

Affected intervals of a key and all existing sessions of it in range go through *islands*; every island that holds an
affected interval is recomputed from the accepted events in it, and replaces the sessions in it. One closure, no
iteration. Serves amended late events, corrections, chains beyond `max_duration`, revived sessions, backfill.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import AMENDED, CORRECTED, WITHDRAWN
from lib.admission.past import aliased, same_as_aliased, without_aliases
from lib.aggregates.binding import Aggregate
from lib.rule import Rule
from lib.time.watermarks import WatermarkState
from lib.windows.sessions.fold import fold
from lib.windows.sessions.intervals import arriving, merge_islands
from lib.windows.sessions.islands import mark_islands
from lib.windows.sessions.lifecycle import salted, settle, table_columns
from lib.windows.sessions.max_duration import walk

MERGE, APART, REDO = "merge", "apart", "redo"
ROLE = "__role"
OLD = "__old"
SAME_AS_BEFORE = (C.RUN_ID, C.SUPERSEDES, C.STATE)  # say how a row came about, not what it is


@dataclass(frozen=True)
class Redone:
    """Islands recomputed: `rows` as `lifecycle.settle` makes them, that differ from the table; `ids` that are gone."""

    rows: DataFrame
    gone: DataFrame


def mark_roles(intervals: DataFrame, rule: Rule) -> DataFrame:
    """Intervals with their island and what becomes of it.

    `redo`: the island holds an affected interval, absorbs a final session, or is a chain longer than `max_duration`
    with something new; of a chain only what follows the session that holds the earliest change. `apart`: the
    untouched rest of such a chain, each session for itself. `merge`: all others.

    In: what `sessions.new_intervals`, `live_intervals` and `final_intervals` return, together.
    Out: the same, `__island`, `__role` STRING and, of islands to redo, `__low` and `__high` BIGINT (inclusive).
    """
    by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(C.START, C.END)
    marked = mark_islands(intervals, rule).withColumn("__n", F.row_number().over(by_time))
    island = Window.partitionBy(*C.cols(rule.key), C.col(C.ISLAND))
    existing, start = C.col(C.LIVE).isNotNull(), C.col(C.START)
    affected = F.coalesce(C.col(C.VERDICT).isin(AMENDED, CORRECTED, WITHDRAWN), F.lit(False))
    final = F.coalesce(C.col(C.LIVE)[C.IS_FINAL], F.lit(False))
    first = F.min(F.when(~existing, start)).over(island)
    seen = marked.withColumns(
        {
            "__first": first,
            "__affected": F.max(affected | final).over(island) & first.isNotNull(),
            "__from": F.min(start).over(island),
            C.HIGH: F.max(C.col(C.END)).over(island),
        }
    )
    long = F.lit(False)
    if rule.max_duration is not None:
        long = C.col(C.HIGH) - F.col("__from") > rule.max_duration
        before = F.max(F.when(existing & (start <= F.col("__first")), start)).over(island)
        seen = seen.withColumns({"__long": long, "__from": F.least(before, F.col("__first"))})
        long = F.col("__long")
    redo = F.col("__first").isNotNull() & (F.col("__affected") | long)
    role = (
        F.when(redo & (~existing | (start >= F.col("__from"))), REDO)
        .when(existing & (redo | long), APART)
        .otherwise(MERGE)
    )
    roles = seen.withColumn(ROLE, role)
    apart = F.when(C.col(ROLE) == APART, -F.col("__n").cast("bigint")).otherwise(C.col(C.ISLAND))
    return roles.withColumns({C.ISLAND: apart, C.LOW: F.when(C.col(ROLE) == REDO, F.col("__from"))}).drop(
        "__first", "__affected", "__from", "__n", "__long"
    )


def role_columns() -> dict[str, Column]:
    """Aggregate columns over `mark_roles`: how many intervals to redo."""
    return {REDO: F.count_if(C.col(ROLE) == REDO)}


def to_merge(marked: DataFrame) -> DataFrame:
    """The intervals that merge as they are; final sessions that nothing has touched stay as they are."""
    final = F.coalesce(C.col(C.LIVE)[C.IS_FINAL], F.lit(False))
    return marked.where((C.col(ROLE) != REDO) & ~final).drop(ROLE, C.LOW, C.HIGH)


def to_redo(marked: DataFrame, rule: Rule) -> DataFrame:
    """The islands to recompute: the key columns, `__range` (its number), `__low`, `__high`, `__old` (its sessions)."""
    redo = marked.where(C.col(ROLE) == REDO)
    old = F.struct(C.col(C.LIVE), C.col(C.END))
    grouped = redo.groupBy(*C.cols(rule.key), C.col(C.ISLAND).alias(C.RANGE))
    return grouped.agg(
        F.min(C.col(C.LOW)).alias(C.LOW),
        F.max(C.col(C.HIGH)).alias(C.HIGH),
        F.collect_list(F.when(C.col(C.LIVE).isNotNull(), old)).alias(OLD),
    )


def within_ranges(events: DataFrame, ranges: DataFrame, rule: Rule) -> DataFrame:
    """The events that lie in a range of their key, with its `__range`."""
    named = aliased(ranges.select(*C.cols((*rule.key, C.RANGE, C.LOW, C.HIGH))), rule.key)
    inside = same_as_aliased(rule.key) & C.col(C.US).between(C.col(C.LOW), C.col(C.HIGH))
    return without_aliases(events.join(F.broadcast(named), inside).drop(C.LOW, C.HIGH))


def rederive(
    events: DataFrame,
    ranges: DataFrame,
    rule: Rule,
    clocks: tuple[WatermarkState, WatermarkState],
    aggregates: tuple[Aggregate, ...],
) -> DataFrame:
    """The sessions of accepted events in ranges, as `lifecycle.settle` makes them.

    In: what `within_ranges` returns, of the accepted set; what `to_redo` returns; the clock before and after the run.
    Out: rows with `__absorbed` (the sessions of the table whose time they overlap), `__fresh` and `__range`.
    """
    by, (before, clock) = (C.RANGE,), clocks
    whole = rule.max_duration is None
    folded = arriving(fold(events, rule, aggregates, by=by, fine=not whole), rule, clock.now)
    marked = mark_islands(folded, rule, by=by) if whole else walk(folded, rule, by=by)
    merged = merge_islands(marked, rule, aggregates, by=by)
    old = aliased(ranges.select(*C.cols((*rule.key, C.RANGE, OLD))), (*rule.key, C.RANGE))
    overlapping = F.filter(
        C.col(OLD), lambda row: (row[C.LIVE][C.START] <= C.col(C.END)) & (row[C.END] >= C.col(C.START))
    )
    joined = merged.join(F.broadcast(old), same_as_aliased((*rule.key, C.RANGE)))
    rows = without_aliases(joined).withColumn(C.ABSORBED, F.transform(overlapping, lambda row: row[C.LIVE])).drop(OLD)
    settled = settle(salted(rows, rule, before), rule, clock, aggregates)
    mine = Window.partitionBy(*C.cols(rule.key), C.col(C.RANGE))
    stay = F.collect_set(C.col(C.SESSION_ID)).over(mine)
    named = settled.withColumn("__stay", stay)
    vanished = F.filter(C.col(C.SUPERSEDES), lambda i: ~F.array_contains(F.col("__stay"), i))
    return named.withColumn(C.SUPERSEDES, vanished).drop("__stay")


def redone(
    rows: DataFrame, ranges: DataFrame, table: DataFrame | None, rule: Rule, aggregates: tuple[Aggregate, ...]
) -> Redone:
    """What of rederived rows is new to the table, and which ids it loses.

    table: the rows of the sessions table that may be among `__old`; None: all rows are new to it.
    """
    names = tuple(n for n in table_columns(rule, aggregates) if n not in SAME_AS_BEFORE)
    if table is None:
        return Redone(rows, _gone(rows, ranges))
    before = table.select(*[C.col(n).alias(f"__was_{n}") for n in names])
    same_id = C.col(C.SESSION_ID) == C.col(f"__was_{C.SESSION_ID}")
    # The few rows of the table that have these ids are picked out first: to join them all would be to sort them all.
    before = before.join(F.broadcast(rows.select(C.col(C.SESSION_ID))), same_id, "left_semi")
    joined = rows.join(before, same_id, "left")
    types = {f.name: f.dataType.typeName() for f in rows.schema.fields}
    kept = F.lit(True)
    for name in names:
        kept = kept & same_value(C.col(name), C.col(f"__was_{name}"), types.get(name))
    changed = joined.where(~kept).drop(*[f"__was_{n}" for n in names])
    return Redone(changed, _gone(rows, ranges))


def _gone(rows: DataFrame, ranges: DataFrame) -> DataFrame:
    old = ranges.select(F.explode(OLD).alias("row")).select(
        F.col("row")[C.LIVE][C.SESSION_ID].alias("__id"),
        F.col("row")[C.LIVE][C.IS_FINAL].alias(C.WAS_FINAL),
        F.col("row")[C.LIVE][C.START].alias(C.OLD_START),
    )
    gone = old.join(rows.select(C.col(C.SESSION_ID)), F.col("__id") == C.col(C.SESSION_ID), "left_anti")
    return gone.withColumnRenamed("__id", C.SESSION_ID)


def same_value(one: Column, other: Column, type_name: str | None, within: float = 1e-9) -> Column:
    """Whether two results are the same; floats nearly, since a sum depends on the order in its last digits."""
    if type_name == "map":
        one, other = F.to_json(one), F.to_json(other)
    if type_name in ("double", "float") or within > 1e-9:
        near = F.abs(one - other) <= within * F.greatest(F.abs(one), F.abs(other), F.lit(1.0))
        return one.eqNullSafe(other) | F.coalesce(near, F.lit(False))
    return one.eqNullSafe(other)
