"""Cuts: which session each event of an island is in, where more than its gap may end one (SEMANTICS §2).

Conditions on single events, and midnight, are told by neighbours. `max_duration`, `max_events` and changes of a value
depend on all cuts before them: where they may cut, one walk in time order folds an array inside the JVM.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import AcceptedChanges
from sessionizer.lib.aggregates.binding import Aggregate
from sessionizer.lib.bags import hashed
from sessionizer.lib.canonical import session_id
from sessionizer.lib.compute import Compute
from sessionizer.lib.config import DynamicGap
from sessionizer.lib.joins import joined, met_by_few
from sessionizer.lib.rule import Rule
from sessionizer.lib.windows.sessions.boundaries import (
    CHANGES_OF,
    CUT,
    ENDS_WHEN,
    MAX_DURATION,
    MAX_EVENTS,
    MIDNIGHT,
    STARTS_WHEN,
    Content,
    content_of,
    is_to_cut,
    local_day,
    number_of,
    part_column,
    salt_of,
)
from sessionizer.lib.windows.sessions.fold import bucket, fold
from sessionizer.lib.windows.sessions.intervals import apart, arriving, main_population
from sessionizer.lib.windows.sessions.islands import beyond

CHUNK, BEGINS, TIE = "__chunk", "__begins", "__tie"


def cut(events: DataFrame, rule: Rule, compute: Compute) -> DataFrame:
    """Accepted events of islands, numbered by the session that they are in.

    Events of one time are in order by `order_by`, then by the row itself. The first ones may belong to the session
    before the island: the ids of those that begin there tell.

    In: what `within_ranges` returns.
    Out: the same and `__island` BIGINT, 1, 2, … in time order; of the first event of a session `__why` INT, what has
    begun it, as `number_of` (null: a gap); by content its `__ahead` BIGINT, how many events of its time come before it.
    """
    within, content = (*apart(events, rule), C.RANGE), content_of(rule, events)
    in_order = _in_order(rule, within, TIE)
    found = _tied(events, rule, within) if rule.by_content else events.withColumn(TIE, F.lit(None).cast("string"))
    found = _chunked(found.withColumn(C.SEQ, F.row_number().over(in_order)), rule, content, within, in_order)
    number = F.col(CHUNK)
    if rule.max_duration is not None or rule.max_events is not None or rule.changes_of:
        found = compute.held(found)
        found = joined(found, _Walk(rule, content, found).cuts((*within, CHUNK)), (*within, C.SEQ), "left")
        begins = F.col(BEGINS) | F.col("__walked").isNotNull()
        found = found.withColumns({BEGINS: begins, C.WHY: F.coalesce(C.col(C.WHY), F.col("__walked")["why"])})
        number = _running(F.sum, BEGINS, Window.partitionBy(*C.cols(within)).orderBy(C.SEQ))
    about = {C.WHY: C.col(C.WHY), **({C.AHEAD: C.col(C.AHEAD)} if rule.by_content else {})}
    firsts = [F.when(F.col(BEGINS), column).alias(name) for name, column in about.items()]
    own = [name for name in events.columns if name not in (C.LOW, C.FIRST_IDS)]
    return found.select(*C.cols(tuple(own)), number.alias(C.ISLAND), *firsts)


def told_by_neighbours(rule: Rule) -> bool:
    """Whether an event and the one before it tell all cuts, and no event reaches further than a later one."""
    walks = rule.max_duration is not None or rule.max_events is not None or rule.changes_of
    return rule.by_content and not walks and not isinstance(rule.gap, DynamicGap)


def in_pieces(  # noqa: PLR0913
    partials: DataFrame,
    changes: AcceptedChanges,
    rule: Rule,
    aggregates: tuple[Aggregate, ...],
    *,
    now: int,
    compute: Compute,
) -> DataFrame:
    """Partials that nothing cuts amid, numbered by the session that they are in, where neighbours tell all cuts.

    The events of the few buckets that are cut amid are read again, no others.

    In: what `new_intervals` returns, one partial a key and bucket; the changes that they are of.
    Out: the same, `__island` BIGINT, 1, 2, … in time order per key, `__ahead` as of `cut`; the last of a session tells
    what has begun the next one.
    """
    place, is_cut = (*rule.key, C.BUCKET), is_to_cut(rule)
    if changes.amid is None:
        return _in_sessions(partials.withColumn(C.ISLAND, F.lit(None).cast("bigint")), rule)
    buckets = partials.where(is_cut).select(*C.cols(place))
    events = main_population(changes.accepted([changes.amid])).withColumn(C.BUCKET, bucket(rule.bucket))
    within = cut(met_by_few(events, buckets, place).withColumnRenamed(C.BUCKET, C.RANGE), rule, compute)
    made = fold(within.drop(C.WHY), rule, aggregates, C.RANGE, C.ISLAND, whole=True).drop(C.RANGE)
    return _in_sessions(partials.where(~is_cut).unionByName(arriving(made, rule, now), allowMissingColumns=True), rule)


def _in_sessions(pieces: DataFrame, rule: Rule) -> DataFrame:
    """What `in_pieces` returns. In: partials; those of one time in the order of `__island`."""
    by_time = Window.partitionBy(*C.cols(rule.key)).orderBy(C.START, C.ISLAND)
    ends = None if rule.ends_when is None else C.col(part_column("ends")) > 0
    starts = None if rule.starts_when is None else C.col(part_column("starts")) > 0
    days = None if rule.cut_at is None else (C.col(part_column("least_day")), C.col(part_column("most_day")))
    why = _why(ends, starts, days, by_time)
    is_apart = beyond(C.col(C.START), F.lag(C.col(C.REACH)).over(by_time), rule)
    told = pieces.withColumns({C.WHY: why, BEGINS: F.coalesce(is_apart, F.lit(False)) | why.isNotNull()})
    next_start, next_why = (F.lead(C.col(name)).over(by_time) for name in (C.START, C.WHY))
    cut_by = F.when(~beyond(next_start, C.col(C.REACH), rule), next_why)
    number = _running(F.sum, BEGINS, by_time) + 1
    return told.withColumns({C.ISLAND: number, part_column(CUT): cut_by}).drop(BEGINS, C.WHY)


def _in_order(rule: Rule, within: tuple[str, ...], *tie: str) -> WindowSpec:
    """Events of an island in time order; those of one time by `order_by`, then by `tie`."""
    return Window.partitionBy(*C.cols(within)).orderBy(C.US, *C.cols(rule.order_by), *tie)


def _tied(events: DataFrame, rule: Rule, within: tuple[str, ...]) -> DataFrame:
    """Events with `__tie`, what orders those of one time, without those of the session before the island."""
    place, in_time = F.struct(C.US, *C.cols(rule.order_by)), _in_order(rule, within)
    is_tied = F.lag(place).over(in_time).eqNullSafe(place) | F.lead(place).over(in_time).eqNullSafe(place)
    told = hashed(events.withColumn("__tied", is_tied))  # of most events it is not computed
    told = told.select(*C.cols(tuple(events.columns)), F.when(F.col("__tied"), C.col(C.JSON)).alias(TIE))
    if C.FIRST_IDS not in events.columns:
        return told
    ahead = F.when(C.col(C.US) == C.col(C.LOW), F.row_number().over(_in_order(rule, within, TIE)) - 1).cast("bigint")
    placed = told.withColumn("__ahead_of_low", ahead)
    types = [field.dataType for field in events.select(*C.cols(rule.key)).schema.fields]
    salt = salt_of(C.col(C.POPULATION) if C.POPULATION in events.columns else None, F.col("__ahead_of_low"))
    may_begin = F.col("__ahead_of_low").isNotNull() & (F.size(C.col(C.FIRST_IDS)) > 0)
    begins = may_begin & F.array_contains(C.col(C.FIRST_IDS), session_id(C.cols(rule.key), types, C.col(C.US), salt))
    whole = Window.partitionBy(*C.cols(within))
    of_others = F.coalesce(F.min(F.when(begins, F.col("__ahead_of_low"))).over(whole), F.lit(0))
    own = F.coalesce(F.col("__ahead_of_low") >= F.col("__others"), F.lit(True))
    return placed.withColumn("__others", of_others).where(own).drop("__ahead_of_low")


def _chunked(
    events: DataFrame, rule: Rule, content: Content, within: tuple[str, ...], in_order: WindowSpec
) -> DataFrame:
    """Events with what neighbours tell: whether one `__begins` a session, `__why`, the number of its chunk.

    By content with `__ahead`, too: how many events of its time come before it.
    """
    us = C.col(C.US)
    days = None if rule.cut_at is None else (local_day(us, rule), local_day(us, rule))
    why, before = _why(content.ends, content.starts, days, in_order), F.lag(us).over(in_order)
    is_cut = why.isNotNull() | before.isNull()
    told = events.withColumns({BEGINS: is_cut, C.WHY: why})
    if rule.by_content:
        others = F.col("__others") if "__others" in events.columns else F.lit(0)
        told = told.withColumn("__first_of_time", F.when(before.isNull() | (before != us), C.col(C.SEQ)))
        first = _running(F.max, "__first_of_time", in_order)
        ahead = C.col(C.SEQ) - first + F.when(first == 1, others).otherwise(0)
        told = told.withColumn(C.AHEAD, ahead.cast("bigint"))
    if isinstance(rule.gap, DynamicGap):
        told = told.withColumn(CHUNK, _running(F.sum, BEGINS, in_order))
        of_chunk = Window.partitionBy(*C.cols((*within, CHUNK))).orderBy(C.SEQ)
        reach = F.max(us + C.col(C.GAP)).over(of_chunk.rowsBetween(Window.unboundedPreceding, -1))
    else:
        reach = before + rule.gap
    told = told.withColumn(BEGINS, F.col(BEGINS) | F.coalesce(beyond(us, reach, rule), F.lit(False)))
    by_seq = Window.partitionBy(*C.cols(within)).orderBy(C.SEQ)
    return told.withColumn(CHUNK, _running(F.sum, BEGINS, by_seq if isinstance(rule.gap, DynamicGap) else in_order))


def _why(
    ends: Column | None, starts: Column | None, days: tuple[Column, Column] | None, in_order: WindowSpec
) -> Column:
    """What neighbours say has begun a session, of several the first, as `number_of`; null: nothing.

    Whether an event, or piece, ends or starts one; the days of its beginning and end; None: the rule does not ask.
    """
    reasons = []
    if ends is not None:
        reasons.append((ENDS_WHEN, F.lag(ends).over(in_order)))
    if starts is not None:
        reasons.append((STARTS_WHEN, starts))
    if days is not None:
        reasons.append((MIDNIGHT, F.lag(days[1]).over(in_order) != days[0]))
    return F.coalesce(*[F.when(holds, number_of(reason)) for reason, holds in reasons], F.lit(None).cast("int"))


def _running(function: Callable[[Column], Column], name: str, in_order: WindowSpec) -> Column:
    """Of a number, or of true as 1, up to each event."""
    up_to_here = in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    return function(F.col(name).cast("int")).over(up_to_here)


@dataclass(frozen=True)
class _Walk:
    """Where sessions begin within chunks, by what depends on all cuts before it."""

    rule: Rule
    content: Content
    chunked: DataFrame

    def cuts(self, by: tuple[str, ...]) -> DataFrame:
        """Out: the columns of `by` but the chunk, `__seq` of events that begin a session, `__walked` (why)."""
        us, values = C.col(C.US), [value.alias(f"v{i}") for i, value in enumerate(self.content.values)]
        gap = C.col(C.GAP) if isinstance(self.rule.gap, DynamicGap) else F.lit(self.rule.gap)
        event = F.struct(C.col(C.SEQ), us, (us + gap).alias(C.REACH), *values)
        chunks = self.chunked.groupBy(*C.cols(by)).agg(F.sort_array(F.collect_list(event)).alias("__events"))
        cut = chunks.select(*C.cols(by), F.explode(self._cuts(F.col("__events"))).alias("__cut"))
        walked = F.struct(F.col("__cut")["why"].alias("why")).alias("__walked")
        return cut.select(*C.cols(by[:-1]), F.col("__cut")[C.SEQ].alias(C.SEQ), walked)

    def _cuts(self, events: Column) -> Column:
        nothing = F.lit(None).cast("bigint")
        kinds = self.chunked.select(*self.content.values).schema.fields
        begin = F.struct(
            nothing.alias("start"),
            nothing.alias("reach"),
            F.lit(0).cast("bigint").alias("count"),
            F.array().cast(f"array<struct<{C.SEQ}:int,why:int>>").alias("cuts"),
            *[F.lit(None).cast(kind.dataType).alias(f"v{i}") for i, kind in enumerate(kinds)],
        )
        return F.aggregate(events, begin, self._step, lambda last: last["cuts"])

    def _step(self, current: Column, event: Column) -> Column:
        names, us, reach = [f"v{i}" for i, _ in enumerate(self.content.values)], event[C.US], event[C.REACH]
        reasons = self._reasons(current, event)
        is_cut = reduce(or_, [F.coalesce(holds, F.lit(False)) for _, holds in reasons])
        why = F.coalesce(*[F.when(holds, number_of(reason)) for reason, holds in reasons if reason])
        is_gap = F.coalesce(reasons[0][1], F.lit(False))
        seen = F.struct(event[C.SEQ].alias(C.SEQ), F.when(~is_gap, why).alias("why"))
        first = F.struct(
            us.alias("start"),
            reach.alias("reach"),
            F.lit(1).cast("bigint").alias("count"),
            F.when(is_cut, F.concat(current["cuts"], F.array(seen))).otherwise(current["cuts"]).alias("cuts"),
            *[event[name].alias(name) for name in names],
        )
        further = F.struct(
            current["start"].alias("start"),
            F.greatest(current["reach"], reach).alias("reach"),
            (current["count"] + 1).alias("count"),
            current["cuts"].alias("cuts"),
            *[F.coalesce(event[name], current[name]).alias(name) for name in names],
        )
        return F.when(is_cut | current["start"].isNull(), first).otherwise(further)

    def _reasons(self, current: Column, event: Column) -> list[tuple[str | None, Column]]:
        rule, us = self.rule, event[C.US]
        found: list[tuple[str | None, Column]] = [(None, beyond(us, current["reach"], rule))]
        if rule.max_events is not None:
            found.append((MAX_EVENTS, current["count"] >= rule.max_events))
        names = [f"v{i}" for i, _ in enumerate(self.content.values)]
        found += [(CHANGES_OF, event[name] != current[name]) for name in names]
        if rule.max_duration is not None:
            found.append((MAX_DURATION, us - current["start"] > rule.max_duration))
        return found
