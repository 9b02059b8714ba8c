"""Intervals: partials and rows of the table side by side, and islands of them as merged sessions."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import LEAVES
from sessionizer.lib.aggregates.binding import Aggregate
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import steady

LIVE_TYPE = (
    f"struct<{C.SESSION_ID}:string,{C.STATUS}:string,{C.END_REASON}:string,{C.SUPERSEDES}:array<string>,"
    f"{C.IS_FINAL}:boolean,{C.START}:bigint,{C.REACH}:bigint,{C.ARRIVED}:bigint,{C.LAST_ARRIVAL}:bigint,"
    f"{C.W}:bigint,{C.MARK}:bigint>"
)
ROW_FIELDS = (C.SESSION_ID, C.STATUS, C.END_REASON, C.SUPERSEDES, C.IS_FINAL)
TIMES = (C.START, C.END, C.REACH)


def apart(frame: DataFrame, rule: Rule) -> tuple[str, ...]:
    """What keeps sessions apart: the key columns, and the population where the frame has one."""
    return (*rule.key, *((C.POPULATION,) if C.POPULATION in frame.columns else ()))


def main_population(events: DataFrame) -> DataFrame:
    """The accepted events that are in no population apart."""
    if C.POPULATION not in events.columns:
        return events
    return events.where(C.col(C.POPULATION).isNull()).drop(C.POPULATION)


def new_intervals(partials: DataFrame, rule: Rule, now: int) -> DataFrame:
    """The partials of `fold` that change the accepted bag, as intervals.

    Those of events that leave hold no event, but have their sessions recomputed.
    Out: the columns of `fold`, and what `arriving` adds.
    """
    of_sessions = C.col(C.EFFECT).isNotNull() & C.col(C.START).isNotNull()
    return arriving(partials.where(of_sessions), rule, now)


def arriving(intervals: DataFrame, rule: Rule, now: int) -> DataFrame:
    """The intervals with `__arrived` BIGINT, the run's wall clock, where the rule has use for it."""
    return intervals.withColumn(C.ARRIVED, steady(now, C.col(C.START))) if keeps_arrival(rule) else intervals


def state_intervals(live: DataFrame, rule: Rule, aggregates: tuple[Aggregate, ...]) -> DataFrame:
    """Live rows of the sessions table, as intervals.

    Out: the columns of `new_intervals` but effect and bucket, and `__live`, a struct of what the row says of itself.
    """
    arrivals = [_arrived(rule)] if keeps_arrival(rule) else []
    arrivals += [_last_arrival(rule)] if keeps_arrival_of_key(rule) else []
    return _rows(live, rule, [*(part for a in aggregates for part in a.resume()), *arrivals])


def bare_intervals(rows: DataFrame, rule: Rule, *names: str) -> DataFrame:
    """Rows of the sessions table as intervals without state: what they are part of is recomputed. names: also kept."""
    return _rows(rows, rule, C.cols(names))


def emptied(rows: DataFrame, rule: Rule, now: int) -> DataFrame:
    """The places of rows of the sessions table, as what leaves and holds no event: what lies there is made again."""
    places = arriving(bare_intervals(rows, rule).drop(C.LIVE), rule, now)
    return places.withColumns({C.EFFECT: F.lit(LEAVES), C.COUNT: F.lit(0).cast("bigint")})


def keeps_arrival(rule: Rule) -> bool:
    """Whether live rows remember when their last event arrived."""
    return rule.idle_after is not None and rule.idle_clock == "processing_time"


def keeps_arrival_of_key(rule: Rule) -> bool:
    """Whether they remember when the last event of their key arrived, in whichever of its sessions it is."""
    return keeps_arrival(rule) and rule.watermark_per == "key"


def merge_islands(
    marked: DataFrame, rule: Rule, aggregates: tuple[Aggregate, ...], *by: str, with_buckets: bool = False
) -> DataFrame:
    """One row per island: the union of its intervals.

    Out: the key columns, `__population` if it is there, `by`, `__start`, `__end`, `__reach`, `__count`, the merged
    parts; `__arrived`, `__last_arrival` and what `cut` tells if they are there; where a table was read, `__absorbed`
    (`__live` of rows in it) and `__fresh` BIGINT (its events that are new); if asked for, `__buckets` (those of its
    new partials).
    """
    types = {field.name: field.dataType for field in marked.schema.fields}
    merged = [part for a in aggregates for part in a.merge()]
    new = C.col(C.LIVE).isNull() if C.LIVE in types else F.lit(True)
    fresh = F.sum(F.when(new, C.col(C.COUNT)).otherwise(0)).alias(C.FRESH)
    absorbed = [fresh, F.collect_list(C.col(C.LIVE)).alias(C.ABSORBED)] if C.LIVE in types else []
    buckets = [F.collect_set(F.when(new, C.col(C.BUCKET))).alias(C.BUCKETS)] if with_buckets else []
    told = [name for name in (C.ARRIVED, C.LAST_ARRIVAL, C.WHY, C.AHEAD) if name in types]
    identity = (*apart(marked, rule), *by)
    sessions = marked.groupBy(*C.cols(identity), C.col(C.ISLAND)).agg(
        F.min(C.col(C.START)).alias(C.START),
        F.max(C.col(C.END)).alias(C.END),
        F.max(C.col(C.REACH)).alias(C.REACH),
        F.sum(C.col(C.COUNT)).alias(C.COUNT),
        *merged,
        *[F.max(C.col(name)).alias(name) for name in told],
        *absorbed,
        *buckets,
    )
    parts = [name for a in aggregates for name in a.part_columns]
    kept = [name for name in (*told, C.ABSORBED, C.FRESH, C.BUCKETS) if name in sessions.columns]
    kept += [C.ISLAND] if C.WHY in told else []
    return sessions.select(
        *C.cols(identity),
        *C.cols(TIMES),
        C.col(C.COUNT),
        *[C.col(name).cast(types[name]).alias(name) for name in parts],  # a sum of decimals widens at every merge
        *C.cols(tuple(kept)),
    )


def _rows(rows: DataFrame, rule: Rule, parts: list[Column]) -> DataFrame:
    start = F.unix_micros(C.col(C.SESSION_START)).alias(C.START)
    reach = F.unix_micros(C.col(C.EXPIRES_AT)).alias(C.REACH)
    clock = [F.lit(None).cast("bigint").alias(C.W), F.lit(None).cast("bigint").alias(C.MARK)]
    if rule.watermark_per == "key":
        state = C.col(C.STATE)
        clock = [state[C.STATE_WATERMARK].alias(C.W), state[C.STATE_FLUSH_MARK].alias(C.MARK)]
    return rows.select(
        *C.cols(rule.key),
        start,
        F.unix_micros(C.col(C.SESSION_END)).alias(C.END),
        reach,
        C.col(C.EVENT_COUNT).alias(C.COUNT),
        *parts,
        F.struct(*C.cols(ROW_FIELDS), start, reach, _arrived(rule), _last_arrival(rule), *clock)
        .cast(LIVE_TYPE)
        .alias(C.LIVE),
    )


def _arrived(rule: Rule) -> Column:
    nothing = F.lit(None).cast("bigint")
    return (C.col(C.STATE)[C.STATE_ARRIVED] if keeps_arrival(rule) else nothing).alias(C.ARRIVED)


def _last_arrival(rule: Rule) -> Column:
    nothing = F.lit(None).cast("bigint")
    return (C.col(C.STATE)[C.STATE_LAST_ARRIVAL] if keeps_arrival_of_key(rule) else nothing).alias(C.LAST_ARRIVAL)
