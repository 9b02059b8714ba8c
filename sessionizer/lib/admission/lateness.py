"""Late events: those older than the horizon as it stood before the run (SEMANTICS §4, §6)."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import PENDING
from sessionizer.lib.admission.verdicts import APART, IN_REACH, LATE, if_late
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState, with_clock


def judge_late(valid: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Valid events with the watermark and horizon of their scope, and a verdict on those strictly older than it.

    Out: the same columns, `__watermark`, `__horizon` BIGINT; `__verdict`, if it was null, is `late`, or `amended` or
    `apart` where the rule accepts late events. With `lateness: session` it is `pending`: its place decides. What is
    older than all that has been forgotten is `late`, whatever the rule: its session may be gone.
    """
    judged = with_clock(valid, rule, clock, beside=C.col(C.US)).drop(C.MARK, C.FLUSHED)
    old = C.col(C.VERDICT).isNull() & (C.col(C.US) < C.col(C.H))
    late = F.lit(PENDING if rule.lateness == "session" else if_late(rule))
    if clock.forgotten is not None:
        late = F.when(C.col(C.US) < clock.forgotten, LATE).otherwise(late)
    return with_population(judged.withColumn(C.VERDICT, F.when(old, late).otherwise(C.col(C.VERDICT))), rule, clock)


def decided(found: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Rows, or partials of them, of which none is `pending` any more. In: `__enters` BOOLEAN for those that were."""
    late = F.when(~F.coalesce(C.col(C.ENTERS), F.lit(True)), if_late(rule))
    if rule.late_events == "amend":
        late = F.coalesce(late, F.lit(IN_REACH))
    verdict = F.when(C.col(C.VERDICT) == PENDING, late).otherwise(C.col(C.VERDICT))
    return with_population(found.withColumn(C.VERDICT, verdict).drop(C.ENTERS), rule, clock)


def with_places(rows: DataFrame, places: DataFrame, rule: Rule, bucket: Column) -> DataFrame:
    """Events with `__enters`: whether their place takes them in; null where that is not asked.

    In: partials of the pending ones with their `__bucket`, which `bucket` gives of an event, and `__enters`.
    """
    told = places.where(C.col(C.VERDICT) == PENDING).select(*C.cols((*rule.key, C.BUCKET, C.ENTERS)))
    return joined(rows.withColumn(C.BUCKET, bucket), told, (*rule.key, C.BUCKET), "left").drop(C.BUCKET)


def with_population(found: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """The rows with `__population` (null: the main one), where events are apart: those of this run by its number."""
    if rule.late_events != "separate" and C.POPULATION not in found.columns:
        return found
    known = C.col(C.POPULATION) if C.POPULATION in found.columns else F.lit(None).cast("bigint")
    mine = F.lit(clock.run_seq).cast("bigint")
    return found.withColumn(C.POPULATION, F.when(C.col(C.VERDICT) == APART, mine).otherwise(known))
