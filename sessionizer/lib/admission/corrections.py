"""Corrections: what the source's change feed says beyond added rows (SEMANTICS §8)."""

from dataclasses import replace
from typing import Protocol

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.admission.accepted import placed
from sessionizer.lib.admission.validate import raw_us, validate
from sessionizer.lib.admission.verdicts import (
    BEFORE_START,
    BESIDE,
    CORRECTED,
    CORRECTION,
    FORGOTTEN,
    IGNORED_DELETE,
    IN,
    INVALID,
    LATE,
    OUT,
    WITHDRAWN,
)
from sessionizer.lib.bags import hashed, nth, taken
from sessionizer.lib.expressions import condition_of_event
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState

ERASES = "_commit_metadata = 'erasure'"  # an example


class Deletion(Protocol):
    """What the log tells of a DELETE: its time in microseconds, and its userMetadata."""

    @property
    def timestamp_us(self) -> int:
        """When it was."""

    @property
    def metadata(self) -> str | None:
        """What it says of itself."""


def housekept(changes: DataFrame, rule: Rule, deletion: Deletion | None) -> DataFrame:
    """The rows that a DELETE has taken away, those marked `ignored_delete` that the rule does not mean by `erase_when`.

    In: rows of a change feed; of another commit than a DELETE (None), which only have to fit.
    Errors: ConfigError, SourceMismatch for a condition that does not fit.
    """
    at, metadata = (None, None) if deletion is None else (deletion.timestamp_us, deletion.metadata)
    commit = {
        C.COMMIT_TIMESTAMP: F.timestamp_micros(F.lit(at).cast("bigint")),
        C.COMMIT_METADATA: F.lit(metadata).cast("string"),
    }
    there = {name.lower() for name in changes.columns}
    told = changes.select("*", *[value.alias(name) for name, value in commit.items() if name not in there])
    erases = F.lit(False)
    if rule.erase_when is not None:
        erases, _ = condition_of_event(rule.erase_when, told, "corrections.erase_when", ERASES)
    if deletion is None:
        return changes
    is_ignored = (C.col(C.CHANGE_TYPE) == "delete") & ~F.coalesce(erases, F.lit(False))
    marked = F.when(is_ignored, IGNORED_DELETE).otherwise(C.col(C.CHANGE_TYPE))
    return told.withColumn(C.CHANGE_TYPE, marked).select(*C.cols(tuple(changes.columns)))


def reconciled(
    valid: DataFrame, rejects: DataFrame | None, rule: Rule, forgotten: int | None = None, *, begins: bool = False
) -> DataFrame:
    """Change rows, told as what they do to the accepted bag.

    Rows that were removed and added again as they were (an overwrite does that) are gone: nothing has changed. A row
    that is gone where it had been rejected is `forgotten`; the others are `withdrawn`, from the population that they
    are in, or stay there, where their DELETE is ignored. A row that was added where one of its key and time was removed
    is an update like those that Delta names so. Where the rule does not apply corrections, withdrawals and updates are
    rejected. An update that moves an event to before what has been `forgotten` is judged like any event so old.

    In: what `validate` returns, of a change feed; what `as_rejects` returns. begins: whether rows from before the start
    of a source are there, too. Out: the same rows with `__hash` and, where some events are apart, `__population`.
    """
    net = (_beside_older if begins else _netted)(hashed(valid))
    if rejects is not None:
        stays = (IN,) if rule.corrections == "apply" else (IN, BESIDE)
        standing = rejects.where(~C.col(C.KEPT).isin(*stays))
        net = placed(net, standing, F.when(_is_gone(), F.col("__nth")))
        stays_in = ~C.col(C.TAKEN) & (C.col(C.VERDICT) == IGNORED_DELETE)
        net = net.withColumns(
            {
                C.VERDICT: F.when(C.col(C.TAKEN), FORGOTTEN).otherwise(C.col(C.VERDICT)),
                C.POPULATION: F.when(~F.coalesce(stays_in, F.lit(False)), C.col(C.POPULATION)),
            }
        ).drop(C.TAKEN)
    here = Window.partitionBy(*C.cols((*rule.origin, *rule.key, C.US)))
    came = C.col(C.VERDICT).isNull()
    if rule.corrections == "quarantine":
        came = came | C.col(C.VERDICT).isin(*INVALID)
    replaces = came & C.col(C.US).isNotNull() & F.bool_or(_is_gone()).over(here)
    told = net.withColumn("__was", C.col(C.VERDICT)).drop("__nth")
    told = told.withColumn(C.VERDICT, F.when(replaces, CORRECTED).otherwise(C.col(C.VERDICT)))
    if forgotten is not None:
        of_main = C.col(C.POPULATION).isNull() if C.POPULATION in told.columns else F.lit(True)
        remains = F.bool_or((C.col(C.VERDICT) == WITHDRAWN) & of_main).over(here)
        moves = (C.col(C.VERDICT) == CORRECTED) & (C.col(C.US) < forgotten) & ~F.coalesce(remains, F.lit(False))
        invalid = F.when(F.col("__was").isin(*INVALID), F.col("__was"))
        told = told.withColumn(C.VERDICT, F.when(moves, invalid).otherwise(C.col(C.VERDICT)))
    told = told.drop("__was")
    if rule.corrections == "apply":
        return told
    refused = C.col(C.VERDICT).isin(WITHDRAWN, CORRECTED)
    return told.withColumn(C.VERDICT, F.when(refused, CORRECTION).otherwise(C.col(C.VERDICT)))


