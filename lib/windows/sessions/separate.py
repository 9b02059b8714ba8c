"""Late events apart: sessions of their own, beside those that they came too late for (SEMANTICS §6)."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.aggregates.binding import Aggregate
from lib.rule import Rule
from lib.time.watermarks import WatermarkState
from lib.windows.sessions.fold import fold
from lib.windows.sessions.intervals import arriving, merge_islands
from lib.windows.sessions.islands import mark_islands
from lib.windows.sessions.lifecycle import FINAL, GAP, settle
from lib.windows.sessions.max_duration import walk


def separate_sessions(
    late: DataFrame, rule: Rule, clock: WatermarkState, aggregates: tuple[Aggregate, ...]
) -> DataFrame:
    """Sessions of the late events of one run among themselves, as `lifecycle.settle` makes them: final, `is_late`.

    Their ids hash the flag and the number of the run, so that they meet no other.
    """
    accepted = late.withColumn(C.VERDICT, F.lit(None).cast("string"))
    whole = rule.max_duration is None
    folded = fold(accepted, rule, aggregates, fine=not whole)
    marked = mark_islands(folded, rule) if whole else walk(folded, rule)
    merged = merge_islands(arriving(marked, rule, clock.now), rule, aggregates)
    sessions = merged.withColumn(C.SALT, F.lit(f"late#{clock.run_seq}"))
    settled = settle(sessions, rule, clock, aggregates)
    return settled.withColumns(
        {
            C.IS_LATE: F.lit(True),
            C.IS_FINAL: F.lit(True),
            C.STATUS: F.lit(FINAL),
            C.END_REASON: F.coalesce(C.col(C.END_REASON), F.lit(GAP)),
            C.STATE: F.when(F.lit(False), C.col(C.STATE)),
        }
    )
