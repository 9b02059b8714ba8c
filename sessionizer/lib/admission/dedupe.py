"""Dedupe: copies of accepted events are rejected (SEMANTICS §7)."""

from functools import reduce
from operator import and_, or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.admission.freed import stays_in_place
from sessionizer.lib.admission.verdicts import APART, CORRECTED, DUPLICATE, LATE, if_late
from sessionizer.lib.bags import own_columns
from sessionizer.lib.canonical import canonical_json
from sessionizer.lib.expressions import require_columns
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState, with_clock

SEEN, CUTS, WAS = "__seen", "__originals", "__was"


def mark_duplicates(valid: DataFrame, known: DataFrame | None, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Valid events, those `duplicate` that have the key and ids of an accepted event at most `within` away.

    One without an id, null in any of them, is a copy of nothing.
    Accepted are those known, and of these events the lowest by (time, order_by, row), then the lowest more than
    `within` after it, and so on; events that are late themselves are no originals, unless the rule accepts them.

    In: what `validate` returns, freed events beside them, with `__enters` where places are judged; accepted events that
    were there before, None: none.
    Out: the same rows. Those with a verdict keep it, but for updates of the source, which may be copies, too.
    """
    if rule.dedupe is None:
        return valid
    require_columns(rule.dedupe.by, valid, "source.dedupe.by", compared=True)
    within, ids = rule.dedupe.within, (*rule.key, *rule.dedupe.by)
    us, named = C.col(C.US), [C.col(name).isNotNull() for name in rule.dedupe.by]
    unjudged = reduce(and_, named, F.coalesce(C.col(C.VERDICT) == CORRECTED, F.lit(True)))
    rows = _with_seen(valid, known, ids)
    copy = unjudged & F.exists(C.col(SEEN), lambda t: F.abs(t - us) <= within)
    candidate = unjudged & ~F.coalesce(copy, F.lit(False))
    anywhere = C.col(C.VERDICT).isNotNull()
    if clock.forgotten is not None:  # what is older is late, whatever the rule, and freed or not
        candidate = candidate & (anywhere | ~(us < clock.forgotten) | stays_in_place(rows, rule))
    if C.FREED in valid.columns:
        anywhere = anywhere | C.col(C.FREED).isNotNull()
    late = F.lit(None).cast("boolean")
    if if_late(rule) == LATE or (if_late(rule) == APART and C.FREED in valid.columns):
        if rule.lateness == "event" or WAS in valid.columns:  # where places are judged copies count beside what is old
            rows = with_clock(rows, rule, clock).drop(C.W, C.MARK, C.FLUSHED)
            late = us < C.col(C.H)
        elif C.ENTERS in valid.columns:
            late = ~C.col(C.ENTERS)
    if if_late(rule) == LATE:
        candidate = candidate & (anywhere | ~F.coalesce(late, F.lit(False)))
    alike = Window.partitionBy(*C.cols(ids))
    row = canonical_json(valid.select(*C.cols(own_columns(valid.columns))).schema)
    # Of equal rows the new image of an update counts, which is never late, before one that has come.
    order = [us, *C.cols(rule.order_by), row, F.coalesce(C.col(C.VERDICT) != CORRECTED, F.lit(True))]
    if if_late(rule) == APART:  # one that has been in time before one that is late, and comes apart
        order.append(~anywhere & F.coalesce(late, F.lit(False)))
    # Of equal rows what has been rejected before stays so.
    order += [C.col(C.FREED).isNotNull()] if C.FREED in valid.columns else []
    order += [C.col(C.AGE)] if C.AGE in valid.columns else []
    marked = rows.withColumns({"__copy": copy, "__candidate": candidate})
    times = F.sort_array(F.collect_list(F.when(F.col("__candidate"), us)).over(alike))
    first = F.row_number().over(Window.partitionBy(*C.cols(ids), F.col("__candidate"), us).orderBy(*order)) == 1
    walked = marked.withColumns({CUTS: _originals(times, within), "__first": first})
    original = F.col("__candidate") & F.col("__first") & F.array_contains(F.col(CUTS), us)
    near = F.exists(F.col(CUTS), lambda t: F.abs(t - us) <= within)
    duplicate = unjudged & ~original & reduce(or_, [F.col("__copy"), near])
    verdict = F.when(F.coalesce(duplicate, F.lit(False)), DUPLICATE).otherwise(C.col(C.VERDICT))
    return walked.withColumn(C.VERDICT, verdict).select(*C.cols(tuple(valid.columns)))


def was_judged(valid: DataFrame) -> DataFrame:
    """The rows with the verdict that they have before copies are told, for `only_freed`."""
    return valid.withColumn(WAS, C.col(C.VERDICT))


def only_freed(marked: DataFrame) -> DataFrame:
    """Of rows whose copies are told, just those that were copies before and stay so: new copies count beside others."""
    freed, copy = C.col(C.FREED), C.col(C.VERDICT) == DUPLICATE
    stays = F.coalesce((freed[C.REASON] == DUPLICATE) & copy, F.lit(False))
    return marked.withColumn(C.VERDICT, F.when(stays, DUPLICATE).otherwise(C.col(WAS))).drop(WAS)


def _with_seen(valid: DataFrame, known: DataFrame | None, ids: tuple[str, ...]) -> DataFrame:
    """The events with `__seen`, the times of accepted events that have their ids."""
    nothing = F.array().cast("array<bigint>")
    if known is None:
        return valid.withColumn(SEEN, nothing)
    seen = known.groupBy(*C.cols(ids)).agg(F.collect_set(C.col(C.US)).alias(SEEN))
    return joined(valid, seen, ids, "left").withColumn(SEEN, F.coalesce(C.col(SEEN), nothing))


def _originals(times: Column, within: int) -> Column:
    """Of sorted times the first, the first more than `within` after that, and so on."""

    def step(kept: Column, time: Column) -> Column:
        last = F.element_at(kept, -1)
        return F.when((F.size(kept) == 0) | (time - last > within), F.concat(kept, F.array(time))).otherwise(kept)

    return F.aggregate(times, F.array().cast("array<bigint>"), step)
