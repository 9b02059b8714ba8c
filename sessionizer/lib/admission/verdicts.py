"""Verdicts: what becomes of an event, and what that does to the accepted bag (SEMANTICS §6 to §8)."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import ADDS, JOINS, LEAVES, PENDING
from sessionizer.lib.rule import Rule

# Reasons to reject an event.
BEFORE_START = "before_start"
CORRECTION = "correction"
IGNORED_DELETE = "ignored_delete"
EXPRESSION_FAILED = "expression_failed"
NULL_TIME = "null_time"
NULL_KEY = "null_key"
NON_POSITIVE_GAP = "non_positive_gap"
IN_THE_FUTURE = "in_the_future"
DUPLICATE = "duplicate"
LATE = "late"
UNREADABLE = "unreadable"
BY_COLUMNS = (EXPRESSION_FAILED, NULL_TIME, NON_POSITIVE_GAP)  # which may have a value where columns are wider
INVALID = (EXPRESSION_FAILED, NULL_TIME, NULL_KEY, NON_POSITIVE_GAP, IN_THE_FUTURE, UNREADABLE)
REASONS = (BEFORE_START, CORRECTION, IGNORED_DELETE, *INVALID, DUPLICATE, LATE)

# Ways to be accepted; a row without a verdict is accepted as any event in time.
AMENDED = "amended"  # late, and accepted after all
IN_REACH = "in_reach"  # older than the horizon, and in time by its place; it may touch what is final
CORRECTED = "corrected"  # as it is after an update of the source
READMITTED = "readmitted"  # kept out by an earlier run
APART = "apart"  # late, and in sessions of its own

WITHDRAWN = "withdrawn"  # gone from the source, and from the accepted bag
MOVED = "moved"  # gone from the population that it was in
FORGOTTEN = "forgotten"  # gone from the source, where it was in no session

# PENDING, of `sessionizer.lib.accepted`, is the verdict on an event older than the horizon whose place decides.

STAYS = "stays"  # no verdict, what a rebuild calls the change that is none: gone from the source, and in its session

# What rejected_events says of a row in `kept`.
OUT, IN, BESIDE = "out", "in", "apart"


def if_late(rule: Rule) -> str:
    """The verdict on a late event."""
    return {"amend": AMENDED, "separate": APART}.get(rule.late_events, LATE)


def effect() -> Column:
    """What a row with this `__verdict` does to the accepted bag: `__effect`."""
    verdict = C.col(C.VERDICT)
    enters = verdict.isNull() | (verdict == APART)  # those apart join nothing but each other
    return (
        F.when(enters, JOINS)
        .when(verdict.isin(AMENDED, IN_REACH, CORRECTED, READMITTED), ADDS)
        .when(verdict.isin(WITHDRAWN, MOVED), LEAVES)
        .when(verdict == PENDING, PENDING)
        .alias(C.EFFECT)
    )
