"""Corrections: what the source's change feed says beyond added rows (SEMANTICS §8)."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.accepted import placed
from lib.admission.verdicts import BESIDE, CORRECTED, CORRECTION, FORGOTTEN, IN, WITHDRAWN
from lib.bags import hashed, subtract
from lib.compute import Compute
from lib.joins import joined
from lib.rule import Rule


def reconciled(valid: DataFrame, rejects: DataFrame | None, rule: Rule, compute: Compute) -> DataFrame:
    """Change rows, told as what they do to the accepted bag.

    Rows that were removed and added again as they were (an overwrite does that) are gone: nothing has changed. A row
    that is gone where it had been rejected is `forgotten`; the others are `withdrawn`, from the population that they
    are in. A row that was added where one of its key and time was removed is an update like those that Delta names so.
    Where the rule does not apply corrections, withdrawals and updates are rejected.

    In: what `validate` returns, of a change feed; what `as_rejects` returns. Out: the same rows with `__hash` and,
    where some events are apart, `__population`.
    """
    signed = compute.held(hashed(valid))
    is_gone = C.col(C.VERDICT).isin(WITHDRAWN, FORGOTTEN)
    is_gone = F.coalesce(is_gone, F.lit(False))
    minus, plus = signed.where(is_gone), signed.where(~is_gone)
    gone = compute.held(_where_from(subtract(minus, plus.select(C.HASH)), rejects, rule))
    came = subtract(plus, minus.select(C.HASH))
    key = (*rule.key, C.US)
    removed = gone.select(*C.cols(key)).distinct().withColumn("__removed", F.lit(True))
    replaced = F.when(F.col("__removed") & C.col(C.VERDICT).isNull(), CORRECTED).otherwise(C.col(C.VERDICT))
    came = joined(came, removed, key, "left").withColumn(C.VERDICT, replaced).drop("__removed")
    both = gone.unionByName(came, allowMissingColumns=True)
    if rule.corrections == "apply":
        return both
    refused = C.col(C.VERDICT).isin(WITHDRAWN, CORRECTED)
    return both.withColumn(C.VERDICT, F.when(refused, CORRECTION).otherwise(C.col(C.VERDICT)))


def _where_from(gone: DataFrame, rejects: DataFrame | None, rule: Rule) -> DataFrame:
    """Removed rows with what they were: rejected, apart, or in a session of all."""
    if rejects is None:
        return gone
    standing = rejects.where(C.col(C.KEPT) != IN)
    if rule.corrections != "apply":
        standing = standing.where(C.col(C.KEPT) != BESIDE)
    known = placed(gone, standing)
    return known.withColumn(C.VERDICT, F.when(C.col(C.TAKEN), FORGOTTEN).otherwise(C.col(C.VERDICT))).drop(C.TAKEN)
