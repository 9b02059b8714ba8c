"""The whole of sessionizing on one screen: frames in, frames out, no table and no clock of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.aggregates import bind
from lib.changes import changes, counts
from lib.events import judge, rejected
from lib.fold import fold
from lib.islands import mark_islands
from lib.lifecycle import settle, table_columns
from lib.rule import Rule
from lib.sessions import live_intervals, merge_islands, new_intervals
from lib.tally import Tally, tally_columns
from lib.watermarks import Clock, advance, advance_to, flush


@dataclass(frozen=True)
class Push:
    """What a person asks of the clock beyond what the events say."""

    advance_to: int | None = None
    flush: bool = False


@dataclass(frozen=True)
class Outcome:
    """What one increment comes to.

    changes: rows of the sessions table (but run_id) with `__change` = insert | update | delete; computed.
    rejected: makes the rows of `rejected_events` without the run's own columns; they read the events again.
    clock: as it stands after.
    """

    changes: DataFrame
    rejected: Callable[[], DataFrame]
    tally: Tally
    counts: Mapping[str, int]
    clock: Clock


def sessionize(events: DataFrame, live: DataFrame | None, rule: Rule, clock: Clock, push: Push = Push()) -> Outcome:
    """Merge events with the live sessions.

    events: rows of the source. live: rows of the sessions table that are not final, or None where there are none.
    clock: as it stood before; the outcome carries it as it stands after. Order of rows never matters.
    The events are read once: the folded partials are held in a local checkpoint, and all counts come with them.
    """
    aggregates = bind(rule, events)
    judged = judge(events, rule, clock)
    folded, seen = computed(fold(judged, rule, aggregates), tally_columns())
    tally = Tally.of(seen)

    intervals = new_intervals(folded)
    if live is not None:
        intervals = intervals.unionByName(live_intervals(live, rule, aggregates), allowMissingColumns=True)
    after = advance_to(advance(clock, tally.earliest, tally.latest, rule), push.advance_to)
    if push.flush:
        after = flush(after, latest_reach(intervals, rule))

    sessions = merge_islands(mark_islands(intervals, rule), rule, aggregates)
    changed = changes(settle(sessions, rule, after, aggregates))
    changed, counted = computed(changed, counts(changed))
    return Outcome(
        changes=changed.select(*C.cols(table_columns(rule, aggregates)), C.col(C.CHANGE)),
        rejected=partial(rejected, judged, rule, clock),
        tally=tally,
        counts={name: n or 0 for name, n in counted.items()},
        clock=after,
    )


def session_schema(events: DataFrame, rule: Rule) -> T.StructType:
    """The columns of the sessions table that this rule makes of such events, run_id included; reads nothing."""
    aggregates = bind(rule, events)
    clock = Clock(now=0)
    intervals = new_intervals(fold(judge(events, rule, clock), rule, aggregates))
    settled = settle(merge_islands(mark_islands(intervals, rule), rule, aggregates), rule, clock, aggregates)
    fields = settled.select(*C.cols(table_columns(rule, aggregates))).schema.fields
    fields.insert(-1, T.StructField(C.RUN_ID, T.StringType()))
    return T.StructType(fields).toNullable()


def computed(frame: DataFrame, metrics: Mapping[str, Column]) -> tuple[DataFrame, dict[str, int]]:
    """The frame, computed once and held by the executors, and figures about it from the same pass."""
    observation = Observation()
    held = frame.observe(observation, *[c.alias(n) for n, c in metrics.items()]).localCheckpoint()
    return held, observation.get


def latest_reach(intervals: DataFrame, rule: Rule) -> int | None:
    """The latest end + gap of all intervals in microseconds, None where there are none."""
    row = intervals.agg(F.max(C.col(C.END)).alias("end")).first()
    return None if row is None or row["end"] is None else int(row["end"]) + rule.gap
