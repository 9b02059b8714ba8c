"""One run of sliding windows on one screen: frames in, frames out, no table and no clock of its own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.admission.events import AMENDED, CORRECTED, INVALID, LATE, REASONS, WITHDRAWN, rejected, validate
from lib.aggregates.binding import bind
from lib.bags import HASH, excess, hashed, without
from lib.computed import computed
from lib.time.watermarks import WatermarkState, WatermarkOverride, advance, advance_scopes, advance_to, flush
from lib.windows.sliding.changes import change_counts, settle_windows, window_changes, window_columns
from lib.windows.sliding.news import ANYWAY, RAW, News, fold, judge, with_times
from lib.windows.sliding.places import OLD, PAST, admit
from lib.windows.sliding.rule import SlidingRule
from lib.windows.sliding.windows import merge_points, near, points, truncated, windows

FOREVER = 2**61  # a present time that nothing is ahead of


@dataclass(frozen=True)
class Known:
    """What the tables hold around the news, as they were before the run; None: nothing.

    events: rows of the source that lie in `events_span` at least. rejected: the rejected of them.
    windows: those that are not final and, where `News.recomputes_final`, those that start in `starts_span`.
    """

    events: DataFrame | None = None
    rejected: DataFrame | None = None
    windows: DataFrame | None = None


@dataclass(frozen=True)
class SlideOutcome:
    """What one run comes to.

    changes: rows of the windows table (but run_id) with `__change` = insert | update | delete; computed.
    rejected: makes the new rows of its rejected events; readmitted: makes those of them that leave, if any may.
    events, reasons: counts of events, as in `runs`. starts: first and last start among the changes, in microseconds.
    """

    changes: DataFrame
    rejected: Callable[[], DataFrame]
    readmitted: Callable[[], DataFrame] | None
    events: Mapping[str, int]
    reasons: Mapping[str, int]
    counts: Mapping[str, int]
    starts: tuple[int, int] | None
    clock: WatermarkState


def slide(news: News, known: Known, rule: SlidingRule, clock: WatermarkState, push: WatermarkOverride) -> SlideOutcome:
    """Recompute the windows whose content the news can change, and compare them with those that are there.

    clock: as it stood before; the outcome carries it as it stands after. Order of rows never matters.
    """
    found, late = _decided(news, known, rule, clock)
    made = _windows(found, news, known, rule, clock)
    ends = _ends(made, known, rule) if push.flush else made
    after = _advanced(news, ends, rule, clock, push)
    settled = settle_windows(made, rule, after, news.aggregates)
    felt = news.points.where(C.col(C.VERDICT) == WITHDRAWN) if news.counts[WITHDRAWN] else None
    changed, seen = computed(window_changes(settled, known.windows, felt, rule, after), change_counts())
    first, last = seen.pop("first_start"), seen.pop("last_start")
    leaves = news.counts[WITHDRAWN] and known.events is not None and known.rejected is not None
    return SlideOutcome(
        changes=changed.select(*C.cols(window_columns(rule, news.aggregates)), C.col(C.CHANGE)),
        rejected=partial(rejections, news, found, rule),
        readmitted=partial(_readmitted, news, known, rule, clock) if leaves else None,
        **_tally(news, late),
        counts={name: n or 0 for name, n in seen.items()},
        starts=None if first is None or last is None else (first, last),
        clock=after,
    )


def rejections(news: News, decided: DataFrame, rule: SlidingRule) -> DataFrame:
    """The rejected of the news, as rows of `rejected_events` without the run's own columns."""
    judged = news.judged.withColumn(C.US, C.col(RAW))
    if news.counts[OLD]:
        refused = decided.where(C.col(C.VERDICT) == LATE).select(
            *[C.col(name).alias(f"__key_{i}") for i, name in enumerate(rule.key)], C.col(C.US).alias("__time")
        )
        same = C.col(C.VERDICT) == OLD
        same = same & (truncated(C.col(C.US), rule) == F.col("__time"))
        for i, name in enumerate(rule.key):
            same = same & C.col(name).eqNullSafe(F.col(f"__key_{i}"))
        late = judged.join(refused, same, "left_semi").withColumn(C.VERDICT, F.lit(LATE))
        judged = judged.where(~C.col(C.VERDICT).eqNullSafe(F.lit(OLD))).unionByName(late)
    return rejected(judged, rule.events)


def window_schema(events: DataFrame, rule: SlidingRule) -> T.StructType:
    """The columns of the windows table that this rule makes of such events, run_id included; reads nothing."""
    clock, aggregates = WatermarkState(now=0), bind(rule.events, events)
    folded = fold(judge(events, rule, clock), rule, aggregates)
    settled = settle_windows(windows(folded, rule, aggregates), rule, clock, aggregates)
    fields = settled.select(*C.cols(window_columns(rule, aggregates))).schema.fields
    fields.insert(-1, T.StructField(C.RUN_ID, T.StringType()))
    return T.StructType(fields).toNullable()


def _past(news: News, known: Known, rule: SlidingRule, clock: WatermarkState) -> DataFrame | None:
    """Source rows near the news as they were before, valid ones, whether they were accepted or not."""
    if known.events is None or news.span is None:
        return None
    valid = validate(known.events, rule.events, replace(clock, now=FOREVER)).where(C.col(C.VERDICT).isNull())
    timed = valid.withColumn(C.US, truncated(C.col(C.US), rule)).drop(C.VERDICT)
    changing = C.col(C.VERDICT).isNull() | C.col(C.VERDICT).isin(OLD, WITHDRAWN, *ANYWAY)
    return near(timed, news.points.where(changing & C.col(C.US).isNotNull()), rule)


