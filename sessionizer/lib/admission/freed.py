"""Rejected events judged again: those that a backfill or `readmit` asks for, and copies whose original is gone."""

from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.admission.accepted import FOREVER, Past, read_back
from sessionizer.lib.admission.rejects import IDENTITY, beyond, is_timeless
from sessionizer.lib.admission.validate import is_let_through, raw_us, validate
from sessionizer.lib.admission.verdicts import (
    BESIDE,
    BY_COLUMNS,
    CORRECTION,
    DUPLICATE,
    FORGOTTEN,
    IGNORED_DELETE,
    IN,
    IN_THE_FUTURE,
    INVALID,
    LATE,
    MOVED,
    OUT,
    READMITTED,
)
from sessionizer.lib.bags import hashed, nth, taken
from sessionizer.lib.compute import Compute
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.spans import day_spans
from sessionizer.lib.time.watermarks import WatermarkState

STILL_IN, PASSES = "__still_in", "__passes"


@dataclass(frozen=True)
class Readmission:
    """Which rejected events are judged again: late ones and those of the future in [low, high), of these keys.

    Those that an expression failed for, or had no time or gap for, too, where they have a time: its columns may have
    other types by now.

    keys: rows of the key columns; None: all. corrections: those that were not applied are made, too. forgotten: what
    is older stays late, so that it is not asked for; corrections are. deletes: none of these, but those deletes that
    were ignored are made.
    """

    low: int
    high: int
    keys: DataFrame | None = None
    corrections: bool = False
    forgotten: int | None = None
    deletes: bool = False


def is_inside(low: int, high: int) -> Column:
    """Whether a row of rejected_events lies in a span; in any, where it is kept in and has no time by today's rule."""
    time = F.unix_micros(C.col(C.EVENT_TIME))
    return F.coalesce((time >= low) & (time < high), C.col(C.KEPT) == IN, F.lit(False))


def asked_for(rejects: DataFrame, asked: Readmission, rule: Rule, compute: Compute) -> DataFrame:
    """The rows of rejected_events that are judged again.

    An update is made whole, wherever it moves its event: with a row in the span go those of the same commit of the
    source, and those of the keys of new rows, which may have moved the same event before or after; and so on. A delete
    that no new row has the key of goes by itself. With one goes what lies apart of what is taken away, or is late by
    what has been forgotten; and those that may be of what is taken away as well, with the reason `forgotten`.
    """
    time = F.unix_micros(C.col(C.EVENT_TIME))
    mine = rejects if asked.keys is None else joined(rejects, F.broadcast(asked.keys), rule.key, "left_semi")
    inside = is_inside(asked.low, asked.high)
    young = F.lit(True) if asked.forgotten is None else time >= asked.forgotten
    found = mine.where(C.col(C.REASON).isin(LATE, IN_THE_FUTURE, *BY_COLUMNS) & inside & young)
    if asked.deletes:
        made = mine.where((C.col(C.REASON) == IGNORED_DELETE) & inside)
        found = made.unionByName(_apart_of(made, rejects, young))
    elif asked.corrections:
        made = _whole(mine.where((C.col(C.REASON) == CORRECTION) & inside), rejects, rule, rule.key, compute)
        also = joined(_apart_of(made, rejects, young, inside), found, IDENTITY, "left_anti")
        found = found.unionByName(made).unionByName(also)
    return found


def not_overtaken(
    rejects: DataFrame, source: DataFrame, rule: Rule, key: tuple[str, ...], compute: Compute
) -> DataFrame:
    """The rows of rejected_events but updates that wait no longer, with all that `readmit` would make with them.

    The new row of such a one is in the source no more, and no run has read what became of it. Where it has no time, it
    waits beside the old one of its commit and key. key: that of the rows, or of a rebuild that has not told them anew.
    """
    key = tuple(name for name in key if name in rejects.columns)
    corrections = rejects.where(C.col(C.REASON) == CORRECTION)
    timeless = beyond(rejects.where(is_timeless() & (C.col(C.KEPT) == OUT)), source)
    names = (*rule.origin, C.SOURCE_VERSION, *key)
    halves = joined(corrections.where(C.col(C.KEPT) == IN), timeless, names, "left_semi")
    lost = beyond(corrections.where(C.col(C.KEPT) == OUT), source).unionByName(halves)
    lost, seen = compute.observed(lost, {"rows": F.count(F.lit(1))})
    if not seen["rows"]:
        return rejects
    return joined(rejects, _whole(lost, rejects, rule, key, compute), IDENTITY, "left_anti")


