"""Sliding windows: always made from the accepted events around what has changed (SEMANTICS §10, KIP-450)."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import ADDS, LEAVES, AcceptedChanges, Again
from sessionizer.lib.aggregates.binding import UNSEEN_OF_WINDOWS, Aggregate, state_struct, with_sql_columns
from sessionizer.lib.aggregates.evolution import told_by
from sessionizer.lib.compare import ADDED, same_row, tolerances
from sessionizer.lib.compute import Compute
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.spans import within_times
from sessionizer.lib.time.watermarks import WatermarkState, with_clock
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.lib.windows.sliding.windows import PAST, mark_entering, merge_points, near, points, windows
from sessionizer.lib.windows.windows import DELETE, INSERT, UPDATE, Around, Merged, Stored

WAS = "__was_"  # before the names of what the table holds


@dataclass(frozen=True)
class SlidingWindows:
    """Sliding windows by a rule."""

    of: SlidingRule
    aggregates: tuple[Aggregate, ...]

    @property
    def rule(self) -> Rule:
        """What admission judges events by."""
        return self.of.events

    def columns(self) -> tuple[str, ...]:
        """The columns of the windows table."""
        results = [name for a in self.aggregates for name in a.result_columns]
        return (*self.of.key, *C.BEFORE_WINDOW_AGGREGATES, *results, C.IS_FINAL, C.STATE)

    def bucket(self) -> Column:
        """The time of an event."""
        return C.col(C.US)

    def fold(self, judged: DataFrame) -> DataFrame:
        """Points of judged rows: one for each distinct time."""
        t = C.col(C.US)
        edges = {C.BUCKET: t, C.START: t, C.END: t, C.REACH: F.try_add(t, F.lit(self.of.reach))}
        return points(judged, self.of, self.aggregates, C.VERDICT).withColumns(edges)

    def counts(self) -> Mapping[str, Column]:
        """What the ledger tells of windows."""
        change, final, was_final = C.col(C.CHANGE), C.col(C.IS_FINAL), F.coalesce(C.col(C.WAS_FINAL), F.lit(False))
        return {
            "rows": F.count(F.lit(1)),
            "created": F.count_if(change == INSERT),
            "updated": F.count_if(change == UPDATE),
            "deleted": F.count_if(change == DELETE),
            "finalised": F.count_if((change != DELETE) & final & ~was_final),
            "touched_final": F.count_if((change != INSERT) & was_final),
            "live_change": F.sum(
                F.when((change != DELETE) & ~final, 1).otherwise(0)
                - F.when((change != INSERT) & ~was_final, 1).otherwise(0)
            ),
        }

    def cut_amid(self) -> None:
        """Those of one time are never apart."""

    def judge_places(self, folded: DataFrame, around: Around, stored: Stored, clock: WatermarkState) -> DataFrame:
        """An old event enters if it lies in a window that is open."""
        asks = folded.where(C.col(C.EFFECT).isNotNull())
        known = near(around.known([self._felt_by(around.low, around.high)]), asks, self.of)
        before = points(known, self.of, ()).withColumn(C.EFFECT, F.lit(PAST))
        found = with_clock(asks, self.rule, clock).unionByName(before, allowMissingColumns=True)
        told = mark_entering(found, self.of).where(C.col(C.EFFECT) != PAST)
        others = folded.where(C.col(C.EFFECT).isNull())
        return told.select(*C.cols((*folded.columns, C.ENTERS))).unionByName(others, allowMissingColumns=True)

    def merge(self, changes: AcceptedChanges, stored: Stored, compute: Compute) -> Merged:
        """The windows that the changes may have changed, and those that are to be made again.

        What joins changes windows that are open; the rest changes any.
        """
        changed = changes.partials.where(C.col(C.EFFECT).isNotNull() & C.col(C.US).isNotNull())
        is_new = stored.is_empty and not changes.leaves and changes.again is None
        first, last = self._between(changes)
        if is_new:
            found = merge_points(changed, self.of, self.aggregates)
        else:
            flag = F.when(C.col(C.EFFECT).isin(ADDS, LEAVES), 2).otherwise(1)
            marks = changed.select(
                *C.cols((*self.of.key, C.US)), F.lit(0).cast("bigint").alias(C.COUNT), flag.alias(C.CHANGED)
            )
            around = changes.accepted([self._felt_by(first, last)])
            again = changes.again
            content = near(around, changed, self.of) if again is None else again.of_keys(around, self.of.key)
            marked = points(content, self.of, self.aggregates).withColumn(C.CHANGED, F.lit(0))
            found = merge_points(marked.unionByName(marks, allowMissingColumns=True), self.of, self.aggregates)
        made = windows(found, self.of, self.aggregates, early=first - self.of.reach < self.of.difference)
        is_open = F.coalesce(C.col(C.END) >= C.col(C.H), F.lit(True))
        concerned = is_open if is_new else (C.col(C.CHANGED) == 2) | ((C.col(C.CHANGED) == 1) & is_open)
        if changes.again is not None:
            concerned = concerned | self._touches(C.col(C.START), changes.again)
        timed = with_clock(made, self.rule, changes.before)
        return Merged(timed.where(concerned).select(*C.cols(tuple(made.columns))))

    def settle(self, windows: DataFrame, before: WatermarkState, after: WatermarkState) -> DataFrame:
        """Rows of the windows table in their state: final iff the end is before the horizon (strictly).

        What ended before that which has been forgotten does not come back.
        """
        if after.forgotten is not None:
            windows = windows.where(C.col(C.END) >= after.forgotten)
        final = F.coalesce(C.col(C.END) < C.col(C.H), F.lit(False))
        rows = with_clock(windows, self.rule, after).select(
            *C.cols(self.of.key),
            F.timestamp_micros(C.col(C.START)).alias(C.WINDOW_START),
            F.timestamp_micros(C.col(C.END)).alias(C.WINDOW_END),
            F.timestamp_micros(C.col(C.LAST)).alias(C.LAST_EVENT_TIME),
            C.col(C.COUNT).alias(C.EVENT_COUNT),
            *[result for a in self.aggregates for result in a.finish()],
            final.alias(C.IS_FINAL),
            F.when(~final, state_struct(self.aggregates)).alias(C.STATE),
        )
        return with_sql_columns(rows, self.aggregates, UNSEEN_OF_WINDOWS).select(*C.cols(self.columns()))

    def reaches(self, merged: Merged, stored: Stored, changes: AcceptedChanges) -> DataFrame:
        """The ends of all windows that are not final, but of those that the changes take away."""
        ends = merged.windows.select(*C.cols(self.of.key), C.col(C.END).alias(C.REACH))
        if stored.live is None:
            return ends
        stay = self._felt(stored.live, changes).where(~F.col("__felt"))
        return ends.union(stay.select(*C.cols(self.of.key), F.unix_micros(C.col(C.WINDOW_END)).alias(C.REACH)))

    def diff(self, settled: Merged, stored: Stored, changes: AcceptedChanges, after: WatermarkState) -> DataFrame:
        """Windows that the table has not just so, and those that have nothing to hold any more.

        Out: the columns of the table but run_id, `__was_final`, `__old_start` (BIGINT; both null for a new row) and
        `__change`.
        """
        known, rows = self._known(stored, changes), settled.windows
        if known is None:
            nothing = {C.WAS_FINAL: "boolean", C.OLD_START: "bigint"}
            news = [F.lit(None).cast(kind).alias(name) for name, kind in nothing.items()]
            return rows.select("*", *news, F.lit(INSERT).alias(C.CHANGE))
        known = told_by(known, rows.schema)  # whose state may have its parts in another order
        names, types = known.columns, {f.name: f.dataType for f in known.schema.fields}
        before = self._final_by_now(self._felt(known, changes), changes, after).select(
            *[C.col(n).alias(WAS + n) for n in names], "__felt", "__final_now", F.lit(True).alias("__there")
        )
        same_place = [C.col(name).eqNullSafe(C.col(WAS + name)) for name in (*self.of.key, C.WINDOW_START)]
        met = rows.withColumn("__new", F.lit(True)).join(before, reduce(Column.__and__, same_place), "full_outer")
        # Where no event has come or gone, a sum that differs in its last digits is the same.
        within = {} if changes.again is None else tolerances(self.rule) | {C.STATE: ADDED}
        was = {n: C.col(WAS + n) for n in names}
        same = same_row({n: C.col(n) for n in names}, was, types, within, C.col(C.EVENT_COUNT))
        new, there = F.col("__new").isNotNull(), F.col("__there").isNotNull()
        change = (
            F.when(new & ~there, INSERT)
            .when(new & ~same, UPDATE)
            .when(~new & F.col("__felt"), DELETE)
            .when(~new & F.col("__final_now") & ~C.col(WAS + C.IS_FINAL), UPDATE)
        )
        kept = {C.IS_FINAL: F.col("__final_now"), C.STATE: F.lit(None)}
        changed = met.withColumn(C.CHANGE, change).where(C.col(C.CHANGE).isNotNull())
        return changed.select(
            *[F.when(new, C.col(n)).otherwise(kept.get(n, C.col(WAS + n))).alias(n) for n in names],
            C.col(WAS + C.IS_FINAL).alias(C.WAS_FINAL),
            F.unix_micros(C.col(WAS + C.WINDOW_START)).alias(C.OLD_START),
            C.col(C.CHANGE),
        )

    def _known(self, stored: Stored, changes: AcceptedChanges) -> DataFrame | None:
        """Rows of the table that are not final, and those that start where the changes may change any."""
        if stored.final is None or (changes.low is None and changes.again is None):
            return stored.live
        first, last = self._between(changes)
        final = stored.final.where(
            within_times(C.col(C.WINDOW_START), [(first - self.of.difference, last + self.of.unit)])
        )
        return Stored(stored.live, final).all()

    def _felt(self, known: DataFrame, changes: AcceptedChanges) -> DataFrame:
        """Rows with whether they are made again, or a time that may have taken them away lies in `[start - u, end]`."""
        felt = F.lit(False)
        if (again := changes.again) is not None:
            start = F.unix_micros(C.col(C.WINDOW_START))
            felt = self._touches(start, again)
            if again.keys is not None:
                named = again.keys.withColumn("__named", F.lit(True))
                known = joined(known, F.broadcast(named), self.of.key, "left")
                felt = felt & F.col("__named").isNotNull()
        known = known.withColumn("__felt", felt).drop("__named")
        if not changes.leaves:
            return known
        gone = changes.partials.where(C.col(C.EFFECT) == LEAVES)
        marks = gone.select(*C.cols(self.of.key), C.col(C.US), F.lit(True).alias("__mark"))
        placed = known.withColumn(C.US, F.unix_micros(C.col(C.WINDOW_START)))
        both = placed.unionByName(marks, allowMissingColumns=True)
        by_key = Window.partitionBy(*C.cols(self.of.key)).orderBy(C.US)
        by_time = by_key.rangeBetween(-self.of.unit, self.of.difference)
        marked = both.withColumn("__felt", F.col("__felt") | F.coalesce(F.max("__mark").over(by_time), F.lit(False)))
        return marked.where(F.col("__mark").isNull()).drop("__mark", C.US)

    def _final_by_now(self, known: DataFrame, changes: AcceptedChanges, clock: WatermarkState) -> DataFrame:
        """Rows with whether they are final; what is only looked at stays as it is."""
        if changes.looks_back:
            return known.withColumn("__final_now", C.col(C.IS_FINAL))
        now = with_clock(known, self.rule, clock)
        final = F.coalesce(F.unix_micros(C.col(C.WINDOW_END)) < C.col(C.H), F.lit(False)) | C.col(C.IS_FINAL)
        return now.withColumn("__final_now", final).select(*C.cols(tuple(known.columns)), "__final_now")

    def _touches(self, start: Column, again: Again) -> Column:
        """Whether a window that starts then (BIGINT) is to be made again, if it is of these keys."""
        return (start < again.high) & (start + self.of.difference >= again.low)

    def _between(self, changes: AcceptedChanges) -> tuple[int, int]:
        """Between which whole units (inclusive) all lies that has changed or is to be made again."""
        times = [t for t in (changes.first, changes.last) if t is not None]
        if (again := changes.again) is not None:
            times += [t - t % self.of.unit for t in (again.low, again.high - 1)]
        return (min(times), max(times)) if times else (0, 0)

    def _felt_by(self, first: int, last: int) -> tuple[int, int]:
        """Between which times (inclusive) lie all events that share a window with one between these."""
        return first - self.of.reach, last + self.of.reach + self.of.unit - 1