def too_old(changes: DataFrame, rejects: DataFrame | None, rule: Rule, clock: WatermarkState) -> DataFrame:
    """Of rows that have come to a source those that are late by what has been forgotten, as `marked` takes rejects.

    In: changes that no run has read, of a change feed; the rows of rejected_events.
    """
    applied = replace(rule, corrections="apply")
    valid = validate(changes, applied, clock).where(C.col(C.US) < F.lit(clock.forgotten))
    of_hash = C.col(C.EVENT_HASH).alias(C.HASH), C.col(C.KEPT), C.col(C.RUN_SEQ).cast("bigint").alias(C.RUN_SEQ)
    # Those apart count, as those of main sessions do.
    standing = None if rejects is None else rejects.where(C.col(C.KEPT) != BESIDE).select(*of_hash)
    old = reconciled(valid, standing, applied, clock.forgotten).where(C.col(C.VERDICT).isNull())
    return old.select(
        *C.cols(rule.origin),
        F.timestamp_micros(raw_us(old)).alias(C.EVENT_TIME),
        F.lit(LATE).alias(C.REASON),
        F.lit(OUT).alias(C.KEPT),
        C.col(C.HASH).alias(C.EVENT_HASH),
        C.col(C.COMMIT_VERSION).alias(C.SOURCE_VERSION),
        F.lit(clock.run_seq).cast("bigint").alias(C.RUN_SEQ),
        nth(C.col(C.COMMIT_VERSION)).alias(C.ORDINAL),
    )


def _beside_older(signed: DataFrame) -> DataFrame:
    """What `_netted` makes of an increment; what it takes away of what lies before the start is `forgotten`."""
    is_older = C.col(C.CHANGE_TYPE).eqNullSafe(F.lit(BEFORE_START))
    net, older = _netted(signed.where(~is_older)), signed.where(is_older)
    told = taken(net.withColumnRenamed("__nth", "__number"), older).withColumnRenamed("__number", "__nth")
    lost = C.col(C.TAKEN) & _is_gone()
    told = told.withColumn(C.VERDICT, F.when(lost, FORGOTTEN).otherwise(C.col(C.VERDICT)))
    left = taken(older, net.where(_is_gone())).where(~C.col(C.TAKEN))
    return told.unionByName(left.withColumn("__nth", F.lit(None).cast("int"))).drop(C.TAKEN)


def _netted(signed: DataFrame) -> DataFrame:
    """The rows without those that undo each other, with `__nth`: 1, 2, … among equal rows that go the same way.

    An update that leaves a row as it was undoes itself, so that what else has come stays what it is.
    """
    same = Window.partitionBy(C.HASH)
    gone, came = F.count_if(_is_gone()).over(same), F.count_if(~_is_gone()).over(same)
    one_way = Window.partitionBy(C.HASH, "__gone").orderBy(F.col("__idle").desc(), C.CHANGE_TYPE)
    undone = F.when(_is_gone(), came).otherwise(gone)
    counted = signed.withColumns({"__gone": _is_gone(), "__undone": undone, "__idle": _changes_nothing(signed)})
    numbered = counted.withColumn("__nth", F.row_number().over(one_way) - F.col("__undone"))
    return numbered.where(F.col("__nth") > 0).drop("__gone", "__undone", "__idle")


def _changes_nothing(signed: DataFrame) -> Column:
    """Whether a row is an image of an update whose other one, of the same commit where they tell it, is equal."""
    of = tuple(name for name in (C.HASH, C.COMMIT_VERSION) if name in signed.columns)
    kind, of_commit = C.col(C.CHANGE_TYPE), Window.partitionBy(*C.cols(of)).orderBy(C.CHANGE_TYPE)
    whole = of_commit.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    both = F.least(*[F.count_if(kind == f"update_{image}").over(whole) for image in ("preimage", "postimage")])
    before = F.row_number().over(of_commit) - F.rank().over(of_commit)  # how many of the same kind
    return F.coalesce(kind.startswith("update_"), F.lit(False)) & (before < both)


def _is_gone() -> Column:
    return F.coalesce(C.col(C.VERDICT).isin(WITHDRAWN, FORGOTTEN, IGNORED_DELETE), F.lit(False))