def _whole(made: DataFrame, rejects: DataFrame, rule: Rule, key: tuple[str, ...], compute: Compute) -> DataFrame:
    """These corrections with the updates of their commits, those of the keys of these, and so on."""
    corrections = rejects.where(C.col(C.REASON) == CORRECTION)
    updates, number = corrections.where(C.col(C.KEPT) == OUT), {"rows": F.count(F.lit(1))}
    made, seen = compute.observed(made, number)
    before: int | None = 0
    while seen["rows"] != before:
        before = seen["rows"]
        for names in ((*rule.origin, C.SOURCE_VERSION), key):
            moved = joined(made, updates, names, "left_semi")
            made = made.unionByName(joined(corrections, moved, names, "left_semi")).dropDuplicates(list(IDENTITY))
        made, seen = compute.observed(made, number)
    return made


def _apart_of(made: DataFrame, rejects: DataFrame, young: Column, *first: Column) -> DataFrame:
    """Of the rows apart, or late by what has been forgotten, as many as these deletions take away; first: which.

    What lies apart since a run behind them is another event, which came again. And all that are invalid of equal
    events: of one that stays in its session a rebuild by another rule has told so beside it. These go with it, or stay.
    """
    gone = made.where(C.col(C.KEPT) == IN).select(C.col(C.EVENT_HASH).alias(C.HASH), C.col(C.RUN_SEQ).alias("__last"))
    late = (C.col(C.KEPT) == BESIDE) | ((C.col(C.REASON) == LATE) & ~young)
    apart = rejects.where(late).withColumn(C.HASH, C.col(C.EVENT_HASH))
    last = gone.groupBy(C.HASH).agg(F.max("__last").alias("__last"))
    since = (C.col(C.KEPT) == BESIDE) & (C.col(C.RUN_SEQ) > F.col("__last"))
    apart = joined(apart, last, (C.HASH,), "inner").where(~since).drop("__last")
    order = (C.col(C.KEPT), *[column.desc() for column in first], C.col(C.RUN_SEQ), C.col(C.ORDINAL))
    found = taken(apart, gone, *order).where(C.col(C.TAKEN)).drop(C.HASH, C.TAKEN)
    invalid = rejects.where((C.col(C.KEPT) == OUT) & C.col(C.REASON).isin(*INVALID))
    hashes = gone.select(C.col(C.HASH).alias(C.EVENT_HASH)).distinct()
    beside = joined(invalid, hashes, (C.EVENT_HASH,), "left_semi").withColumn(C.REASON, F.lit(FORGOTTEN))
    return found.unionByName(beside)


def copies_of(gone: DataFrame, rejects: DataFrame, rule: Rule) -> DataFrame:
    """The rows of rejected_events that may be copies of events which are gone. In: withdrawn rows; the table's rows."""
    assert rule.dedupe is not None
    lost = gone.groupBy(*C.cols(rule.key)).agg(F.collect_set(raw_us(gone)).alias("__lost"))
    near = joined(rejects.where(C.col(C.REASON) == DUPLICATE), lost, rule.key, "inner")
    time, within = F.unix_micros(C.col(C.EVENT_TIME)), rule.dedupe.within + rule.time_unit - 1
    return near.where(F.exists("__lost", lambda t: F.abs(t - time) <= within)).drop("__lost")


