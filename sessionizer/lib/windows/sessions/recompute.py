"""Recompute: sessions made again from events, where merging what is stored cannot give them.

Affected intervals of a key and all existing sessions of it in range go through *islands*; every island that holds an
affected interval is recomputed from the accepted events in it, and replaces the sessions in it. One closure, no
iteration. Serves whatever adds or takes away events that final sessions have, and islands that are to be cut.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import ADDS, JOINS, LEAVES, AcceptedChanges
from sessionizer.lib.aggregates.binding import Aggregate
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.durations import EVER
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.windows.sessions.boundaries import must_be_cut, part_column
from sessionizer.lib.windows.sessions.intervals import LIVE_TYPE, apart, keeps_arrival
from sessionizer.lib.windows.sessions.islands import mark_islands

MERGE, ALONE, REDO = "merge", "alone", "redo"
ROLE = "__role"
OLD = "__old"
NEWS = "__news"
OWN_EDGES = "__own_edges"


def mark_roles(intervals: DataFrame, rule: Rule, facts: tuple[Aggregate, ...], changes: AcceptedChanges) -> DataFrame:
    """Intervals with their island and what becomes of it.

    `redo`: the island holds an affected interval, absorbs a final session, or is a chain that must be cut, with
    something new; of a chain only what follows the session that holds the earliest change. `alone`: the
    untouched rest of such a chain, each session for itself. `merge`: all others. facts: what tells of content.

    In: what `new_intervals`, `state_intervals` and `bare_intervals` return, together.
    Out: the same, `__island`, `__role` STRING and, of islands to redo, `__low` and `__high` BIGINT (inclusive).
    """
    identity = C.cols(apart(intervals, rule))
    by_time = Window.partitionBy(*identity).orderBy(C.START, C.END)
    marked = mark_islands(intervals, rule).withColumn("__n", F.row_number().over(by_time))
    island = Window.partitionBy(*identity, C.col(C.ISLAND))
    existing, start = C.col(C.LIVE).isNotNull(), C.col(C.START)
    affected = F.coalesce(C.col(C.EFFECT).isin(ADDS, LEAVES), F.lit(False))
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
    if rule.cuts:
        whole = F.struct(*[part for a in facts for part in a.merge(lambda function: function.over(island))])
        count = F.sum(C.col(C.COUNT)).over(island)
        seen = seen.withColumns({"__whole": whole if facts else F.lit(None), "__count_of_all": count})
        long = must_be_cut(
            rule,
            lambda name: F.col("__whole")[part_column(name)],
            F.col("__from"),
            C.col(C.HIGH),
            F.col("__count_of_all"),
        )
        # A session that shares its first time with the one before it is no place to begin at.
        ended = F.max(F.when(existing, C.col(C.END))).over(by_time.rowsBetween(Window.unboundedPreceding, -1))
        is_before = start < F.col("__first") if rule.by_content else start <= F.col("__first")
        begins = existing & is_before & F.coalesce(start > ended, F.lit(True))
        seen = seen.withColumns({"__long": long, "__begins": begins})
        before = F.max(F.when(F.col("__begins"), start)).over(island)
        if not rule.freezes or changes.again is None:  # else its sessions need not be those of a walk
            seen = seen.withColumn("__from", F.least(before, F.col("__first")))
        long = F.col("__long")
    redo = F.col("__first").isNotNull() & (F.col("__affected") | long)
    role = (
        F.when(redo & (~existing | (start >= F.col("__from"))), REDO)
        .when(existing & (redo | long), ALONE)
        .otherwise(MERGE)
    )
    roles = seen.withColumn(ROLE, role)
    lacks_rows = changes.before.forgotten is not None and isinstance(rule.gap, DynamicGap)
    if lacks_rows or spans_others_amid(rule):  # what is over there may be what ends a session before its reach
        last = C.col(C.REACH) if rule.gap_boundary == "joins" else C.col(C.REACH) - 1
        high = F.max(F.greatest(C.col(C.END), last)).over(island)
        if rule.freezes and not spans_others_amid(rule):  # others lie beside those of the main population alone
            apart_from_them = C.col(C.POPULATION).isNotNull() if C.POPULATION in intervals.columns else F.lit(False)
            high = F.when(apart_from_them, high).otherwise(C.col(C.HIGH))
        roles = roles.withColumn(C.HIGH, high)
    number = F.when(C.col(ROLE) == ALONE, -F.col("__n").cast("bigint")).otherwise(C.col(C.ISLAND))
    return roles.withColumns({C.ISLAND: number, C.LOW: F.when(C.col(ROLE) == REDO, F.col("__from"))}).drop(
        *("__first", "__affected", "__from", "__n", "__long", "__whole", "__count_of_all", "__begins")
    )


def role_columns() -> dict[str, Column]:
    """Aggregate columns over `mark_roles`: how many intervals to redo."""
    return {REDO: F.count_if(C.col(ROLE) == REDO)}


def to_merge(marked: DataFrame) -> DataFrame:
    """The intervals that merge as they are; final sessions that nothing has touched stay as they are."""
    final = F.coalesce(C.col(C.LIVE)[C.IS_FINAL], F.lit(False))
    return marked.where((C.col(ROLE) != REDO) & ~final).drop(ROLE, C.LOW, C.HIGH)


def to_redo(marked: DataFrame, rule: Rule) -> DataFrame:
    """The islands to recompute.

    Out: key and population, `__range` (its number), `__low`, `__high`, `__old` (its sessions), `__news` (the spans of
    events that have come, where rows remember arrivals), by content `__first_ids` (of the sessions that begin with it),
    `__own_edges` (when its sessions and what has come to it begin and end, each as often as that is so), where others
    may lie in its time.
    """
    redo = marked.where(C.col(ROLE) == REDO)
    old = F.struct(C.col(C.LIVE), C.col(C.END))
    number = C.col(C.ISLAND)
    if C.POPULATION in marked.columns:  # another one for each population
        number = number + F.coalesce(C.col(C.POPULATION), F.lit(0)) * 2**32
    grouped = redo.groupBy(*C.cols(apart(marked, rule)), number.alias(C.RANGE))
    come = F.when(C.col(C.EFFECT).isin(JOINS, ADDS), F.struct(C.col(C.START), C.col(C.END)))
    return grouped.agg(
        F.min(C.col(C.LOW)).alias(C.LOW),
        F.max(C.col(C.HIGH)).alias(C.HIGH),
        F.collect_list(F.when(C.col(C.LIVE).isNotNull(), old)).alias(OLD),
        *([F.collect_list(come).alias(NEWS)] if keeps_arrival(rule) else []),
        *([_first_ids().alias(C.FIRST_IDS)] if rule.by_content else []),
        *([_own_edges().alias(OWN_EDGES)] if may_span_others(rule) else []),
        *(_place() if rule.freezes else []),
    )


def edges_of_each() -> Column:
    """When an interval begins and ends: once, where both are one time."""
    start, end = C.col(C.START), C.col(C.END)
    return F.when(start < end, F.array(start, end)).otherwise(F.array(start))


def _own_edges() -> Column:
    stays = C.col(C.LIVE).isNotNull() | (C.col(C.EFFECT) != LEAVES)
    return F.flatten(F.collect_list(F.when(stays, edges_of_each())))


def _place() -> list[Column]:
    """Where an island lies, and how many events it holds after the run."""
    count = F.when(C.col(C.LIVE).isNull() & (C.col(C.EFFECT) == LEAVES), -C.col(C.COUNT)).otherwise(C.col(C.COUNT))
    known = F.when(C.col(C.START) > -EVER, C.col(C.START))  # of what reaches back over what was forgotten it is not
    edges = {C.START: F.min(known), C.END: F.max(C.col(C.END)), C.REACH: F.max(C.col(C.REACH))}
    return [*(edge.alias(name) for name, edge in edges.items()), F.sum(count).alias(C.COUNT)]


def to_cut(islands: DataFrame, rule: Rule) -> DataFrame:
    """The same of islands, merged as they are, that must be cut, where the table has no session."""
    places = {C.RANGE: C.START, C.LOW: C.START, C.HIGH: C.END}
    return islands.select(
        *C.cols(rule.key),
        *[C.col(source).alias(name) for name, source in places.items()],
        F.array().cast(f"array<struct<{C.LIVE}:{LIVE_TYPE},{C.END}:bigint>>").alias(OLD),
        *([F.array(F.struct(C.col(C.START), C.col(C.END))).alias(NEWS)] if keeps_arrival(rule) else []),
    )


def _first_ids() -> Column:
    """The ids of the sessions that begin when the island does."""
    begins = C.col(C.LIVE).isNotNull() & (C.col(C.START) == C.col(C.LOW))
    return F.collect_set(F.when(begins, C.col(C.LIVE)[C.SESSION_ID]))


def spans_others_amid(rule: Rule) -> bool:
    """Whether sessions may lie amid the reach of one that content has ended: by gaps of their own, over before it."""
    return rule.by_content and isinstance(rule.gap, DynamicGap)


def may_span_others(rule: Rule) -> bool:
    """Whether final sessions may lie in the time of an island, and out of its reach.

    By gaps of their own they end before what begins ahead of them; some stay as they are whatever comes near them.
    """
    by_gap = rule.max_duration is not None and isinstance(rule.gap, DynamicGap) and not rule.by_content
    return by_gap or rule.freezes


def with_absorbed(merged: DataFrame, ranges: DataFrame, rule: Rule) -> DataFrame:
    """Recomputed sessions with `__absorbed`: the sessions of the table whose time they overlap.

    By content with `__beyond`, too: the ids of those that share a microsecond at an edge, and no more.

    Where nothing has come to them, `__arrived` stays what these remember.
    """
    identity = (*apart(ranges, rule), C.RANGE)

    def overlaps(start: Column, end: Column) -> Column:
        return (start <= C.col(C.END)) & (end >= C.col(C.START))

    names = (*identity, OLD, *((NEWS,) if NEWS in ranges.columns else ()))
    overlapping = F.filter(OLD, lambda row: overlaps(row[C.LIVE][C.START], row[C.END]))
    met = joined(merged, F.broadcast(ranges.select(*C.cols(names))), identity, "inner")
    met = met.withColumn(C.ABSORBED, F.transform(overlapping, lambda row: row[C.LIVE]))
    if rule.by_content:
        met = met.withColumn(C.BEYOND, F.filter(overlapping, _is_beyond)[C.LIVE][C.SESSION_ID])
    if C.ARRIVED in met.columns:
        before = F.array_max(C.col(C.ABSORBED)[C.ARRIVED])
        if rule.by_content:
            before = F.coalesce(_arrival(overlapping), before)
        is_new = F.exists(NEWS, lambda span: overlaps(span[C.START], span[C.END]))
        if not spans_others_amid(rule):  # else it is another one, and stays as it is
            is_new = is_new | (F.size(C.col(C.ABSORBED)) == 0)
        met = met.withColumn(C.ARRIVED, F.when(is_new, C.col(C.ARRIVED)).otherwise(before))
        met = met.withColumn(C.LAST_ARRIVAL, F.array_max(C.col(C.ABSORBED)[C.LAST_ARRIVAL]))
    return met.drop(OLD, NEWS)


def _arrival(rows: Column) -> Column:
    """When the last event of a session came that content cuts, by the old rows that overlap it: null if none tells.

    All events of rows that lie in it by more than a microsecond may be its own. Of the microsecond at either edge all
    have come to each row that lies over it: no later than the least of these says.
    """
    start, end = C.col(C.START), C.col(C.END)

    def arrived(of: Callable[[Column], Column]) -> Column:
        return F.transform(F.filter(rows, of), lambda row: row[C.LIVE][C.ARRIVED])

    def over(edge: Column) -> Callable[[Column], Column]:
        return lambda row: edge.between(row[C.LIVE][C.START], row[C.END])

    within = arrived(lambda row: (row[C.LIVE][C.START] < end) & (row[C.END] > start))
    edges = F.array(F.array_min(arrived(over(start))), F.array_min(arrived(over(end))))
    return F.array_max(F.concat(within, edges))


def _is_beyond(row: Column) -> Column:
    """Whether a session of the table lies beyond a microsecond that both share."""
    start, end, other = C.col(C.START), C.col(C.END), row[C.LIVE][C.START]
    return (start < end) & (other < row[C.END]) & ((row[C.END] == start) | (other == end))


def old_rows(ranges: DataFrame) -> DataFrame:
    """The sessions of the table in the ranges, as `__live` structs in `row`."""
    return ranges.select(F.explode(OLD).alias("row")).select(F.col("row")[C.LIVE].alias("row"))
