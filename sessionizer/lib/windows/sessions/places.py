"""Places: which rows of the table what comes and goes may touch, and where they lie."""

from collections.abc import Callable
from functools import partial, reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import ADDS, JOINS, LEAVES, AcceptedChanges, Again
from sessionizer.lib.canonical import session_id
from sessionizer.lib.compute import Compute, Figures
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.durations import EVER
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import timestamp
from sessionizer.lib.time.spans import near_spans
from sessionizer.lib.windows.sessions.boundaries import salt_of
from sessionizer.lib.windows.sessions.intervals import apart, bare_intervals, emptied
from sessionizer.lib.windows.sessions.islands import mark_islands

AT = "__at"


def may_touch(table: DataFrame, rule: Rule, low: int, high: int | None) -> DataFrame:
    """Rows that intervals within these times may touch; where there are cuts all that follow, too."""
    near = C.col(C.EXPIRES_AT) >= timestamp(low)
    if not rule.cuts and high is not None:
        near = near & (C.col(C.SESSION_START) <= timestamp(high))
    return table.where(near)


def places_again(  # noqa: PLR0913
    changes: AcceptedChanges,
    again: Again,
    table: DataFrame | None,
    rule: Rule,
    *,
    leaving: Callable[[DataFrame], DataFrame],
    now: int,
    compute: Compute,
) -> DataFrame:
    """What is made again: the places of the events of the span, and of sessions there, which may have lost theirs.

    They come as what leaves: nothing has arrived there. Final ones may lie within each other's gap, far on. leaving:
    makes them of events.
    """
    affected = leaving(again.of_keys(changes.accepted([(again.low, again.high - 1)]), rule.key))
    main = None if table is None else again.of_keys(table.where(~C.col(C.IS_LATE)), rule.key)
    if main is not None:
        touched = (C.col(C.SESSION_START) < timestamp(again.high)) & (C.col(C.SESSION_END) >= timestamp(again.low))
        affected = affected.unionByName(emptied(main.where(touched), rule, now), allowMissingColumns=True)
    edges = {"low": F.min(C.col(C.START)), "high": F.max(C.col(C.REACH))}
    affected, seen = compute.observed(affected, edges)
    beyond = None if rule.freezes else _lost_beyond(affected, changes, again, rule, leaving=leaving, compute=compute)
    far: Figures = {}
    if beyond is not None:
        beyond, far = compute.observed(beyond, edges)
        affected = affected.unionByName(beyond, allowMissingColumns=True)
    if main is None:
        return affected
    # What is accepted or gone with it may lie elsewhere: copies of its events.
    lows, highs = [seen["low"], far.get("low"), changes.low], [seen["high"], far.get("high"), changes.high]
    low = min((t for t in lows if t is not None), default=again.low)
    high = max((t for t in highs if t is not None), default=again.high)
    of_keys = affected.select(*C.cols(rule.key)).unionByName(changes.partials.select(*C.cols(rule.key))).distinct()
    near = joined(main, of_keys, rule.key, "left_semi") if rule.freezes else may_touch(main, rule, low, high)
    return affected.unionByName(bare_intervals(near, rule), allowMissingColumns=True)


def _lost_beyond(  # noqa: PLR0913
    places: DataFrame,
    changes: AcceptedChanges,
    again: Again,
    rule: Rule,
    *,
    leaving: Callable[[DataFrame], DataFrame],
    compute: Compute,
) -> DataFrame | None:
    """Places beyond the span that are of one session with what has no row in it; None: nothing there has none."""
    lone, number = compute.observed(_lone(places, changes, again, rule), {"lone": F.count(F.lit(1))})
    if not number["lone"]:
        return None
    keys = F.broadcast(lone.select(*C.cols(rule.key)).distinct())
    events = changes.accepted([(-EVER, again.low - 1), (again.high, EVER)])
    beyond = leaving(joined(events, keys, rule.key, "left_semi"))
    return _one_with(lone, joined(places, keys, rule.key, "left_semi"), beyond, rule)


