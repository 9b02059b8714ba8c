"""Beside: final sessions in the time of what is recomputed, which stay as they are, and the events that are theirs."""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.bags import hashed
from sessionizer.lib.compute import Compute
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.spans import Spans, near_spans, overlapping
from sessionizer.lib.windows.sessions.intervals import apart, bare_intervals, main_population
from sessionizer.lib.windows.sessions.recompute import OLD, OWN_EDGES, edges_of_each

OTHERS, EDGES, OF = "__others", "__edges", "__of"


def beside_others(
    ranges: DataFrame, spans: Spans, places: Callable[[Spans], DataFrame], rule: Rule, compute: Compute
) -> tuple[DataFrame, Spans]:
    """The ranges with `__others`, if any has some, and where the events of them and of these lie.

    Which events are whose cannot be told where final sessions overlap, only how many are theirs: of a range and of all
    that overlap what overlaps it, and so on, which are read until no more come. places: makes those of the sessions
    that lie in spans of time.
    """
    while True:
        found, seen = compute.observed(with_others(ranges, places(spans), rule), {OTHERS: F.count(OTHERS)})
        if not seen[OTHERS]:
            return ranges, spans
        wider = spans_of(found, compute)
        if wider == spans or not rule.freezes:
            return found, wider
        spans = wider


def near_places(table: DataFrame, made: DataFrame | None, rule: Rule, spans: Spans) -> DataFrame:
    """Those of rows of the sessions table in these spans of time, and of what this run has made: `places_of` it."""
    rows = table.where(~C.col(C.IS_LATE) & overlapping(C.col(C.SESSION_START), C.col(C.SESSION_END), spans))
    found = places_of(bare_intervals(rows, rule), rule)
    return found if made is None else found.unionByName(made)


def places_of(sessions: DataFrame, rule: Rule) -> DataFrame:
    """Where sessions of the main population, or ranges of it, lie, and how many events they hold.

    Out: the key columns, `__start`, `__end`, `__reach`, `__count`; session_id of a row of the table, `__of` of a range.
    """
    main = sessions.where(C.col(C.POPULATION).isNull()) if C.POPULATION in sessions.columns else sessions
    names = C.cols((*rule.key, C.START, C.END, C.REACH, C.COUNT))
    known = C.col(C.LIVE)[C.SESSION_ID] if C.LIVE in sessions.columns else F.lit(None).cast("string")
    number = C.col(C.RANGE) if C.RANGE in sessions.columns else F.lit(None).cast("bigint")
    return main.select(*names, known.alias(C.SESSION_ID), number.alias(OF))


def untouched(table: DataFrame, ranges: DataFrame) -> DataFrame:
    """The rows of the table that are in no range."""
    gone = ranges.select(F.explode(F.col(OLD)[C.LIVE][C.SESSION_ID]).alias(C.SESSION_ID))
    return joined(table, F.broadcast(gone), (C.SESSION_ID,), "left_anti")


def with_others(ranges: DataFrame, places: DataFrame, rule: Rule) -> DataFrame:
    """The ranges with `__others`: where sessions lie in their time that are not of them, and stay as they are.

    Those that overlap are told together, also with such as lie beside the range, if they stay as they are whatever
    comes near them: when the first begins and the last ends, all times at which one does, as often as that is so, the
    farthest reach, the number of events.
    """
    identity = apart(ranges, rule)
    if C.POPULATION in identity:
        places = places.withColumn(C.POPULATION, F.lit(None).cast("bigint"))
    own = F.col(OLD)[C.LIVE][C.SESSION_ID].alias("__own")
    named = F.broadcast(ranges.select(*C.cols((*identity, C.RANGE, C.LOW, C.HIGH)), own))
    overlap = (C.col(C.START) <= C.col(C.HIGH)) & (C.col(C.END) >= C.col(C.LOW))
    met = joined(places, named, identity, "inner", None if rule.freezes else overlap)
    is_own = F.coalesce(F.array_contains("__own", C.col(C.SESSION_ID)), F.col(OF) == C.col(C.RANGE), F.lit(False))
    others = met.where(~is_own)
    of_range = (*identity, C.RANGE)
    by_time = Window.partitionBy(*C.cols(of_range)).orderBy(C.START, C.END)
    before = F.max(C.col(C.END)).over(by_time.rowsBetween(Window.unboundedPreceding, -1))
    told = others.withColumn("__ahead", F.when(C.col(C.START) > before, 1).otherwise(0))
    number = F.sum("__ahead").over(by_time.rowsBetween(Window.unboundedPreceding, 0))
    together = told.withColumn("__number", number).groupBy(*C.cols(of_range), "__number")
    groups = together.agg(
        F.bool_or(overlap).alias("__meets"),
        F.min(C.col(C.START)).alias(C.START),
        F.max(C.col(C.END)).alias(C.END),
        F.max(C.col(C.REACH)).alias(C.REACH),
        F.sum(C.col(C.COUNT)).alias(C.COUNT),
        F.flatten(F.collect_list(edges_of_each())).alias(EDGES),
    )
    met, place = groups.where("__meets"), F.struct(*C.cols((C.START, C.END, C.REACH, C.COUNT, EDGES)))
    return joined(ranges, met.groupBy(*C.cols(of_range)).agg(F.collect_list(place).alias(OTHERS)), of_range, "left")


