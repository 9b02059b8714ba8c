"""Rejections judged again, each by what its run knew: what verify finds wrong in rejected_events."""

from collections.abc import Sequence
from functools import reduce
from operator import and_

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.admission.validate import raw_us
from sessionizer.lib.admission.verdicts import (
    BEFORE_START,
    BESIDE,
    BY_COLUMNS,
    CORRECTION,
    DUPLICATE,
    IGNORED_DELETE,
    IN,
    IN_THE_FUTURE,
    INVALID,
    LATE,
    OUT,
)
from sessionizer.lib.config import Dedupe
from sessionizer.lib.durations import EVER
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.verifying import rules
from sessionizer.lib.verifying.bag import APART, REJECTED, ROW, THERE, of_rejects

OF_RUN = "__horizon_us"  # of these runs: what was older was late; null: each scope, or row, has its own
HAS_SCOPES = "__has_scopes"  # of these runs: whether the horizons of all their scopes are told
FORGOTTEN = "__forgotten_us"  # of these runs: what ended before it had been forgotten
WAITS, STAYS = "__waits", "__stays"  # of these runs: whether corrections wait by their policy, and deletes are ignored
LEAVES_OUT, SETS_APART = "__leaves_out", "__sets_apart"  # of these runs: what becomes of late events by their policy
SAME_COLUMNS = "__same_columns"  # of these runs: whether the source has the columns that they have read
LIMIT = "__limit_us"  # of the runs that are known: the latest event time that was not in the future


def without_cause(
    rejects: DataFrame, runs: DataFrame, scopes: DataFrame | None, rule: Rule, began: Sequence[str]
) -> dict[str, DataFrame]:
    """Rows of rejected_events that say of themselves that they are wrong, by the rule that they break.

    runs: run_seq, `__horizon_us`, `__forgotten_us` and `__limit_us` BIGINT, `__waits`, `__stays`, `__leaves_out`,
    `__sets_apart` (null: it has those of others, too) and `__has_scopes` BOOLEAN of the runs that are known; scopes: as
    of `horizons_of_scopes`; began: the sources that runs have not read from the start.
    """
    met = joined(rejects, F.broadcast(runs), (C.RUN_SEQ,), "left")
    if scopes is not None:
        met = joined(met, F.broadcast(scopes), (C.RUN_SEQ, *rule.scope), "left")
    of_scope = F.lit(None).cast("bigint") if scopes is None else C.col(C.SCOPE_FLUSH_MARK)
    reason, time = C.col(C.REASON), C.col(C.EVENT_TIME)
    judged = F.unix_micros(time) - F.pmod(F.unix_micros(time), F.lit(rule.time_unit))
    # Of its key's horizon a row tells, and there may have been none; not of that of scopes.
    told = F.when(~F.coalesce(F.col(HAS_SCOPES), F.lit(False)), F.unix_micros(C.col(C.HORIZON)))
    unknown = F.coalesce(told, F.when(F.col(HAS_SCOPES).isNotNull(), F.lit(-EVER)))
    horizon = F.greatest(F.coalesce(F.col(OF_RUN), of_scope, unknown), F.col(FORGOTTEN))
    not_ahead = judged <= F.col(LIMIT)
    is_older = C.col(C.SOURCE).isin(*began) if rule.sources else F.lit(bool(began))
    out = (C.col(C.KEPT) == OUT) & F.coalesce(judged >= F.col(FORGOTTEN), F.lit(True)) & ~F.col(LEAVES_OUT)
    of_no_policy = (reason == LATE) & (out | ((C.col(C.KEPT) == BESIDE) & ~F.col(SETS_APART)))
    of_no_config = (reason == BEFORE_START) & ~is_older | (reason == DUPLICATE) & F.lit(rule.dedupe is None)
    wrong = {
        rules.IS_LATE: (reason == LATE) & (judged >= horizon),
        rules.IS_AHEAD: (reason == IN_THE_FUTURE) & not_ahead,
        rules.MAY_WAIT: (reason == CORRECTION) & ~F.col(WAITS) | (reason == IGNORED_DELETE) & ~F.col(STAYS),
        rules.HAS_CAUSE: of_no_config | of_no_policy,
    }
    return {name: met.where(condition).select(*_shown(rule)) for name, condition in wrong.items()}


