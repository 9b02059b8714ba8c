"""Corrections: what the source's change feed says beyond added rows (SEMANTICS §8)."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import CORRECTED, LATE, WITHDRAWN, with_hash
from lib.admission.past import aliased, same_as_aliased, without_aliases
from lib.bags import HASH, netted
from lib.rule import Rule


def pair_corrections(judged: DataFrame, rule: Rule) -> DataFrame:
    """Judged change rows, told as what they do to the bag of rows.

    Rows that were removed and added again as they were (an overwrite does that) are gone: nothing has changed. A row
    that was added where one of its key and time was removed is an update like those that Delta names so: not late.

    In and out: what `events.judge_late` returns, of a change feed.
    """
    hashed = with_hash(judged).withColumn(HASH, C.col(C.EVENT_HASH))
    left = netted(hashed).select(*C.cols(tuple(judged.columns)))
    key = (*rule.key, C.US)
    places = left.where(C.col(C.VERDICT) == WITHDRAWN).select(*C.cols(key)).distinct()
    told = left.join(aliased(places.withColumn("__removed", F.lit(True)), key), same_as_aliased(key), "left")
    added = C.col(C.VERDICT).isNull() | (C.col(C.VERDICT) == LATE)
    verdict = F.when(F.col("__removed") & added, CORRECTED).otherwise(C.col(C.VERDICT))
    return without_aliases(told).withColumn(C.VERDICT, verdict).drop("__removed")
