"""Rows of rejected_events: what a run adds, and what its changes take away."""

from collections.abc import Collection

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.admission.validate import check_names, event_time_us, raw_us
from sessionizer.lib.admission.verdicts import (
    APART,
    BEFORE_START,
    BESIDE,
    CORRECTION,
    DUPLICATE,
    FORGOTTEN,
    IGNORED_DELETE,
    IN,
    INVALID,
    LATE,
    OUT,
    REASONS,
    STAYS,
    WITHDRAWN,
)
from sessionizer.lib.bags import COMES, GOES, hashed, nth, taken
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule

IDENTITY = (C.EVENT_HASH, C.ORDINAL, C.RUN_SEQ)


def rejected(judged: DataFrame, rule: Rule) -> DataFrame:
    """The rejected among judged events, as rows of `rejected_events` without the run's own columns.

    Out: the key columns, source (of several), event_time, reason, kept (`out`: in the source and in no session; `in`:
    gone from the source and in its session still; `apart`: in a session of late events), watermark, horizon, event
    (canonical JSON; null where the rule says to drop such events), event_hash (SHA-256 of it, hex), ordinal (1, 2, …
    among identical rows of this run), source_version.
    """
    version = C.col(C.COMMIT_VERSION) if C.COMMIT_VERSION in judged.columns else F.lit(None)
    verdict = C.col(C.VERDICT)
    rows = hashed(judged.where(verdict.isin(*REASONS, APART)))
    hash_only = verdict.isin(BEFORE_START, DUPLICATE, APART)
    if rule.late_events == "drop":
        hash_only = hash_only | (verdict == LATE)
    if rule.invalid_events == "drop":
        hash_only = hash_only | verdict.isin(*INVALID)
    return rows.select(
        *C.cols((*rule.key, *rule.origin)),
        F.timestamp_micros(raw_us(judged)).alias(C.EVENT_TIME),
        F.when(verdict == APART, LATE).otherwise(verdict).alias(C.REASON),
        kept(judged).alias(C.KEPT),
        F.timestamp_micros(C.col(C.W)).alias(C.WATERMARK),
        F.timestamp_micros(C.col(C.H)).alias(C.HORIZON),
        F.when(~hash_only, C.col(C.JSON)).alias(C.EVENT),
        C.col(C.HASH).alias(C.EVENT_HASH),
        nth(*([C.col(C.AGE).asc_nulls_last()] if C.AGE in judged.columns else []), version).alias(C.ORDINAL),
        version.cast("bigint").alias(C.SOURCE_VERSION),
    )


def is_timeless() -> Column:
    """Whether a row of rejected_events is an invalid event without a time."""
    return C.col(C.REASON).isin(*INVALID) & C.col(C.EVENT_TIME).isNull()


def marked(  # noqa: PLR0913
    rows: DataFrame,
    back: DataFrame | None,
    rejects: DataFrame,
    lasts: Column,
    rule: Rule,
    *,
    late: tuple[Collection[str], int | None],
) -> DataFrame:
    """The events that a rebuild judges, with what is known of them better as `_change_type`: why they stay out.

    Of equal events as many are marked as are rejected, those of the source first, and with the `_commit_version` of
    theirs; `__age` tells which were rejected before others. An invalid event without a time is of an update, and waits
    with it, where a deletion of its commit waits.

    In: rows of the source; rows that are gone from it and stay in their sessions, None: there are none; rows of
    rejected_events, of which these outlast a rebuild. late: the reasons for which one is late by what has been
    forgotten, and the time before which it is, by the present rule.
    """
    check_names(rows)
    by_mark, mark = late
    of_commit = Window.partitionBy(*C.cols((*rule.origin, C.SOURCE_VERSION)))
    waits, may_be_late = F.bool_or(C.col(C.KEPT) == IN).over(of_commit), C.col(C.REASON).isin(*by_mark)
    told = rejects.where(lasts).withColumn("__waits", is_timeless() & waits)
    stay = told.where((C.col(C.KEPT) != IN) & (F.col("__waits") | may_be_late | ~is_timeless()))
    reason = F.when(F.col("__waits"), CORRECTION).when(may_be_late, LATE).otherwise(C.col(C.REASON))
    of_row = (*C.cols((*IDENTITY, C.KEPT)), C.col(C.EVENT_HASH).alias(C.HASH))
    marks = stay.select(*of_row, reason.alias(C.CHANGE_TYPE), C.col(C.SOURCE_VERSION).alias(C.COMMIT_VERSION))
    others = rejects.where(~F.coalesce(lasts, F.lit(False)) & (C.col(C.KEPT) == OUT)).select(*of_row)
    alike = joined(others, marks.select(C.HASH).distinct(), (C.HASH,), "left_semi")
    aged = marks.unionByName(alike, allowMissingColumns=True)
    aged = aged.withColumn(C.AGE, nth(C.col(C.KEPT).desc(), C.col(C.RUN_SEQ), C.col(C.ORDINAL)))
    aged = aged.withColumn("__nth", nth(C.col(C.CHANGE_TYPE).isNull(), C.col(C.AGE)))
    whole = rows.withColumn("__back", F.lit(False))
    if back is not None:
        whole = whole.unionByName(back.withColumn("__back", F.lit(True)))
    numbered = hashed(whole).withColumn("__nth", nth(F.col("__back")))
    told = joined(numbered, aged.drop(*IDENTITY, C.KEPT), (C.HASH, "__nth"), "left")
    is_old = F.coalesce(event_time_us(told, rule) < F.lit(mark), F.lit(False))
    kind = F.when((C.col(C.CHANGE_TYPE) != LATE) | is_old, C.col(C.CHANGE_TYPE))
    # Of what is gone from the source nothing else is rejected.
    stays = F.col("__back") & ~kind.eqNullSafe(F.lit(LATE))
    told = told.withColumn(C.CHANGE_TYPE, F.when(stays, STAYS).otherwise(kind))
    return told.drop(C.HASH, C.JSON, "__nth", "__back")


