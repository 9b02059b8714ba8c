"""Runs over frames alone: no table, no files. What a table would hold is kept by whoever plays."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.run.compute import Checkpoints
from sessionizer.jobs.run.kinds import schema_of
from sessionizer.jobs.run.pipeline import NO_OVERRIDE, RunResult, compute_run
from sessionizer.lib import columns as C
from sessionizer.lib.admission.accepted import Past as AdmissionPast
from sessionizer.lib.admission.admission import Admission
from sessionizer.lib.admission.rejects import rejected
from sessionizer.lib.aggregates.binding import OF_WINDOWS, bind
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkOverride, WatermarkState, clocks_of_keys
from sessionizer.lib.windows.sessions.sessions import Sessions
from sessionizer.lib.windows.sliding.rule import SlidingRule
from sessionizer.lib.windows.sliding.sliding import SlidingWindows
from sessionizer.lib.windows.windows import Stored, Windows, apply

__all__ = ["Past", "RunResult", "apply", "corrected", "judge", "rejected", "session_schema", "sessionize", "slide"]


@dataclass(frozen=True)
class Past:
    """What a run may look up.

    final: the final rows of the table. events: makes the rows of the source, those of the run among them. rejected:
    makes the rejected events of earlier runs.
    """

    final: DataFrame | None
    events: Callable[[Any], DataFrame]
    rejected: Callable[[], DataFrame | None] = lambda: None


def judge(events: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """The verdict on each event by itself."""
    return Admission(events, rule, clock, None, Checkpoints(), is_first=True).judged()


def corrected(events: DataFrame, rule: Rule, clock: WatermarkState) -> DataFrame:
    """The verdict on rows of a change feed, all of them together."""
    return Admission(events, rule, clock, None, Checkpoints(), is_first=True).judged_with_changes()


def session_schema(events: DataFrame, rule: Rule) -> T.StructType:
    """The columns of the sessions table, run_id included."""
    return schema_of(Sessions.of, rule, events)


def sessionize(
    events: DataFrame,
    live: DataFrame | None,
    rule: Rule,
    clock: WatermarkState,
    *,
    override: WatermarkOverride = NO_OVERRIDE,
    past: Past | None = None,
) -> RunResult:
    """One run of sessions. live: rows that are not final; None: nothing was there before."""
    stored = Stored(live, past.final if past else None)
    if rule.watermark_per == "key" and clock.scopes is None and not stored.is_empty:
        clock = WatermarkState(clock.now, scopes=clocks_of_keys(stored.live, stored.final, events, rule))
    return _run(events, Sessions.of(rule, events, clock.now), stored, clock, override, past)


def slide(
    events: DataFrame,
    stored: Stored,
    rule: SlidingRule,
    clock: WatermarkState,
    override: WatermarkOverride = NO_OVERRIDE,
    past: Past | None = None,
) -> RunResult:
    """One run of sliding windows."""
    return _run(events, SlidingWindows(rule, bind(rule.events, events, OF_WINDOWS)), stored, clock, override, past)


def _run(
    events: DataFrame,
    windows: Windows,
    stored: Stored,
    clock: WatermarkState,
    override: WatermarkOverride,
    past: Past | None,
) -> RunResult:
    looked_up = None if past is None else AdmissionPast(past.events, lambda: _numbered(past.rejected()))
    is_first = stored.live is None and past is None
    admission = Admission(events, windows.rule, clock, looked_up, Checkpoints(), is_first=is_first)
    return compute_run(admission, windows, stored, clock, override=override)


def _numbered(rows: DataFrame | None) -> DataFrame | None:
    return rows if rows is None or C.RUN_SEQ in rows.columns else rows.withColumn(C.RUN_SEQ, F.lit(0))
