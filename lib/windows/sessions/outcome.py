"""What one increment comes to."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import REASONS, WITHDRAWN, as_rejected, rejected
from lib.admission.past import Spans, near_spans
from lib.admission.tally import Tally
from lib.computed import computed
from lib.errors import UsageError
from lib.rule import Rule
from lib.time.micros import DAY, floor_div
from lib.time.watermarks import WatermarkState
from lib.windows.sessions.changes import ABOUT, counts
from lib.windows.sessions.lifecycle import table_columns
from lib.windows.sessions.rederive import OLD
from lib.windows.sessions.step import Redo, Step
from lib.windows.sessions.trace import OLD_ID, Trace, arrived
from lib.windows.sessions.trace import redone as redone_events


@dataclass(frozen=True)
class Outcome:
    """What one increment comes to.

    changes: rows of the sessions table (but run_id) with `__change` = insert | update | delete; computed.
    judged: makes the increment's events with `__us` and `__verdict`; reads them again.
    clock: as it stands after. touched: spans of session_start that hold every row to update or delete; empty where
    all of them are live.
    """

    changes: DataFrame
    judged: Callable[[], DataFrame]
    rule: Rule
    tally: Tally
    counts: Mapping[str, int]
    clock: WatermarkState
    touched: Spans = ()
    traced: Callable[[], Trace] | None = None

    @classmethod
    def of(cls, step: Step, changed: DataFrame, redo: Redo | None, judged: DataFrame, tally: Tally) -> "Outcome":
        """The changes, computed and counted."""
        rule = step.rule
        about = (*ABOUT, C.RANGE, *((C.BUCKETS,) if rule.traces else ()))
        columns = C.cols(table_columns(rule, step.aggregates))
        told = changed.select(*columns, C.col(C.CHANGE), *[_column(n, changed) for n in about])
        held, counted = computed(told, counts(told))
        return cls(
            changes=held.drop(*about),
            judged=lambda: judged,
            rule=rule,
            tally=tally,
            counts={name: n or 0 for name, n in counted.items()},
            clock=step.after,
            touched=_touched(held) if counted.get("touched_final") else (),
            traced=partial(_trace, judged, held, redo, rule) if rule.traces else None,
        )

    def rejected(self) -> DataFrame:
        """The rows of `rejected_events` without the run's own columns."""
        return rejected(self.judged(), self.rule)

    def accepted(self) -> DataFrame:
        """The rows of the increment that went into sessions."""
        judged = self.judged()
        verdict = C.col(C.VERDICT)
        kept = judged.where(verdict.isNull() | ~verdict.isin(*REASONS, WITHDRAWN))
        return kept.select(*[C.col(n) for n in judged.columns if not n.startswith("__")])

    def trace(self) -> Trace:
        """Which session each event went into; needs `Rule.traces`."""
        if self.traced is None:
            raise UsageError("only a rule with traces=True tells which session each event went into")
        return self.traced()

    def withdrawn(self) -> DataFrame:
        """The rows that the source no longer has: the key columns, event_time, event_hash."""
        return as_rejected(self.judged().where(C.col(C.VERDICT) == WITHDRAWN), self.rule)


def _trace(judged: DataFrame, changed: DataFrame, redo: Redo | None, rule: Rule) -> Trace:
    moved = changed.where(C.col(C.INTO).isNotNull())
    renamed = moved.select(C.col(C.SESSION_ID).alias(OLD_ID), C.col(C.INTO).alias(C.SESSION_ID))
    merged = arrived(judged, changed, rule)
    if redo is None:
        return Trace(merged, None, renamed, None)
    removed = redo.ranges.select(F.explode(OLD).alias("row")).select(C.col("row")[C.LIVE][C.SESSION_ID].alias(OLD_ID))
    return Trace(merged, redone_events(redo.inside, redo.rows, rule), renamed, removed)


def _touched(changed: DataFrame) -> list[tuple[int, int]]:
    """Few spans of time that hold the starts of all rows to update or delete."""
    old = changed.where(C.col(C.OLD_START).isNotNull())
    by_day = old.groupBy(floor_div(C.col(C.OLD_START), DAY)).agg(
        F.min(C.col(C.OLD_START)).alias("low"), F.max(C.col(C.OLD_START)).alias("high")
    )
    return near_spans([(row["low"], row["high"]) for row in by_day.collect()])


def _column(name: str, frame: DataFrame) -> Column:
    types = {C.RANGE: "bigint", C.ABSORBED_ROWS: "int", C.BUCKETS: "array<bigint>"}
    return C.col(name) if name in frame.columns else F.lit(None).cast(types.get(name, "string")).alias(name)
