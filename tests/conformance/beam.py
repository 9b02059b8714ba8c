"""Beam's Sessions: merging, pipelines, and the default trigger.

Range [ts, ts + gap), touching ranges stay apart. Fires iff end <= W in milliseconds: our clock is W + 1 ms. Late iff
the record's own end + allowed lateness <= W, which for a fixed gap is a horizon on the event time.
"""

from collections.abc import Sequence
from typing import Any

from tests.conformance import configs, not_applicable, ranges
from tests.conformance.cases import Case, NotApplicable
from tests.conformance.pipelines import Dialect, allowed_lateness, pipeline
from tests.conformance.plans import Columns, Plan
from tests.conformance.plays import FOREVER, Play, Ran, Rules, Run
from tests.conformance.units import MS
from tests.conformance.values import differences


def _clock(watermark: int, gap: int | None, lateness: int) -> tuple[int, int]:
    if gap is None:
        raise NotApplicable(not_applicable.OWN_RANGE)
    return watermark + MS, watermark + MS - gap - lateness


DIALECT = Dialect(rules=Rules("splits"), clock=_clock)
AT_END = FOREVER // 2  # a watermark past everything


def adapt(case: Case) -> Plan:
    if "expected_error" in case.body:
        return configs.refused(case, DIALECT.rules)
    if case.kind in ("pipeline", "merge_records"):
        return pipeline(case, DIALECT)
    return _default_trigger(case) if case.kind == "trigger" else ranges.adapt(case, DIALECT)


def _default_trigger(case: Case) -> Plan:
    """One pane per session when the watermark passes everything, and again for each late bundle."""
    case.only("time_unit", "gap", "trigger", "accumulation", "bundle_sizes", "allowed_lateness", "group_by", "mode")
    case.expects("records", "late_records", "expected_panes")
    late = case.body.get("late_records", [])
    columns = Columns(case, [*case.body["records"], *late])
    on_time = len(columns.records) - len(late)
    horizon = AT_END - allowed_lateness(case)
    plays = []
    for size in case.config.get("bundle_sizes", [1]):
        first = [Run(columns.events(bundle)) for bundle in _bundles(range(on_time), size)]
        then = [Run(columns.events(b), AT_END, horizon) for b in _bundles(range(on_time, len(columns.records)), size)]
        plays.append(Play(DIALECT.rules, (*first, Run((), AT_END, horizon), *then)))
    expected = [
        columns.expected([{"start": pane["start"], "end": pane["end"], "values": values}])[0]
        for pane in case.body["expected_panes"]
        for values in pane["panes"]
    ]

    def compare(played: Sequence[list[Ran]]) -> list[str]:
        found = []
        for runs in played:
            emitted = [s for ran in runs for s in ran.emitted]
            found += differences("panes", expected, columns.sessions(emitted, expected))
        return found

    return Plan(tuple(plays), compare)


def _bundles(numbers: range, size: int) -> list[Any]:
    """Chunks of this many; a negative size: from the last to the first."""
    ordered = list(numbers) if size > 0 else list(reversed(numbers))
    return [ordered[i : i + abs(size)] for i in range(0, len(ordered), abs(size))]
