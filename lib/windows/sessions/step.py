"""One step over intervals in hand: what merges as it is, what is recomputed from events, and what both change."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from lib import columns as C
from lib.admission.past import Spans, near_spans, started_within
from lib.aggregates.binding import Aggregate
from lib.computed import computed, held
from lib.rule import Rule
from lib.time.watermarks import WatermarkState
from lib.windows.sessions.changes import changes, replacements
from lib.windows.sessions.intervals import merge_islands
from lib.windows.sessions.islands import mark_islands
from lib.windows.sessions.lifecycle import salted, settle
from lib.windows.sessions.rederive import (
    REDO,
    mark_roles,
    rederive,
    redone,
    role_columns,
    to_merge,
    to_redo,
    within_ranges,
)


@dataclass(frozen=True)
class Redo:
    """What was recomputed: the events, the sessions made of them, the islands they lie in."""

    inside: DataFrame
    rows: DataFrame
    ranges: DataFrame


@dataclass(frozen=True)
class Step:
    """What changing sessions takes besides intervals.

    before, after: the clock that events were judged by, and the one that gives rows their state.
    accepted: makes the accepted events in spans of time. table: rows that may be replaced, None where there are none.
    all_differ: every session that is recomputed differs from what the table holds, and need not be compared.
    """

    rule: Rule
    before: WatermarkState
    after: WatermarkState
    aggregates: tuple[Aggregate, ...]
    accepted: Callable[[Spans], DataFrame]
    table: DataFrame | None
    all_differ: bool = False

    def merged(self, intervals: DataFrame) -> DataFrame:
        """The changes that merging gives."""
        rule, aggregates = self.rule, self.aggregates
        marked = intervals if C.ISLAND in intervals.columns else mark_islands(intervals, rule)
        sessions = merge_islands(marked, rule, aggregates, with_buckets=rule.traces)
        settled = settle(salted(sessions, rule, self.before), rule, self.after, aggregates)
        return changes(settled, each_watermark=rule.watermark_per == "key")

    def merged_and_rederived(self, intervals: DataFrame) -> tuple[DataFrame, Redo | None]:
        """The changes where some islands may have to be recomputed from events.

        In: new partials and rows of the table as intervals, final rows too where something may touch them.
        """
        rule, aggregates = self.rule, self.aggregates
        marked, seen = computed(mark_roles(intervals, rule), role_columns())
        others = to_merge(marked)
        if self.table is None:
            others = others.drop(C.LIVE)  # so that nothing is compared with rows that are not there
        merging = self.merged(others)
        if not seen[REDO]:
            return merging, None
        ranges = held(to_redo(marked, rule))
        spans = near_spans([(row[0], row[1]) for row in ranges.select(C.col(C.LOW), C.col(C.HIGH)).collect()])
        inside = within_ranges(self.accepted(spans), ranges, rule)
        rows = rederive(inside, ranges, rule, (self.before, self.after), aggregates)
        if rule.traces:
            inside = held(inside)
        rows = held(rows)
        compared = None if self.table is None or self.all_differ else self.table.where(started_within(spans))
        result = redone(rows, ranges, compared, rule, aggregates)
        replaced = replacements(result.rows, result.gone)
        return merging.unionByName(replaced, allowMissingColumns=True), Redo(inside, rows, ranges)