def not_of_the_source(near: DataFrame, rejects: DataFrame, runs: DataFrame, rule: Rule) -> dict[str, DataFrame]:
    """Rows of rejected_events that the source does not have, or has as valid events.

    In: what `alike` returns, of the whole source; rows of rejected_events; runs as of `without_cause`, and
    `__same_columns` BOOLEAN: what an expression had no value for it may have one for by wider columns, and stays.
    """
    out = rejects.where(C.col(C.KEPT) != IN).withColumn(C.HASH, C.col(C.EVENT_HASH))
    known = of_rejects(near, rejects)
    missing = known.where(F.col(THERE) < F.col(REJECTED) + F.size(APART))
    valid = known.where(F.col(ROW).isNotNull() & F.col(ROW)[C.VERDICT].isNull())
    met = joined(out, F.broadcast(runs.select(C.RUN_SEQ, SAME_COLUMNS)), (C.RUN_SEQ,), "left")
    as_told = (~C.col(C.REASON).isin(*BY_COLUMNS)) | F.coalesce(F.col(SAME_COLUMNS), F.lit(False))
    by_itself = met.where(C.col(C.REASON).isin(*INVALID) & (C.col(C.REASON) != IN_THE_FUTURE) & as_told)
    return {
        rules.IN_SOURCE: joined(out, missing, (C.HASH,), "left_semi").select(*_shown(rule)),
        rules.IS_INVALID: joined(by_itself, valid, (C.HASH,), "left_semi").select(*_shown(rule)),
    }


def not_kept(near: DataFrame, rejects: DataFrame | None, rule: Rule, forgotten: int | None) -> DataFrame:
    """Rows of the source that are not valid, of more copies than rejected_events has.

    Not asked for: those without a time, and of before what has been forgotten (microseconds), which may leave it.
    In: what `alike` returns, of the whole source; rows of rejected_events, None: there are none.
    """
    invalid = near.where(F.col(ROW)[C.VERDICT].isin(*INVALID))
    if rejects is not None:
        kept = rejects.groupBy(C.col(C.EVENT_HASH).alias(C.HASH)).agg(F.count(F.lit(1)).alias(REJECTED))
        met = joined(invalid, kept, (C.HASH,), "left")
        invalid = met.where(F.col(THERE) > F.coalesce(F.col(REJECTED), F.lit(0)))
    rows = invalid.select(f"{ROW}.*")
    time = raw_us(rows)
    young = rows.where(time.isNotNull() if forgotten is None else time >= forgotten)
    return young.select(*C.cols(rule.key), F.timestamp_micros(time).alias(C.EVENT_TIME), C.col(C.VERDICT))


def copies_of_nothing(there: DataFrame, accepted: DataFrame, rejects: DataFrame, rule: Rule, by: Dedupe) -> DataFrame:
    """Duplicates of nothing.

    In: what `alike` returns, of the whole source; the accepted ones; rows of rejected_events.
    """
    ids = (*rule.key, *by.by)
    duplicates = rejects.where(C.col(C.REASON) == DUPLICATE)
    copies = of_rejects(there, duplicates).where(F.col(ROW).isNotNull()).select(f"{ROW}.*")
    originals = _with_ids(accepted, by).select(*C.cols(ids), C.col(C.US).alias("__original"))
    alone = joined(copies, originals, ids, "left_anti", F.abs(F.col("__original") - C.col(C.US)) <= by.within)
    return alone.select(*C.cols(rule.key), F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME))


def taken_twice(accepted: DataFrame, rule: Rule, by: Dedupe) -> DataFrame:
    """Accepted events that are copies of each other. In: all of them."""
    before = F.lag(C.col(C.US)).over(Window.partitionBy(*C.cols((*rule.key, *by.by))).orderBy(C.US))
    twice = _with_ids(accepted, by).withColumn("__before", before).where(C.col(C.US) - F.col("__before") <= by.within)
    return twice.select(*C.cols(rule.key), F.timestamp_micros(C.col(C.US)).alias(C.EVENT_TIME))


def _with_ids(accepted: DataFrame, by: Dedupe) -> DataFrame:
    """Those that may be copies."""
    return accepted.where(reduce(and_, [C.col(name).isNotNull() for name in by.by]))


def _shown(rule: Rule) -> list[str]:
    return [*(C.quoted(name) for name in rule.key), C.EVENT_TIME, C.REASON]
