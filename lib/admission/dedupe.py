"""Dedupe: copies of accepted events are rejected (SEMANTICS §7)."""

from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import DUPLICATE, FROM_FEED
from lib.admission.past import Past, accepted, aliased, same_as_aliased, without_aliases
from lib.canonical import canonical_json
from lib.expressions import require_columns
from lib.rule import Rule
from lib.time.watermarks import WatermarkState, with_clock

SEEN, CUTS = "__seen", "__originals"


def mark_duplicates(valid: DataFrame, rule: Rule, clock: WatermarkState, past: Past | None) -> DataFrame:
    """Valid events, those `duplicate` that have the key and ids of an accepted event at most `within` away.

    Accepted are events of earlier runs, and of this run the lowest by (time, order_by, row), then the lowest more
    than `within` after it, and so on; events that are late themselves are no originals, unless the rule amends.

    In and out: what `events.validate` returns. Rows with a verdict stay as they are.
    """
    if rule.dedupe is None:
        return valid
    require_columns(rule.dedupe.by, valid, "source.dedupe.by")
    within, ids = rule.dedupe.within, (*rule.key, *rule.dedupe.by)
    us, unjudged = C.col(C.US), C.col(C.VERDICT).isNull()
    rows = _with_past(valid, rule, clock, past, ids)
    copy = unjudged & F.exists(C.col(SEEN), lambda t: F.abs(t - us) <= within)
    candidate = unjudged & ~F.coalesce(copy, F.lit(False))
    if rule.lateness == "event" and rule.late_events != "amend":
        rows = with_clock(rows, rule, clock).drop(C.W, C.MARK, C.FLUSHED)
        candidate = candidate & ~F.coalesce(us < C.col(C.H), F.lit(False))
    alike = Window.partitionBy(*C.cols(ids))
    payload = tuple(n for n in valid.columns if not n.startswith("__") and n not in FROM_FEED)
    row = canonical_json(valid.select(*C.cols(payload)).schema)
    order = [us, *C.cols(rule.order_by), row]
    marked = rows.withColumns({"__copy": copy, "__candidate": candidate})
    times = F.sort_array(F.collect_list(F.when(F.col("__candidate"), us)).over(alike))
    first = F.row_number().over(Window.partitionBy(*C.cols(ids), F.col("__candidate"), us).orderBy(*order)) == 1
    walked = marked.withColumns({CUTS: _originals(times, within), "__first": first})
    original = F.col("__candidate") & F.col("__first") & F.array_contains(F.col(CUTS), us)
    near = F.exists(F.col(CUTS), lambda t: F.abs(t - us) <= within)
    duplicate = unjudged & ~original & reduce(or_, [F.col("__copy"), near])
    verdict = F.when(F.coalesce(duplicate, F.lit(False)), DUPLICATE).otherwise(C.col(C.VERDICT))
    return walked.withColumn(C.VERDICT, verdict).select(*C.cols(tuple(valid.columns)))


def _with_past(
    valid: DataFrame, rule: Rule, clock: WatermarkState, past: Past | None, ids: tuple[str, ...]
) -> DataFrame:
    """The events with `__seen`, the times of accepted events of earlier runs that have their ids."""
    nothing = F.array().cast("array<bigint>")
    bounds = valid.agg(F.min(C.col(C.US)).alias("low"), F.max(C.col(C.US)).alias("high")).first()
    if past is None or bounds is None or bounds["low"] is None:
        return valid.withColumn(SEEN, nothing)
    assert rule.dedupe is not None
    spans = [(bounds["low"] - rule.dedupe.within, bounds["high"] + rule.dedupe.within)]
    near = accepted(past.events(spans, before=True), past.rejected(), rule, clock, spans)
    seen = aliased(near.groupBy(*C.cols(ids)).agg(F.collect_set(C.col(C.US)).alias(SEEN)), ids)
    joined = without_aliases(valid.join(seen, same_as_aliased(ids), "left"))
    return joined.withColumn(SEEN, F.coalesce(C.col(SEEN), nothing))


def _originals(times: Column, within: int) -> Column:
    """Of sorted times the first, the first more than `within` after that, and so on."""

    def step(kept: Column, time: Column) -> Column:
        last = F.element_at(kept, -1)
        return F.when((F.size(kept) == 0) | (time - last > within), F.concat(kept, F.array(time))).otherwise(kept)

    return F.aggregate(times, F.array().cast("array<bigint>"), step)