def _decided(news: News, known: Known, rule: SlidingRule, clock: WatermarkState) -> tuple[DataFrame, int]:
    """The points of the news and those accepted before around them, none of them `old` any more; how many are late."""
    found, late = news.points, news.counts[LATE]
    if (past := _past(news, known, rule, clock)) is not None:
        gone = None if known.rejected is None else known.rejected.select(C.col(C.EVENT_HASH).alias(HASH))
        if news.counts[WITHDRAWN]:
            withdrawn = hashed(news.judged.where(C.col(C.VERDICT) == WITHDRAWN)).select(HASH)
            gone = withdrawn if gone is None else gone.union(withdrawn)
        if gone is not None:
            past = without(hashed(past), gone)
        before = points(past, rule, news.aggregates).withColumn(C.VERDICT, F.lit(PAST))
        found = found.unionByName(before, allowMissingColumns=True)
    if news.counts[OLD]:
        n_late = F.sum(F.when(C.col(C.VERDICT) == LATE, C.col(C.COUNT)))
        found, seen = computed(admit(found, rule), {LATE: n_late})
        late = seen[LATE] or 0
    return found, late


def _windows(found: DataFrame, news: News, known: Known, rule: SlidingRule, clock: WatermarkState) -> DataFrame:
    """The windows that the news may have changed.

    What comes in time, or is still let in, changes windows that are open; the rest changes any.
    """
    verdict = C.col(C.VERDICT)
    change = F.when(verdict.isNull(), 1).when(verdict.isin(WITHDRAWN, *ANYWAY), 2).when(verdict == PAST, 0)
    flagged = found.withColumn(C.CHANGED, change).where(C.col(C.CHANGED).isNotNull() & C.col(C.US).isNotNull())
    if news.counts[WITHDRAWN]:
        # What is gone leaves its mark, and nothing else.
        parts = [name for a in news.aggregates for name in a.part_columns]
        here = verdict != WITHDRAWN
        flagged = flagged.withColumns({name: F.when(verdict.isNull() | here, C.col(name)) for name in parts})
        flagged = flagged.withColumn(C.COUNT, F.when(verdict.isNull() | here, C.col(C.COUNT)).otherwise(0))
    all_new = known.events is None and not news.counts[WITHDRAWN]
    merged = merge_points(flagged.drop(C.CHANGED) if all_new else flagged, rule, news.aggregates)
    early = news.span is not None and news.span[0] - rule.reach < rule.difference
    made = windows(merged, rule, news.aggregates, early=early)
    if all_new and clock.watermark is None and clock.flush_mark is None and clock.scopes is None:
        return made
    is_open = F.coalesce(C.col(C.END) >= C.col(C.H), F.lit(True))
    concerned = is_open if all_new else (C.col(C.CHANGED) == 2) | ((C.col(C.CHANGED) == 1) & is_open)
    return with_times(made, rule, clock, C.H).where(concerned).drop(C.H)


def _ends(made: DataFrame, known: Known, rule: SlidingRule) -> DataFrame:
    """The ends of all windows that are not final, as `__reach`."""
    ends = made.select(*C.cols(rule.key), C.col(C.END).alias(C.REACH))
    if known.windows is None:
        return ends
    return ends.union(known.windows.select(*C.cols(rule.key), F.unix_micros(C.col(C.WINDOW_END)).alias(C.REACH)))


def _advanced(
    news: News, ends: DataFrame, rule: SlidingRule, clock: WatermarkState, push: WatermarkOverride
) -> WatermarkState:
    if rule.events.scope:
        valid = C.col(C.VERDICT).isNull() | C.col(C.VERDICT).isin(LATE, OLD, *ANYWAY)
        t = C.col(C.US)
        of_scope = news.points.where(valid).select(*C.cols(rule.key), t.alias(C.START), t.alias(C.END))
        return advance_scopes(clock, of_scope, ends, rule.events, push)
    after = advance_to(advance(clock, news.earliest, news.latest, rule.events), push.advance_to)
    if not push.flush:
        return after
    row = ends.agg(F.max(C.col(C.REACH)).alias("end")).first()
    return flush(after, None if row is None else row["end"])


def _tally(news: News, late: int) -> dict[str, Mapping[str, int]]:
    """Counts of events; read = accepted + late + invalid. What is withdrawn is no event any more."""
    n = news.counts
    old_accepted = n[OLD] - (late if n[OLD] else 0)
    accepted = n["in_time"] + old_accepted + sum(n[verdict] for verdict in ANYWAY)
    reasons = {reason: n[reason] for reason in REASONS} | {LATE: late}
    invalid = sum(n[reason] for reason in INVALID)
    return {
        "events": {
            "events_read": accepted + late + invalid,
            "accepted": accepted,
            "late": late,
            "invalid": invalid,
            "duplicates": 0,
            "amended": n[AMENDED],
            "corrected": n[CORRECTED],
            "withdrawn": n[WITHDRAWN],
        },
        "reasons": {reason: number for reason, number in reasons.items() if number},
    }


def _readmitted(news: News, known: Known, rule: SlidingRule, clock: WatermarkState) -> DataFrame:
    """Rows of the rejected events whose event is no longer in the source."""
    past = _past(news, known, rule, clock)
    assert known.rejected is not None
    gone = hashed(news.judged.where(C.col(C.VERDICT) == WITHDRAWN)).select(HASH)
    table = known.rejected.withColumn(HASH, C.col(C.EVENT_HASH))
    nothing = gone.limit(0)
    return excess(table, gone, nothing if past is None else hashed(past).select(HASH)).drop(HASH)
