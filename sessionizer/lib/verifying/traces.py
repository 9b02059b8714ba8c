"""Where event_sessions and session_updates are not what the sessions say."""

from collections.abc import Mapping

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.bags import hashed
from sessionizer.lib.compare import FLOATS, same_row, tolerances
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import timestamp
from sessionizer.lib.verifying.differences import Since, unfilled, written_before


def wrong_places(trace: DataFrame, sessions: DataFrame, rule: Rule) -> DataFrame:
    """Rows of either table in whose session, by its id, no event of that key and time can lie."""
    identity = (*rule.key, C.SESSION_ID)
    time = C.col(C.EVENT_TIME)
    ends = [C.col(C.SESSION_START).alias("__first"), C.col(C.SESSION_END).alias("__last")]
    there = sessions.select(*C.cols(identity), *ends)
    inside = (time >= F.col("__first")) & (time <= F.col("__last"))
    return joined(trace, there, identity, "left_anti", inside).select(C.SESSION_ID, C.EVENT_TIME)


def wrong_numbers(trace: DataFrame, sessions: DataFrame, since: int) -> DataFrame:
    """Sessions that have another number of rows than events, of those that start at or after `since` (microseconds)."""
    rows = trace.groupBy(C.SESSION_ID).agg(F.count(F.lit(1)).alias("rows"))
    young = sessions.where(C.col(C.SESSION_START) >= timestamp(since)).select(C.SESSION_ID, C.EVENT_COUNT)
    met = joined(young, rows, (C.SESSION_ID,), "left")
    return met.where(~C.col(C.EVENT_COUNT).eqNullSafe(F.col("rows")))


def wrong_members(
    trace: DataFrame, events: DataFrame, sessions: DataFrame, by: tuple[str, ...], since: int
) -> DataFrame:
    """Times, from `since` (microseconds) on, that have another number of rows than of accepted events.

    by: of each, and what tells events of one time apart.

    Those of events apart are in sessions apart.
    """
    time = F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME)
    late = sessions.where(C.col(C.IS_LATE)).select(C.SESSION_ID, F.lit(True).alias("__apart"))
    told = joined(trace, late, (C.SESSION_ID,), "left").withColumn("__apart", F.col("__apart").isNotNull())
    names = (*C.cols((*by, C.EVENT_TIME)), F.col("__apart"))
    accepted = events.select(*C.cols(by), time, C.col(C.POPULATION).isNotNull().alias("__apart"))
    both = told.select(*names, F.lit(1).alias("__rows")).unionByName(accepted.withColumn("__rows", F.lit(-1)))
    young = both.where(C.col(C.EVENT_TIME) >= timestamp(since))
    return young.groupBy(*names).agg(F.sum("__rows").alias("__too_many")).where("__too_many <> 0").drop("__apart")


def order_of(trace: DataFrame, rule: Rule) -> list[str]:
    """The `order_by` columns beside the key and the time, but structs, whose parts each table has in its own order."""
    simple = {f.name.lower() for f in trace.schema.fields if isinstance(f.dataType, T.AtomicType)}
    known = {name.lower() for name in (*rule.key, *rule.origin, C.EVENT_TIME)}
    return [name for name in rule.order_by if name.lower() in simple - known]


def with_hashes(events: DataFrame) -> DataFrame:
    """The events with the `event_hash` that a table has of each."""
    return hashed(events).withColumn(C.EVENT_HASH, C.col(C.HASH))


def wrong_results(
    updates: DataFrame, sessions: DataFrame, rule: Rule, since: Since, complete_since: int | None
) -> DataFrame:
    """Sessions whose last row in session_updates does not tell what they came to, where they tell it themselves.

    since: of aggregates that came later, what `unfilled` takes. complete_since: of sessions that start from then on
    (microseconds) the last row is the one of all events; None: of none.
    Not looked at: what a run without the aggregate told of a session that none with it has written, floats that were
    added in another order, and percentiles, as how far they may be apart follows from the events.
    """
    near = tolerances(rule)
    names = [n for a in rule.aggregates if a.sql is None and a.fn != "approx_percentile" for n in a.result_columns]
    types: Mapping[str, T.DataType] = {name: sessions.schema[name].dataType for name in names}
    names = [name for name in names if name not in near or not isinstance(types[name], FLOATS)]
    types = {name: types[name] for name in names}
    latest = Window.partitionBy(C.SESSION_ID).orderBy(F.col("n").desc())
    last = updates.withColumn("__place", F.row_number().over(latest)).where(F.col("__place") == 1)
    older, nothing = written_before(rule, since), F.lit(False)
    told = last.select(
        *(C.SESSION_ID, "n"),
        *[C.col(name).alias(f"__told_{i}") for i, name in enumerate(names)],
        *[(older.get(name, nothing) & C.col(name).isNull()).alias(f"__untold_{i}") for i, name in enumerate(names)],
    )
    lacks = unfilled(rule, since)
    own = sessions.select(*C.cols((C.SESSION_ID, C.SESSION_START, C.EVENT_COUNT, C.RUN_ID, C.IS_FINAL, *names)))
    met = joined(own, told, (C.SESSION_ID,), "inner")
    theirs = {
        n: F.when(older.get(n, nothing) & F.col(f"__untold_{i}"), C.col(n)).when(
            ~lacks.get(n, nothing), F.col(f"__told_{i}")
        )
        for i, n in enumerate(names)
    }
    same = same_row({name: C.col(name) for name in names}, theirs, types, near)
    is_last = F.col("n") == C.col(C.EVENT_COUNT)
    is_whole = F.lit(False) if complete_since is None else C.col(C.SESSION_START) >= timestamp(complete_since)
    return met.where((is_last & ~same) | (is_whole & ~is_last)).select(C.SESSION_ID, C.EVENT_COUNT)
