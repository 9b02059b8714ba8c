"""Memberships: which session each event is in, and what the session came to with it (VoltSP's `atAggregate`).

Both tables keep the rows of a session under its present id: where sessions merge, rows move to the id that took over;
where sessions are recomputed from events, their rows are replaced.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import JOINS
from sessionizer.lib.aggregates.binding import Aggregate
from sessionizer.lib.bags import hashed
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.windows.sessions.fold import bucket
from sessionizer.lib.windows.sessions.intervals import state_intervals
from sessionizer.lib.windows.sessions.recompute import old_rows
from sessionizer.lib.windows.windows import DELETE, Merged

INSERT, RENAME, REMOVE = "insert", "rename", "remove"
OLD_ID, KIND = "__old_id", "__kind"
APART = "__apart"  # whether an event is in a session of late ones


@dataclass(frozen=True)
class Memberships:
    """Accepted events with the session they are in, `__session`.

    arrived: this run's, that merged into sessions; recomputed: all events of islands that were recomputed, or None.
    Both have the source's columns and `__us`.
    renamed: `__old_id`, session_id of sessions that another took over. removed: `__old_id` of recomputed sessions.
    """

    arrived: DataFrame
    recomputed: DataFrame | None
    renamed: DataFrame
    removed: DataFrame | None


def memberships(judged: DataFrame, changed: DataFrame, settled: Merged, rule: Rule) -> Memberships:
    """What a run says of them. In: judged rows with `__effect`; changes of sessions; sessions as they were settled."""
    moved = changed.where(C.col(C.INTO).isNotNull())
    renamed = moved.select(C.col(C.SESSION_ID).alias(OLD_ID), C.col(C.INTO).alias(C.SESSION_ID))
    merged = _arrived(judged, changed, rule)
    if settled.recomputed is None or settled.ranges is None or settled.inside is None:
        return Memberships(merged, None, renamed, None)
    # Their own ids, too: a row may be gone by hand, or that of a session that was final already lie amid others.
    same = settled.recomputed.select(C.col(C.SESSION_ID).alias(OLD_ID))
    old = old_rows(settled.ranges).select(F.col("row")[C.SESSION_ID].alias(OLD_ID))
    removed = old.unionByName(same).distinct()
    return Memberships(merged, _recomputed(settled.inside, settled.recomputed, rule), renamed, removed)


def _arrived(judged: DataFrame, changed: DataFrame, rule: Rule) -> DataFrame:
    """The accepted events of a run with the id of the session that their partial merged into: no range join."""
    at = changed.where(C.col(C.BUCKETS).isNotNull() & (C.col(C.CHANGE) != DELETE)).select(
        *C.cols(rule.key),
        C.col(C.IS_LATE).alias(APART),
        C.col(C.SESSION_ID).alias(C.SESSION),
        F.explode(C.col(C.BUCKETS)).alias(C.BUCKET),
    )
    is_apart: Column = C.col(C.POPULATION).isNotNull() if C.POPULATION in judged.columns else F.lit(False)
    merging = judged.where(C.col(C.EFFECT) == JOINS).withColumns({C.BUCKET: bucket(rule.bucket), APART: is_apart})
    return joined(merging, at, (*rule.key, APART, C.BUCKET), "inner")


def _recomputed(inside: DataFrame, rows: DataFrame, rule: Rule) -> DataFrame:
    """Events of recomputed islands with the id of their session: by its number where they have one, else by its time.

    Where there is none, their session has been forgotten.
    """
    by = (*rule.key, C.RANGE)
    if rule.cuts:
        numbered = rows.select(*C.cols((*by, C.ISLAND)), C.col(C.SESSION_ID).alias(C.SESSION))
        return joined(inside, numbered, (*by, C.ISLAND), "inner")
    start, end = (F.unix_micros(C.col(name)) for name in (C.SESSION_START, C.SESSION_END))
    session = F.struct(start.alias("start"), end.alias("end"), C.col(C.SESSION_ID).alias("id"))
    starts = rows.groupBy(*C.cols(by)).agg(F.sort_array(F.collect_list(session)).alias("__sessions"))
    mine = F.filter(F.col("__sessions"), lambda one: C.col(C.US).between(one["start"], one["end"]))
    met = joined(inside, starts, by, "inner")
    told = met.withColumn(C.SESSION, F.try_element_at(mine, F.lit(-1))["id"])
    return told.where(C.col(C.SESSION).isNotNull()).drop("__sessions")


def event_sessions(of: Memberships, rule: Rule) -> DataFrame:
    """What a run writes to `event_sessions`, with `__kind` and, of renamed and removed rows, `__old_id`.

    Out: the key columns, source (of several), event_time, the order_by columns (event_hash, where there are none),
    session_id.
    """

    def rows(events: DataFrame) -> DataFrame:
        told = events if rule.order_by else hashed(events)
        there = {name.lower() for name in (*rule.key, C.EVENT_TIME)}
        order = [C.col(name) for name in rule.order_by if name.lower() not in there]
        order = order if rule.order_by else [C.col(C.HASH).alias(C.EVENT_HASH)]
        time = F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME)
        own_id = C.col(C.SESSION).alias(C.SESSION_ID)
        return told.select(*C.cols((*rule.key, *rule.origin)), time, *order, own_id, F.lit(INSERT).alias(KIND))

    return _with_moves(rows, of)


def session_updates(
    of: Memberships, live: DataFrame | None, rule: Rule, aggregates: tuple[Aggregate, ...]
) -> DataFrame:
    """What a run writes to `session_updates`: a row per event with the aggregates of its session up to it.

    Events of a run follow those of earlier runs, and each other in time order; `n` is the number of the event in its
    session, counted so. Recomputed sessions count anew, in time order.
    Out: the key columns, session_id, event_time, n, the aggregates; `__kind`, `__old_id` as in `event_sessions`.
    """

    def rows(events: DataFrame) -> DataFrame:
        return _running(
            events, None if events is of.recomputed else _seeds(of, live, rule, aggregates), rule, aggregates
        )

    return _with_moves(rows, of)


def _with_moves(rows: Callable[[DataFrame], DataFrame], of: Memberships) -> DataFrame:
    found = rows(of.arrived)
    if of.recomputed is not None:
        found = found.unionByName(rows(of.recomputed))
    moves = of.renamed.withColumn(KIND, F.lit(RENAME))
    if of.removed is not None:
        moves = moves.unionByName(of.removed.withColumn(KIND, F.lit(REMOVE)), allowMissingColumns=True)
    return found.unionByName(moves, allowMissingColumns=True)


def _running(events: DataFrame, seeds: DataFrame | None, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """Running aggregates of events by session, from the session's seed on."""
    identity = (*rule.key, C.SESSION, C.US)
    told, order = hashed(events), C.cols((*rule.order_by, C.JSON))
    single = Window.partitionBy("__row")
    own = told.withColumn("__row", F.monotonically_increasing_id())
    parts = own.select(
        *C.cols(identity),
        *[o.alias(f"__o{i}") for i, o in enumerate(order)],
        "__row",
        F.lit(1).cast("bigint").alias(C.COUNT),
        *[p for a in aggregates for p in a.partial(lambda function: function.over(single))],
    )
    if seeds is not None:
        parts = parts.unionByName(seeds.withColumn("__row", F.lit(-1).cast("bigint")), allowMissingColumns=True)
    totals = [name for a in aggregates if a.triple.resumes_from_result for name in a.part_columns]
    totals = [name for name in totals if isinstance(parts.schema[name].dataType, T.LongType)]
    # In time order a total may leave BIGINT, and come back: it is null there.
    parts = _typed(parts, totals, lambda total: total.cast(T.DecimalType(38, 0)))
    by_time = [C.col(C.US), *[F.col(f"__o{i}") for i, _ in enumerate(order)], F.col("__row")]
    up_to_here = (
        Window.partitionBy(*C.cols((*rule.key, C.SESSION)))
        .orderBy((F.col("__row") >= 0).asc(), *by_time)
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    merged = parts.select(
        *C.cols(identity),
        "__row",
        F.sum(C.col(C.COUNT)).over(up_to_here).alias("n"),
        *[p for a in aggregates for p in a.merge(lambda function: function.over(up_to_here))],
    )
    return (
        _typed(merged, totals, lambda total: total.try_cast("bigint"))
        .where(F.col("__row") >= 0)
        .select(
            *C.cols(rule.key),
            C.col(C.SESSION).alias(C.SESSION_ID),
            F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME),
            F.col("n"),
            *[result for a in aggregates for result in a.finish()],
            F.lit(INSERT).alias(KIND),
        )
    )


def _typed(parts: DataFrame, names: list[str], typed: Callable[[Column], Column]) -> DataFrame:
    """With these columns so. Spark Connect knows no `withColumns` of none."""
    return parts.withColumns({name: typed(C.col(name)) for name in names}) if names else parts


def _seeds(of: Memberships, live: DataFrame | None, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame | None:
    """The parts of live sessions before the run, under the ids that they have after it."""
    if live is None:
        return None
    intervals = state_intervals(live, rule, aggregates).withColumn("__id", C.col(C.LIVE)[C.SESSION_ID])
    moved = intervals.join(of.renamed, F.col("__id") == F.col(OLD_ID), "left")
    parts = [name for a in aggregates for name in a.part_columns]
    return moved.select(
        *C.cols(rule.key),
        F.coalesce(C.col(C.SESSION_ID), F.col("__id")).alias(C.SESSION),
        C.col(C.START).alias(C.US),
        C.col(C.COUNT),
        *C.cols(tuple(parts)),
    )