def _lone(places: DataFrame, changes: AcceptedChanges, again: Again, rule: Rule) -> DataFrame:
    """Of the events in the span those that should have a row, and have none, and may be of one session with others.

    With what lies beyond the span, that is. Of a place its first and its last event are asked for, and whether it has a
    row at all. There are none where all is right: what has no row comes in, or its session is forgotten.
    """
    start, end, forgotten = C.col(C.START), C.col(C.END), changes.before.forgotten
    holds = places.where(C.col(C.COUNT) > 0)
    if isinstance(rule.gap, int):
        holds = holds.where((start <= again.low + rule.gap) | (C.col(C.REACH) >= again.high))
    elif forgotten is not None:  # by their own reach they may be older, and of one session with what is not
        island = Window.partitionBy(*C.cols((*rule.key, C.ISLAND)))
        told = mark_islands(holds, rule).withColumn("__last", F.max(C.REACH).over(island))
        holds = told.where(F.col("__last") >= forgotten).drop("__last", C.ISLAND)
    comes = changes.partials.where(C.col(C.EFFECT).isin(JOINS, ADDS))
    figures = {"__comes": F.sum(C.COUNT), "__comes_first": F.min(start), "__comes_last": F.max(end)}
    place = (*rule.key, C.BUCKET)
    coming = comes.groupBy(*C.cols(place)).agg(*[figure.alias(name) for name, figure in figures.items()])
    holds = joined(holds, coming, place, "left")
    rows = (*C.cols(rule.key), start.alias("__row_start"), end.alias("__row_end"))
    table = places.where(C.col(C.COUNT) == 0).select(*rows)
    found = list[DataFrame]()
    for first, last, is_old in (
        (start, start, ~start.eqNullSafe(F.col("__comes_first"))),
        (end, end, ~end.eqNullSafe(F.col("__comes_last"))),
        (start, end, C.col(C.COUNT) > F.coalesce("__comes", F.lit(0))),
    ):
        covers = (F.col("__row_start") <= last) & (F.col("__row_end") >= first)
        found.append(joined(holds.where(is_old), table, rule.key, "left_anti", covers).drop(*figures))
    return reduce(DataFrame.unionByName, found)


def _one_with(lone: DataFrame, places: DataFrame, beyond: DataFrame, rule: Rule) -> DataFrame:
    """Of places beyond the span those that lie within reach of the lone ones in it, or of others up to them."""
    kinds = ((places, False, False), (lone, True, False), (beyond, False, True))
    told = [of.withColumns({"__lone": F.lit(one), "__far": F.lit(far)}) for of, one, far in kinds]
    both = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), told)
    island = Window.partitionBy(*C.cols((*rule.key, C.ISLAND)))
    met = mark_islands(both, rule).withColumn("__met", F.max("__lone").over(island))
    return met.where(F.col("__met") & F.col("__far")).drop("__lone", "__far", "__met", C.ISLAND)


def unforgotten(intervals: DataFrame, forgotten: int, rule: Rule, *, is_again: bool) -> DataFrame:
    """Those of the table, and of the new ones what may concern them, or what is to come: not what lies before.

    Where cuts depend on all before them, what leaves before the mark makes the first session that is left anew,
    from its key's first event on: nobody knows any more where the chain began. So does an event from before the mark
    whose gap is its own, and reaches beyond it now. What is made again is whole, or, where cuts depend on all before
    them, begins with the first row that is left of those that lie over the mark.
    """
    existing, start = C.col(C.LIVE).isNotNull(), C.col(C.START)
    if is_again and not rule.freezes:
        island = Window.partitionBy(*C.cols((*apart(intervals, rule), C.ISLAND)))
        first = F.min(F.when(existing & (start < forgotten) & F.lit(rule.cuts), start)).over(island)
        told = mark_islands(intervals, rule).withColumns({"__first": first, "__last": F.max(C.REACH).over(island)})
        left = told.where(existing | ((F.col("__last") >= forgotten) & (C.col(C.END) >= F.coalesce("__first", start))))
        begins = F.when(existing, start).otherwise(F.greatest(start, "__first"))
        return left.withColumn(C.START, begins).drop(C.ISLAND, "__first", "__last")
    first = F.min(F.when(existing, start)).over(Window.partitionBy(*C.cols(apart(intervals, rule))))
    told = intervals.withColumn("__first", F.least(first, F.lit(forgotten)))
    if not is_again:
        is_before = start <= first if rule.by_content else start < first  # what begins it may begin nothing any more
        leaves = (C.col(C.EFFECT) == LEAVES) & is_before & (start < forgotten) & F.lit(rule.cuts)
        lasts = (C.col(C.EFFECT) == ADDS) & (start < F.col("__first")) & (C.col(C.REACH) >= F.col("__first"))
        reaches = ~existing & (leaves | (lasts & F.lit(isinstance(rule.gap, DynamicGap))))
        joins = reaches & leaves
        whole = {
            C.START: F.when(reaches, F.lit(-EVER)).otherwise(start),
            C.END: F.when(joins, F.greatest(C.col(C.END), first)).otherwise(C.col(C.END)),
            C.REACH: F.when(joins, F.greatest(C.col(C.REACH), first + 1)).otherwise(C.col(C.REACH)),
            C.COUNT: F.when(joins, F.lit(0)).otherwise(C.col(C.COUNT)),  # no row that is there held it
            "__first": F.when(reaches, F.lit(-EVER)).otherwise(F.col("__first")),
        }
        told = told.withColumns(whole)
    left = told.where(existing | (C.col(C.END) >= F.col("__first")))
    return left.withColumn(C.START, F.when(existing, start).otherwise(F.greatest(start, "__first"))).drop("__first")