def spans_of(ranges: DataFrame, compute: Compute) -> Spans:
    """Where the events to read lie."""
    low, high = C.col(C.LOW), C.col(C.HIGH)
    if OTHERS in ranges.columns:
        low = F.least(low, F.array_min(F.col(OTHERS)[C.START]))
        high = F.greatest(high, F.array_max(F.col(OTHERS)[C.END]))
    return near_spans([(row[0], row[1]) for row in compute.rows(ranges.select(low, high))])


def within_ranges(events: DataFrame, ranges: DataFrame, rule: Rule) -> DataFrame:
    """The accepted events that lie in a range of their key and population, with its `__range`.

    By content, with its `__low` and `__first_ids`, too.

    Those of other sessions in its time are left out: as many as these hold. Where more lie there, which ones are
    theirs is not known: one at each of their edges, those out of the range, others at their edges, of these such as
    reach no farther, the earliest; those at the edges of the range's own sessions, and of what has come to it, come
    last, and of each such edge the one that reaches farthest behind all.
    """
    identity = apart(ranges, rule)
    if C.POPULATION not in identity:
        events = main_population(events)
    if C.POPULATION in identity and C.POPULATION not in events.columns:
        events = events.withColumn(C.POPULATION, F.lit(None).cast("bigint"))
    kept = tuple(name for name in (OTHERS, C.FIRST_IDS) if name in ranges.columns)
    own = [_own_amid().alias(OWN_EDGES)] if OTHERS in kept else []
    named = F.broadcast(ranges.select(*C.cols((*identity, C.RANGE, C.LOW, C.HIGH, *kept)), *own))
    us = C.col(C.US)
    inside = us.between(C.col(C.LOW), C.col(C.HIGH))
    if OTHERS not in kept:
        met = joined(events, named, identity, "inner", inside)
        return met.drop(C.HIGH) if C.FIRST_IDS in kept else met.drop(C.LOW, C.HIGH)
    amid = F.filter(OTHERS, lambda place: us.between(place[C.START], place[C.END]))
    met = joined(events, named, identity, "inner", inside | F.coalesce(F.size(amid) > 0, F.lit(False)))
    placed, place = hashed(met).withColumn("__place", F.get(amid, F.lit(0))), F.col("__place")
    gap = C.col(C.GAP) if isinstance(rule.gap, DynamicGap) else F.lit(rule.gap)
    outside, at_edge = inside.asc(), F.array_contains(place[EDGES], us).desc()  # outside: not the range's own
    at_own = F.array_contains(OWN_EDGES, us).asc()
    reaches_no_farther, tie = us + gap <= place[C.REACH], (*C.cols(rule.order_by), C.col(C.JSON))
    of_place = (*C.cols((*identity, C.RANGE)), place[C.START])
    of_time = Window.partitionBy(*of_place, us)
    at_time = F.row_number().over(of_time.orderBy(reaches_no_farther.desc(), *tie))
    ahead, behind = _times(place[EDGES], us), _times(OWN_EDGES, us)  # of which each has an event
    told = {"__one": at_time <= ahead, "__own_one": at_time > F.count(F.lit(1)).over(of_time) - behind}
    placed = placed.withColumns(told)
    is_one = F.col("__one").desc(), F.col("__own_one").asc()
    likely = *is_one, outside, at_edge, at_own, reaches_no_farther.desc(), us, *tie
    number = F.row_number().over(Window.partitionBy(*of_place).orderBy(*likely))
    left = placed.withColumn("__number", number).where(place.isNull() | (F.col("__number") > place[C.COUNT]))
    return left.where(inside).select(*C.cols((*events.columns, C.RANGE)))


def _own_amid() -> Column:
    """The range's own edges in the time of others."""
    return F.filter(OWN_EDGES, lambda us: F.exists(OTHERS, lambda place: us.between(place[C.START], place[C.END])))


def _times(edges: Column | str, us: Column) -> Column:
    return F.size(F.filter(edges, lambda edge: edge == us))
