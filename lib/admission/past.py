"""The past: what recomputing sessions from events reads besides the increment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import validate, with_hash
from lib.computed import computed
from lib.rule import Rule
from lib.time.micros import DAY
from lib.time.watermarks import WatermarkState

Spans = Sequence[tuple[int, int]]
# Spans of time that one read is pruned by: each takes time to plan, and files seldom end within a day.
NEAR, APART = 64, DAY


@dataclass(frozen=True)
class Past:
    """What a run may look up.

    sessions: the final rows of the sessions table.
    events: makes the rows of the source in these spans of microseconds, both ends inclusive (None: all of them), as of
    the end of the increment, or (`before=True`) as of its beginning; rows outside the spans may come along.
    rejected: makes the rows of `rejected_events` that earlier runs have written; None: there are none.
    """

    sessions: DataFrame | None
    events: Callable[..., DataFrame]
    rejected: Callable[[], DataFrame | None] = lambda: None


def accepted(
    events: DataFrame, rejected: DataFrame | None, rule: Rule, clock: WatermarkState, spans: Spans | None = None
) -> DataFrame:
    """The accepted set: source rows minus rejected ones, as a bag of whole rows (SEMANTICS §3).

    In: rows of the source; `rejected`: the key columns, event_time and event_hash, one row for each rejected row.
    Out: what `events.validate` returns, of valid rows within these spans of time alone.
    """
    valid = validate(events, rule, clock).where(C.col(C.VERDICT).isNull())
    if spans is not None:
        valid = valid.where(_within(spans))
    if rejected is None:
        return valid
    key = (*rule.key, C.US)
    near = rejected.select(*C.cols(rule.key), F.unix_micros(C.col(C.EVENT_TIME)).alias(C.US), C.col(C.EVENT_HASH))
    near, seen = computed(near if spans is None else near.where(_within(spans)), {"rows": F.count(F.lit(1))})
    if not seen.get("rows"):
        return valid
    counted = near.groupBy(*C.cols((*key, C.EVENT_HASH))).agg(F.count(F.lit(1)).alias("__n"))
    counted = aliased(counted, (*key, C.EVENT_HASH))
    places = aliased(near.select(*C.cols(key)).distinct(), key)
    clean = valid.join(places, same_as_aliased(key), "left_anti")
    suspects = with_hash(valid.join(places, same_as_aliased(key), "left_semi"))
    alike = Window.partitionBy(*C.cols((*key, C.EVENT_HASH))).orderBy(C.US)
    numbered = suspects.withColumn("__ordinal", F.row_number().over(alike))
    left = numbered.join(counted, same_as_aliased((*key, C.EVENT_HASH)), "left")
    kept = left.where(F.col("__ordinal") > F.coalesce(F.col("__n"), F.lit(0)))
    return clean.unionByName(kept.select(*C.cols(tuple(clean.columns))))


def _within(spans: Spans) -> Column:
    return reduce(or_, [C.col(C.US).between(low, high) for low, high in spans], F.lit(False))


def started_within(spans: Spans) -> Column:
    """Whether a row of the sessions table starts in one of these spans; by literals, so that files stay closed."""
    start, at = C.col(C.SESSION_START), F.timestamp_micros
    return reduce(or_, [start.between(at(F.lit(low)), at(F.lit(high))) for low, high in spans], F.lit(False))


def without_withdrawn(rejected: DataFrame, withdrawn: DataFrame) -> DataFrame:
    """Rejected rows but those that the source no longer has."""
    return _numbered(rejected, withdrawn).where(~_gone()).select(*C.cols(tuple(rejected.columns)))


def withdrawn_rejects(rejected: DataFrame, withdrawn: DataFrame) -> DataFrame:
    """Rejected rows that the source no longer has: of equal rows the rejected ones go first, then accepted ones."""
    return _numbered(rejected, withdrawn).where(_gone()).select(*C.cols(tuple(rejected.columns)))


def _numbered(rejected: DataFrame, withdrawn: DataFrame) -> DataFrame:
    order = [C.col(n) for n in (C.RUN_SEQ, C.ORDINAL) if n in rejected.columns] or [C.col(C.EVENT_TIME)]
    alike = Window.partitionBy(C.EVENT_HASH).orderBy(*order)
    gone = withdrawn.groupBy(C.col(C.EVENT_HASH).alias("__hash")).agg(F.count(F.lit(1)).alias("__n"))
    numbered = rejected.withColumn("__ordinal", F.row_number().over(alike))
    return numbered.join(gone, C.col(C.EVENT_HASH) == F.col("__hash"), "left")


def _gone() -> Column:
    return F.col("__ordinal") <= F.coalesce(F.col("__n"), F.lit(0))


def aliased(frame: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """The frame with these columns under names that `same_as_aliased` compares them by."""
    others = [C.col(n) for n in frame.columns if n.lower() not in {name.lower() for name in names}]
    return frame.select(*[C.col(name).alias(f"__as_{i}") for i, name in enumerate(names)], *others)


def same_as_aliased(names: tuple[str, ...]) -> Column:
    """Null-safe equality of these columns with those of an `aliased` frame."""
    return reduce(
        lambda a, b: a & b, [C.col(n).eqNullSafe(F.col(f"__as_{i}")) for i, n in enumerate(names)], F.lit(True)
    )


def without_aliases(frame: DataFrame) -> DataFrame:
    """The frame without the columns that `aliased` has named."""
    return frame.drop(*[n for n in frame.columns if n.startswith("__as_")])


def near_spans(spans: Spans, most: int = NEAR, apart: int = APART) -> list[tuple[int, int]]:
    """At most so many spans, further apart than that (microseconds), that cover all of these: narrow gaps are closed.

    >>> near_spans([(0, 1), (100, 101), (3, 4)], apart=5)
    [(0, 4), (100, 101)]
    >>> near_spans([(0, 1), (100, 101), (3, 4)], most=2, apart=0)
    [(0, 4), (100, 101)]
    """
    merged: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if merged and low - merged[-1][1] <= apart:
            merged[-1] = (merged[-1][0], max(high, merged[-1][1]))
        else:
            merged.append((low, high))
    gaps = sorted(range(1, len(merged)), key=lambda i: merged[i][0] - merged[i - 1][1], reverse=True)
    cuts = sorted(gaps[: most - 1])
    parts = [merged[a:b] for a, b in zip([0, *cuts], [*cuts, len(merged)], strict=True)]
    return [(part[0][0], part[-1][1]) for part in parts if part]