def sessions_apart(
    near: DataFrame, final: DataFrame, changes: AcceptedChanges, rule: Rule, compute: Compute
) -> DataFrame:
    """Sessions of late events apart, of the populations that lose events: which one they are of, their ids tell.

    near: those that may be concerned; final: all.
    """
    start = F.unix_micros(C.col(C.SESSION_START))
    types = [f.dataType for f in near.select(*C.cols(rule.key)).schema.fields]
    numbers = [F.lit(n).cast("bigint") for n in changes.populations]
    late, ties = near.where(C.col(C.IS_LATE)), F.array(F.lit(0))
    if rule.by_content:  # so many events of its time may come before the first one of a session
        before = final.where(C.col(C.IS_LATE)).select(*C.cols(rule.key), C.col(C.SESSION_END).alias(AT), C.EVENT_COUNT)
        if changes.before.forgotten is not None:  # the rows that held these may be gone
            before = before.unionByName(_events_there(late, changes, rule, compute))
        most = before.groupBy(*C.cols(rule.key), AT).agg(F.sum(C.col(C.EVENT_COUNT)).cast("int").alias("__most"))
        late = joined(late.withColumn(AT, C.col(C.SESSION_START)), most, (*rule.key, AT), "left")
        ties = F.sequence(F.lit(0), F.coalesce(F.col("__most"), F.lit(0)))

    def is_of(number: Column) -> Column:
        salts = F.transform(ties, lambda n: session_id(C.cols(rule.key), types, start, salt_of(number, n)))
        return F.array_contains(salts, C.col(C.SESSION_ID))

    mine = [F.when(is_of(number), number) for number in numbers]
    late = late.withColumn(C.POPULATION, F.coalesce(*mine, F.lit(None).cast("bigint")))
    told = bare_intervals(late, rule, C.POPULATION)
    return told.where(C.col(C.POPULATION).isNotNull())


def _events_there(late: DataFrame, changes: AcceptedChanges, rule: Rule, compute: Compute) -> DataFrame:
    """How many events apart lie where one of these sessions of their key begins, and how many leave it near that."""
    begins = late.select(*C.cols(rule.key), C.col(C.SESSION_START).alias(AT)).distinct()
    us, one = F.unix_micros(AT), F.lit(1).cast("bigint").alias(C.EVENT_COUNT)
    spans = near_spans([(row[0], row[0]) for row in compute.rows(begins.select(us).distinct())])
    events = _apart(changes.accepted(spans))
    there = events.select(*C.cols(rule.key), F.timestamp_micros(C.col(C.US)).alias(AT), one)
    leaves = _apart(changes.partials).where(C.col(C.EFFECT) == LEAVES)
    gone = leaves.select(*C.cols(rule.key), C.col(C.START), C.col(C.END), C.col(C.COUNT).alias(C.EVENT_COUNT))
    near = joined(gone, begins, rule.key, "inner", us.between(C.col(C.START), C.col(C.END)))
    return there.unionByName(near.select(*C.cols(rule.key), AT, C.EVENT_COUNT))


def _apart(rows: DataFrame) -> DataFrame:
    return rows.where(C.col(C.POPULATION).isNotNull() if C.POPULATION in rows.columns else F.lit(False))