def deletions(rejects: DataFrame, source: DataFrame, rule: Rule) -> DataFrame:
    """The events that are gone from the source and stay in their sessions, as `freed` returns them, but `moved`.

    Those that this rule leaves out are in no session: these are `forgotten`.
    """
    rows = read_back(_named(rejects), source)
    told = rows.withColumn(PASSES, is_let_through(rows, rule))
    judged = validate(told, replace(rule, where=None), WatermarkState(FOREVER), (C.FREED, PASSES))
    counts = F.col(PASSES) & C.col(C.VERDICT).isNull()
    return hashed(judged.withColumn(C.VERDICT, F.when(counts, MOVED).otherwise(FORGOTTEN)).drop(PASSES)).drop(C.JSON)


def still_in(rejects: DataFrame, source: DataFrame, rule: Rule) -> DataFrame:
    """The rows of these events by this rule, which may have another key, time or columns than their run's.

    Those that this rule leaves out stay, too: another one may take them in again.
    """
    events = hashed(
        validate(read_back(_named(rejects), source), replace(rule, where=None), WatermarkState(FOREVER), (C.FREED,))
    )
    was = [C.col(C.FREED)[name].alias(name) for name in IDENTITY]
    time = F.timestamp_micros(raw_us(events)).alias(C.EVENT_TIME)
    of_run = rejects.select(*C.cols((*IDENTITY, C.REASON, C.KEPT, C.WATERMARK, C.HORIZON, C.SOURCE_VERSION, C.RUN_ID)))
    named = events.select(*C.cols((*rule.key, *rule.origin)), time, C.col(C.JSON), C.col(C.HASH), *was)
    rows = joined(named, of_run, IDENTITY, "inner")
    alike = Window.partitionBy(C.HASH, C.RUN_SEQ).orderBy(C.EVENT_HASH, C.ORDINAL)
    anew = {C.ORDINAL: F.row_number().over(alike), C.EVENT: C.col(C.JSON), C.EVENT_HASH: C.col(C.HASH)}
    return rows.withColumns(anew).drop(C.JSON, C.HASH)


def freed(  # noqa: PLR0913
    rejects: DataFrame,
    past: Past,
    rule: Rule,
    clock: WatermarkState,
    compute: Compute,
    *,
    made: DataFrame | None = None,
) -> DataFrame | None:
    """The events of these rejected rows, as `validate` returns them; None where there are none.

    They are valid; or corrections, which are made, and copies: what of these is of the future, or invalid, is rejected
    for that.
    They are in the source, or gone from it and in their session still: of the latter those that `made`, deletions of
    the same run, takes away are `forgotten`, as they are no originals.
    `__freed` tells which row of rejected_events each was: event_hash, ordinal, run_seq, reason, kept.
    """
    rejects = rejects.where(C.col(C.KEPT) != IN)
    time = F.unix_micros(C.col(C.EVENT_TIME))
    spans = day_spans(rejects, time, compute)
    if not spans:
        return None
    source = past.events(spans)
    there = validate(source, rule, clock).withColumn(STILL_IN, F.lit(False))
    if (before := past.rejected()) is not None:
        alike = joined(before.where(C.col(C.KEPT) == IN), rejects.select(C.EVENT_HASH), (C.EVENT_HASH,), "left_semi")
        gone = validate(read_back(alike.select(C.col(C.EVENT).alias(C.JSON)), source), rule, clock)
        there = there.unionByName(gone.withColumn(STILL_IN, F.lit(True)))
    places = (*rule.key, C.RAW_US)
    spots = rejects.select(*C.cols(rule.key), time.alias(C.RAW_US))
    near = joined(there.withColumn(C.RAW_US, raw_us(there)), spots, places, "left_semi")
    near, is_in = near.select(*C.cols(tuple(there.columns))), C.col(STILL_IN)
    found = matched(near, rejects, is_in)
    if made is not None:  # what came again since is another event than the one apart
        apart = C.col(C.KEPT) == BESIDE
        beside = matched(near, rejects.where(apart), is_in.desc())
        found = _forgetting(matched(near, rejects.where(~apart), is_in).unionByName(beside), made)
    reason, verdict = C.col(C.FREED)[C.REASON], C.col(C.VERDICT)
    is_judged = (verdict.isNull() & (reason != FORGOTTEN)) | reason.isin(CORRECTION, DUPLICATE)
    return found.where(is_judged | (verdict == FORGOTTEN)).drop(STILL_IN)


