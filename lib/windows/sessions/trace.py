"""Trace: which session each event went into, and what the session came to with it (VoltSP's `atAggregate`).

Both tables keep the rows of a session under its present id: where sessions merge, rows move to the id that took over;
where sessions are recomputed from events, their rows are replaced.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import with_hash
from lib.admission.past import aliased, same_as_aliased, without_aliases
from lib.aggregates.binding import Aggregate
from lib.rule import Rule
from lib.windows.sessions.changes import DELETE
from lib.windows.sessions.fold import bucket
from lib.windows.sessions.intervals import live_intervals

INSERT, RENAME, REMOVE = "insert", "rename", "remove"
OLD_ID, KIND = "__old_id", "__kind"


@dataclass(frozen=True)
class Trace:
    """Accepted events with the session they are in.

    arrived: this run's, that merged into sessions; redone: all events of islands that were recomputed, or None.
    Both have the source's columns, `__us` and session_id.
    renamed: `__old_id`, session_id of sessions that another took over. removed: `__old_id` of recomputed sessions.
    """

    arrived: DataFrame
    redone: DataFrame | None
    renamed: DataFrame
    removed: DataFrame | None


def arrived(judged: DataFrame, changed: DataFrame, rule: Rule) -> DataFrame:
    """The accepted events of a run with the id of the session that their partial merged into: no range join."""
    at = changed.where(C.col(C.BUCKETS).isNotNull() & (C.col(C.CHANGE) != DELETE)).select(
        *C.cols((*rule.key, C.SESSION_ID)), F.explode(C.col(C.BUCKETS)).alias(C.BUCKET)
    )
    key = (*rule.key, C.BUCKET)
    accepted = judged.where(C.col(C.VERDICT).isNull()).withColumn(C.BUCKET, bucket(rule.bucket))
    return without_aliases(accepted.join(aliased(at, key), same_as_aliased(key)))


def redone(inside: DataFrame, rows: DataFrame, rule: Rule) -> DataFrame:
    """Events of recomputed islands with the id of their session: the latest of their island that starts before them."""
    key = (*rule.key, C.RANGE)
    starts = rows.groupBy(*C.cols(key)).agg(
        F.sort_array(
            F.collect_list(F.struct(F.unix_micros(C.col(C.SESSION_START)).alias("start"), C.col(C.SESSION_ID)))
        ).alias("__sessions")
    )
    joined = without_aliases(inside.join(aliased(starts, key), same_as_aliased(key)))
    mine = F.filter(F.col("__sessions"), lambda session: session["start"] <= C.col(C.US))
    return joined.withColumn(C.SESSION_ID, F.element_at(mine, -1)[C.SESSION_ID]).drop("__sessions")


def event_sessions(trace: Trace, rule: Rule) -> DataFrame:
    """What a run writes to `event_sessions`, with `__kind` and, of renamed and removed rows, `__old_id`.

    Out: the key columns, event_time, the order_by columns (event_hash, where there are none), session_id.
    """
    names = rule.order_by or (C.EVENT_HASH,)

    def rows(events: DataFrame) -> DataFrame:
        hashed = events if rule.order_by else _hashed(events)
        time = F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME)
        return hashed.select(*C.cols(rule.key), time, *C.cols(names), C.col(C.SESSION_ID), F.lit(INSERT).alias(KIND))

    return _with_moves(rows, trace)


def session_updates(trace: Trace, live: DataFrame | None, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """What a run writes to `session_updates`: a row per event with the aggregates of its session up to it.

    Events of a run follow those of earlier runs, and each other in time order; `n` is the number of the event in its
    session, counted so. Recomputed sessions count anew, in time order.
    Out: the key columns, session_id, event_time, n, the aggregates; `__kind`, `__old_id` as in `event_sessions`.
    """

    def rows(events: DataFrame) -> DataFrame:
        return _running(
            events, None if events is trace.redone else _seeds(trace, live, rule, aggregates), rule, aggregates
        )

    return _with_moves(rows, trace)


def _with_moves(rows: Callable[[DataFrame], DataFrame], trace: Trace) -> DataFrame:
    found = rows(trace.arrived)
    if trace.redone is not None:
        found = found.unionByName(rows(trace.redone))
    moves = trace.renamed.withColumn(KIND, F.lit(RENAME))
    if trace.removed is not None:
        moves = moves.unionByName(trace.removed.withColumn(KIND, F.lit(REMOVE)), allowMissingColumns=True)
    return found.unionByName(moves, allowMissingColumns=True)


def _running(events: DataFrame, seeds: DataFrame | None, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """Running aggregates of events by session, from the session's seed on."""
    identity = (*rule.key, C.SESSION_ID, C.US)
    hashed = events if rule.order_by else _hashed(events)
    order = C.cols(rule.order_by or (C.EVENT_HASH,))
    single = Window.partitionBy("__row")
    own = hashed.withColumn("__row", F.monotonically_increasing_id())
    parts = own.select(
        *C.cols(identity),
        *[o.alias(f"__o{i}") for i, o in enumerate(order)],
        "__row",
        F.lit(1).cast("bigint").alias(C.COUNT),
        *[p for a in aggregates for p in a.partial(lambda function: function.over(single))],
    )
    if seeds is not None:
        parts = parts.unionByName(seeds.withColumn("__row", F.lit(-1).cast("bigint")), allowMissingColumns=True)
    by_time = [C.col(C.US), *[F.col(f"__o{i}") for i, _ in enumerate(order)], F.col("__row")]
    up_to_here = (
        Window.partitionBy(*C.cols((*rule.key, C.SESSION_ID)))
        .orderBy((F.col("__row") >= 0).asc(), *by_time)
        .rowsBetween(Window.unboundedPreceding, 0)
    )
    merged = parts.select(
        *C.cols(identity),
        "__row",
        F.sum(C.col(C.COUNT)).over(up_to_here).alias("n"),
        *[p for a in aggregates for p in a.merge(lambda function: function.over(up_to_here))],
    )
    return merged.where(F.col("__row") >= 0).select(
        *C.cols(rule.key),
        C.col(C.SESSION_ID),
        F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME),
        F.col("n"),
        *[result for a in aggregates for result in a.finish()],
        F.lit(INSERT).alias(KIND),
    )


def _seeds(trace: Trace, live: DataFrame | None, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame | None:
    """The parts of live sessions before the run, under the ids that they have after it."""
    if live is None:
        return None
    intervals = live_intervals(live, rule, aggregates).withColumn("__id", C.col(C.LIVE)[C.SESSION_ID])
    moved = intervals.join(trace.renamed, F.col("__id") == F.col(OLD_ID), "left")
    parts = [name for a in aggregates for name in a.part_columns]
    return moved.select(
        *C.cols(rule.key),
        F.coalesce(C.col(C.SESSION_ID), F.col("__id")).alias(C.SESSION_ID),
        C.col(C.START).alias(C.US),
        C.col(C.COUNT),
        *C.cols(tuple(parts)),
    )


def _hashed(events: DataFrame) -> DataFrame:
    """`with_hash`, which is of the source's own columns."""
    named = events.withColumnRenamed(C.SESSION_ID, "__session")
    return with_hash(named).withColumn(C.SESSION_ID, F.col("__session"))
