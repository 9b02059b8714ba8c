"""Session windows: gap, boundary, `max_duration`, aggregates, ids, state (SEMANTICS §2, §5, §9)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import ADDS, JOINS, LEAVES, PENDING, AcceptedChanges
from sessionizer.lib.aggregates.binding import Aggregate, bind
from sessionizer.lib.compare import ADDED, tolerances
from sessionizer.lib.compute import Compute
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.micros import timestamp
from sessionizer.lib.time.spans import within_times
from sessionizer.lib.time.watermarks import WatermarkState, with_clock
from sessionizer.lib.windows.sessions.beside import (
    beside_others,
    near_places,
    places_of,
    spans_of,
    untouched,
    within_ranges,
)
from sessionizer.lib.windows.sessions.boundaries import facts_of_content, is_to_cut, with_cut
from sessionizer.lib.windows.sessions.changes import (
    HOW,
    counts,
    merged_changes,
    recomputed_changes,
    told,
    without_others,
)
from sessionizer.lib.windows.sessions.cuts import cut, in_pieces, told_by_neighbours
from sessionizer.lib.windows.sessions.fold import bucket, fold
from sessionizer.lib.windows.sessions.intervals import (
    LIVE_TYPE,
    apart,
    arriving,
    bare_intervals,
    emptied,
    keeps_arrival_of_key,
    main_population,
    merge_islands,
    new_intervals,
    state_intervals,
)
from sessionizer.lib.windows.sessions.islands import beyond, mark_islands
from sessionizer.lib.windows.sessions.lifecycle import not_forgotten, settle, table_columns, with_last_arrivals
from sessionizer.lib.windows.sessions.places import may_touch, places_again, sessions_apart, unforgotten
from sessionizer.lib.windows.sessions.recompute import (
    REDO,
    mark_roles,
    may_span_others,
    role_columns,
    spans_others_amid,
    to_cut,
    to_merge,
    to_redo,
    with_absorbed,
)
from sessionizer.lib.windows.windows import Around, Merged, Stored


@dataclass(frozen=True)
class Sessions:
    """Sessions by a rule. facts: what partials and rows tell of content. now: the run's wall clock, in microseconds."""

    rule: Rule
    aggregates: tuple[Aggregate, ...]
    now: int
    facts: tuple[Aggregate, ...] = ()

    @classmethod
    def of(cls, rule: Rule, events: DataFrame, now: int) -> "Sessions":
        """Those of such events. Errors: ConfigError, SourceMismatch where the rule does not fit them."""
        facts = (facts_of_content(rule, events),) if rule.by_content else ()
        return cls(rule, (*bind(rule, events), *facts), now, facts)

    def columns(self) -> tuple[str, ...]:
        """The columns of the sessions table."""
        return table_columns(self.rule, self.aggregates)

    def bucket(self) -> Column:
        """The gap-wide bucket of an event."""
        return bucket(self.rule.bucket)

    def fold(self, judged: DataFrame) -> DataFrame:
        """Partial sessions of judged rows."""
        return fold(judged, self.rule, self.aggregates, C.VERDICT)

    def counts(self) -> Mapping[str, Column]:
        """What the ledger tells of sessions."""
        return counts()

    def cut_amid(self) -> Column | None:
        """Where neighbours tell all cuts, partials with one amid them are read again, and no others."""
        return is_to_cut(self.rule) if told_by_neighbours(self.rule) and not self.rule.tells_events else None

    def judge_places(self, folded: DataFrame, around: Around, stored: Stored, clock: WatermarkState) -> DataFrame:
        """By groups (KIP-94): one enters unless its merged reach lies before the horizon, strictly (SEMANTICS §6)."""
        rule, asks = self.rule, F.coalesce(C.col(C.EFFECT).isin(JOINS, ADDS, PENDING), F.lit(False))
        groups = folded.where(asks).withColumn("__there", F.lit(False))
        names = (*rule.key, C.START, C.END, C.REACH)
        low = timestamp(around.low)
        final = stored.final.where(C.col(C.EXPIRES_AT) >= low) if rule.revive and stored.final is not None else None
        for rows in (stored.live, final):
            if rows is not None:
                places = bare_intervals(rows.where(~C.col(C.IS_LATE)), rule)
                there = places.select(*C.cols(names), F.lit(True).alias("__there"))
                groups = groups.unionByName(there, allowMissingColumns=True)
        marked = with_clock(mark_islands(groups, rule), rule, clock)
        group = Window.partitionBy(*C.cols(rule.key), C.col(C.ISLAND))
        enters = ~(F.max(C.col(C.REACH)).over(group) < C.col(C.H))
        told = marked.withColumn(C.ENTERS, enters).where(~F.col("__there"))
        others = folded.where(~asks)
        return told.select(*C.cols((*folded.columns, C.ENTERS))).unionByName(others, allowMissingColumns=True)

    def merge(self, changes: AcceptedChanges, stored: Stored, compute: Compute) -> Merged:
        """Sessions merged with the live ones; recomputed from events where that does not give them."""
        rule = self.rule
        intervals = new_intervals(changes.partials, rule, self.now)
        if changes.again is not None:
            places = places_again(
                changes, changes.again, stored.all(), rule, leaving=self._leaving, now=self.now, compute=compute
            )
            intervals = intervals.unionByName(places, allowMissingColumns=True)
        elif stored.live is not None:
            known = state_intervals(stored.live, rule, self.facts if stored.lacks_state else self.aggregates)
            intervals = intervals.unionByName(known, allowMissingColumns=True)
        if changes.low is None and not (changes.looks_back or stored.lacks_state or self._revives(stored)):
            if not rule.cuts:
                return Merged(self._merged(mark_islands(intervals, rule)))
            if stored.is_empty and C.POPULATION not in intervals.columns:
                return self._first(intervals, changes, compute)
        if C.LIVE not in intervals.columns:
            intervals = intervals.withColumn(C.LIVE, F.lit(None).cast(LIVE_TYPE))
        intervals = self._with_places(intervals, changes, stored, compute)
        roles = mark_roles(intervals, rule, self.facts, changes)
        marked, seen = compute.observed(roles, role_columns())
        others = to_merge(marked)
        if changes.looks_back:  # what is only looked at stays as it is
            others = others.where(F.lit(False))
        # Nothing is compared with rows that are not there.
        merged = self._merged(others.drop(C.LIVE) if stored.is_empty else others)
        if not seen[REDO]:
            return Merged(merged)
        ranges = compute.held(to_redo(marked, rule))
        spans = spans_of(ranges, compute)
        stays = changes.again is not None or (rule.freezes and changes.looks_back)  # all but what is made again
        table = stored.all() if stays else stored.final
        if table is not None and may_span_others(rule):
            made = None
            if rule.freezes and changes.again is None:
                table, each = untouched(table, ranges), [places_of(frame, rule) for frame in (merged, ranges)]
                made = compute.held(each[1] if stays else each[0].unionByName(each[1]))
            ranges, spans = beside_others(ranges, spans, partial(near_places, table, made, rule), rule, compute)
        inside, redone = self._redone(changes.accepted(spans), ranges, compute)
        if keeps_arrival_of_key(rule):  # what does not come back has not just arrived
            if changes.looks_back and stored.live is not None and not stored.lacks_state:
                merged = merged.unionByName(self._woken(stored.live, ranges, changes), allowMissingColumns=True)
            lasting = not_forgotten(compute.held(redone), changes.before)
            merged, redone = with_last_arrivals(rule, merged, lasting)
        return Merged(merged, redone, ranges, inside, spans)

    def settle(self, windows: DataFrame, before: WatermarkState, after: WatermarkState) -> DataFrame:
        """Session rows in their state."""
        return settle(windows, self.rule, before, after, self.aggregates)

    def reaches(self, merged: Merged, stored: Stored, changes: AcceptedChanges) -> DataFrame:
        """Of the sessions as they have become; those apart are final already."""
        names, found = (*self.rule.key, C.REACH), []
        for frame in merged.each():
            main = frame.where(C.col(C.POPULATION).isNull()) if C.POPULATION in frame.columns else frame
            found.append(main.select(*C.cols(names)))
        return found[0] if len(found) == 1 else found[0].unionByName(found[1])

    def diff(self, settled: Merged, stored: Stored, changes: AcceptedChanges, after: WatermarkState) -> DataFrame:
        """Merged sessions with news or in another state; recomputed ones that the table has not just so."""
        rule = self.rule
        found = merged_changes(settled.windows, each_watermark=rule.watermark_per == "key")
        if settled.recomputed is None or settled.ranges is None:
            return told(found, self.columns())
        table = stored.all()
        # An island with new events is one session with more events than any before, unless it is cut or loses some.
        all_differ = not rule.cuts and not changes.leaves and changes.again is None
        compared = (
            None if table is None or all_differ else table.where(within_times(C.col(C.SESSION_START), settled.spans))
        )
        names = tuple(n for n in self.columns() if n not in HOW)
        # Where no event has come or gone, a sum that differs in its last digits is the same.
        within = {} if changes.again is None else tolerances(rule) | {C.STATE: ADDED}
        rows = settled.recomputed
        if spans_others_amid(rule) and compared is not None:
            rows = without_others(rows, settled.ranges, compared)
        redone = recomputed_changes(rows, settled.ranges, compared, names, within)
        return told(found.unionByName(redone, allowMissingColumns=True), self.columns())

    def _merged(self, marked: DataFrame) -> DataFrame:
        return merge_islands(marked, self.rule, self.aggregates, with_buckets=self.rule.tells_events)

    def _first(self, intervals: DataFrame, changes: AcceptedChanges, compute: Compute) -> Merged:
        """Where the table has no session: those that nothing cuts are merged as they are."""
        rule = self.rule
        if self.cut_amid() is not None:
            pieces = in_pieces(intervals, changes, rule, self.aggregates, now=self.now, compute=compute)
            return Merged(self._merged(pieces))
        marked = mark_islands(intervals, rule)
        islands = merge_islands(marked, rule, self.facts).where(is_to_cut(rule))
        bounds = {C.LOW: F.min(C.col(C.LOW)), C.HIGH: F.max(C.col(C.HIGH))}
        ranges, seen = compute.observed(to_cut(islands, rule), bounds)
        merged, low, high = self._merged(marked), seen[C.LOW], seen[C.HIGH]
        if low is None or high is None:
            return Merged(merged)
        spans = [(low, high)]
        inside, redone = self._redone(changes.accepted(spans), ranges, compute)
        return Merged(merged.where(~is_to_cut(rule)), redone, ranges, inside, spans)

    def _redone(self, events: DataFrame, ranges: DataFrame, compute: Compute) -> tuple[DataFrame, DataFrame]:
        """The events in the ranges, and the sessions that they make."""
        rule, by = self.rule, (C.RANGE,)
        inside = within_ranges(events, ranges, rule)
        if rule.cuts:
            inside = cut(inside, rule, compute)
        if rule.tells_events:
            inside = compute.held(inside)
        if not rule.cuts:
            marked = mark_islands(arriving(fold(inside, rule, self.aggregates, *by), rule, self.now), rule, *by)
            return inside, with_absorbed(merge_islands(marked, rule, self.aggregates, *by), ranges, rule)
        marked = arriving(fold(inside, rule, self.aggregates, *by, C.ISLAND, whole=True), rule, self.now)
        made = merge_islands(marked, rule, self.aggregates, *by)
        if rule.by_content:
            made = with_cut(made, rule, (*apart(made, rule), *by), lambda start, reach: beyond(start, reach, rule))
        return inside, with_absorbed(made.drop(C.WHY), ranges, rule)

    def _woken(self, live: DataFrame, ranges: DataFrame, changes: AcceptedChanges) -> DataFrame:
        """The sessions beside what a look back makes anew of the keys of which it takes events in: these have come."""
        key, came = C.cols(self.rule.key), changes.partials.where(C.col(C.EFFECT).isin(JOINS, ADDS))
        keys = main_population(came).select(*key).distinct()
        rows = joined(untouched(live, ranges), keys, self.rule.key, "left_semi")
        each = F.row_number().over(Window.partitionBy(*key).orderBy(C.START))
        alone = state_intervals(rows, self.rule, self.aggregates).withColumn(C.ISLAND, each)
        return merge_islands(alone, self.rule, self.aggregates)

    def _revives(self, stored: Stored) -> bool:
        """Whether events may join final sessions."""
        return self.rule.revive and stored.final is not None

    def _with_places(
        self, intervals: DataFrame, changes: AcceptedChanges, stored: Stored, compute: Compute
    ) -> DataFrame:
        """The intervals, the final rows that they may touch, and the places of live rows that are made again."""
        intervals, forgotten = self._with_final(intervals, changes, stored, compute), changes.before.forgotten
        if forgotten is not None:
            intervals = unforgotten(intervals, forgotten, self.rule, is_again=changes.again is not None)
        if not stored.lacks_state or stored.live is None:
            return intervals
        return intervals.unionByName(emptied(stored.live, self.rule, self.now), allowMissingColumns=True)

    def _with_final(
        self, intervals: DataFrame, changes: AcceptedChanges, stored: Stored, compute: Compute
    ) -> DataFrame:
        """The intervals, and the final rows that what is recomputed may touch: of its keys, and in its time.

        In its reach, too, but for those that nothing in their reach joins: they hold what is added or leaves amid them.
        """
        rule, low, high = self.rule, changes.low, changes.high
        if rule.revive:
            low, high = min((t for t in (low, changes.earliest) if t is not None), default=None), None
        if low is None or stored.final is None:
            return intervals
        affected = F.lit(rule.revive) | C.col(C.EFFECT).isin(ADDS, LEAVES)
        places = intervals.where(C.col(C.LIVE).isNull() & affected)
        near, amid = may_touch(stored.final, rule, low, high), None
        if rule.freezes and changes.again is None:
            main = C.col(C.POPULATION).isNull() if C.POPULATION in places.columns else F.lit(True)
            places = places.select(*C.cols(rule.key), C.col(C.START), C.col(C.END), main.alias("__main"))
            start, end = F.unix_micros(C.col(C.SESSION_START)), F.unix_micros(C.col(C.SESSION_END))
            amid = C.col(C.IS_LATE) | (F.col("__main") & (C.col(C.START) <= end) & (C.col(C.END) >= start))
        else:
            places = places.select(*C.cols(rule.key)).distinct()
        near = joined(near, places, rule.key, "left_semi", amid)
        if changes.again is None:  # else they are there
            found = bare_intervals(near.where(~C.col(C.IS_LATE)), rule)
            intervals = intervals.unionByName(found, allowMissingColumns=True)
        if changes.populations:
            found = sessions_apart(near, stored.final, changes, rule, compute)
            intervals = intervals.unionByName(found, allowMissingColumns=True)
        return intervals

    def _leaving(self, events: DataFrame) -> DataFrame:
        """Places of events of the main population, as what leaves: nothing has arrived there."""
        places = arriving(fold(main_population(events), self.rule, self.aggregates), self.rule, self.now)
        return places.withColumn(C.EFFECT, F.lit(LEAVES))