def of_main(made: DataFrame, again: DataFrame) -> DataFrame:
    """Deletions, as `deletions` returns them, beside the freed events that they take away.

    Of these each lies apart, or is rejected itself: its own row says what it leaves, and the main population has none.
    """
    elsewhere = taken(made, again.where(C.col(C.VERDICT) == FORGOTTEN))
    return elsewhere.withColumn(C.VERDICT, F.when(C.col(C.TAKEN), FORGOTTEN).otherwise(C.col(C.VERDICT))).drop(C.TAKEN)


def _named(rejects: DataFrame) -> DataFrame:
    """The rows whose events are gone from the source and in their session, as `__json` and `__freed`."""
    return rejects.where(C.col(C.KEPT) == IN).select(C.col(C.EVENT).alias(C.JSON), _as_freed())


def _forgetting(again: DataFrame, gone: DataFrame) -> DataFrame:
    told = taken(again, gone, C.col(STILL_IN).desc())
    is_gone = C.col(C.TAKEN) & C.col(STILL_IN)
    return told.withColumn(C.VERDICT, F.when(is_gone, FORGOTTEN).otherwise(C.col(C.VERDICT))).drop(C.TAKEN)


def matched(events: DataFrame, rejects: DataFrame, *order: Column) -> DataFrame:
    """Of the events as many as these rows reject, each with the row that it is, as `__freed`.

    order: which of equal events go first; none: any.
    """
    named = rejects.select(C.col(C.EVENT_HASH).alias(C.HASH), _as_freed())
    wanted = named.withColumn("__nth", nth(C.col(C.FREED)))
    found = joined(hashed(events).withColumn("__nth", nth(*order)), wanted, (C.HASH, "__nth"), "inner")
    return found.select(*C.cols((*events.columns, C.HASH, C.FREED)))


def _as_freed() -> Column:
    return F.struct(*C.cols((*IDENTITY, C.REASON, C.KEPT))).alias(C.FREED)


def judged_again(marked: DataFrame, rule: Rule, forgotten: int | None = None) -> DataFrame:
    """Freed events with their verdict: `readmitted`, or `duplicate`; what was one and stays one is left out.

    What is older than that which has been `forgotten` has none yet: it is late, but for an update in place.

    An event that was apart leaves its population as well. In: what `mark_duplicates` returns, freed ones among others.
    """
    if C.FREED not in marked.columns:
        return marked
    was, verdict = C.col(C.FREED), C.col(C.VERDICT)
    is_freed = was.isNotNull()
    stays = is_freed & (was[C.REASON] == DUPLICATE) & verdict.eqNullSafe(F.lit(DUPLICATE))
    enters = is_freed & verdict.isNull()
    if forgotten is not None:
        enters = enters & ((C.col(C.US) >= forgotten) | stays_in_place(marked, rule))
    told = marked.where(~F.coalesce(stays, F.lit(False))).withColumn(
        C.VERDICT, F.when(enters, READMITTED).otherwise(verdict)
    )
    moved = told.where(is_freed & (was[C.KEPT] == BESIDE)).withColumns(
        {C.VERDICT: F.lit(MOVED), C.POPULATION: was[C.RUN_SEQ].cast("bigint"), C.FREED: _nothing(marked)}
    )
    return told.unionByName(moved, allowMissingColumns=True)


def stays_in_place(marked: DataFrame, rule: Rule) -> Column:
    """Whether an event is freed where a deletion of the same run takes one away: an update in place is made."""
    of_place = Window.partitionBy(*C.cols((*rule.origin, *rule.key, C.US)))
    left = F.bool_or(C.col(C.VERDICT) == MOVED).over(of_place)
    if C.FREED not in marked.columns:
        return F.lit(False)
    return F.coalesce((C.col(C.FREED)[C.REASON] == CORRECTION) & left, F.lit(False))


def _nothing(marked: DataFrame) -> Column:
    return F.lit(None).cast(marked.schema[C.FREED].dataType)