def with_whole_ones(rejects: DataFrame, lasts: Column) -> DataFrame:
    """Rows of rejected_events that outlast a rebuild, and those that do not and are kept whole.

    By the columns of today these may be of equal events.
    """
    kept_whole = (C.col(C.KEPT) == OUT) & C.col(C.EVENT).isNotNull()
    return rejects.where(F.coalesce(lasts, F.lit(False)) | kept_whole)


def beyond(rejects: DataFrame, source: DataFrame) -> DataFrame:
    """Those of these events that a source, made again, has no row for: of equal ones it has those that are out first.

    In: rows kept whole.
    """
    told, is_out = rejects.withColumn(C.HASH, C.col(C.EVENT_HASH)), C.col(C.KEPT) == OUT
    left = taken(told, hashed(source).select(C.HASH), is_out.desc()).where(~C.col(C.TAKEN))
    return left.select(*C.cols(tuple(rejects.columns)))


def remaining(rejects: DataFrame, changes: DataFrame) -> DataFrame:
    """Rows of rejected_events without those whose events are gone by changes that no run has read.

    As a run has it (`leaving`): of equal events those that are out go first. In: rows of a change feed.
    """
    told, kind = hashed(changes), C.col(C.CHANGE_TYPE)
    gone = taken(told.where(kind.isin(*GOES)), told.where(kind.isin(*COMES))).where(~C.col(C.TAKEN))
    is_out = C.col(C.KEPT).eqNullSafe(OUT)
    out = rejects.where(is_out).withColumn(C.HASH, C.col(C.EVENT_HASH))
    left = taken(out, gone, C.col(C.RUN_SEQ), C.col(C.ORDINAL)).where(~C.col(C.TAKEN))
    return rejects.where(~is_out).unionByName(left.select(*C.cols(tuple(rejects.columns))))


def kept(judged: DataFrame) -> Column:
    """What becomes of a rejected event: it stays out of sessions, in its session, or in one of late events."""
    verdict = C.col(C.VERDICT)
    told = F.when(verdict == APART, BESIDE).when(verdict == IGNORED_DELETE, IN)
    if C.CHANGE_TYPE in judged.columns:
        told = told.when((verdict == CORRECTION) & C.col(C.CHANGE_TYPE).isin("delete", "update_preimage"), IN)
    return told.otherwise(OUT)


def leaving(rejects: DataFrame, judged: DataFrame, rule: Rule) -> DataFrame:
    """Rows of rejected_events that leave with a run: of events that are gone, or are judged anew.

    Of equal events the rejected ones go first, then those apart, the last of them first, then those in sessions.
    In: rows of the table; judged rows, reconciled. Out: the columns of the table.
    """
    lost = judged.where(C.col(C.VERDICT).isin(FORGOTTEN, WITHDRAWN))
    gone = hashed(lost.where(C.col(C.FREED).isNull()) if C.FREED in judged.columns else lost).select(C.HASH)
    may_go = (OUT, BESIDE) if rule.corrections == "apply" else (OUT,)
    names = C.cols(tuple(rejects.columns))
    numbered = rejects.where(C.col(C.KEPT).isin(*may_go)).withColumn(C.HASH, C.col(C.EVENT_HASH))
    order = (
        C.col(C.KEPT).desc(),
        F.when(C.col(C.KEPT) == OUT, C.col(C.RUN_SEQ)),
        C.col(C.RUN_SEQ).desc(),
        C.col(C.ORDINAL),
    )
    away = taken(numbered, gone, *order).where(C.col(C.TAKEN)).select(*names)
    if C.FREED not in judged.columns:
        return away
    anew = judged.where(C.col(C.FREED).isNotNull()).select(*[C.col(C.FREED)[name].alias(name) for name in IDENTITY])
    return away.unionByName(joined(rejects, anew, IDENTITY, "left_semi")).dropDuplicates(list(IDENTITY))
