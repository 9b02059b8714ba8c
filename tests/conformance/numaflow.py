"""Numaflow's session windows: pipelines, the windower's operations, its reducer.

Range [ts, ts + timeout), touching ranges stay apart. Closed iff end <= W, late iff ts < W, in milliseconds: our clock
is W + 1 ms and 1 ms of allowed lateness. The windower joins overlapping windows when they close, we when they meet:
each of its windows is therefore compared as a part of one of ours, and what closes is compared as it is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.conformance import configs, not_applicable, ranges
from tests.conformance.cases import Case, NotApplicable, UnknownShape
from tests.conformance.pipelines import Dialect, allowed_lateness, pipeline
from tests.conformance.plans import Columns, Plan
from tests.conformance.plays import Play, Ran, Rules, Run, Session
from tests.conformance.units import MS, instant, unit_of
from tests.conformance.values import differences


def _clock(watermark: int, gap: int | None, lateness: int) -> tuple[int, int]:
    return watermark - lateness + MS, watermark - lateness


DIALECT = Dialect(rules=Rules("splits"), clock=_clock)
OF_STEP = {"record", "op", "windows", "watermark", "ops", "key", "oldest_window_end", "delete_closed"}


def adapt(case: Case) -> Plan:
    if "expected_error" in case.body:
        return configs.refused(case, DIALECT.rules)
    match case.kind:
        case "pipeline":
            _check_waiting(case)
            return pipeline(case, DIALECT)
        case "window_ops":
            return _operations(case)
        case "window_ops_given":
            return _given_operations(case)
    return ranges.adapt(case, DIALECT)


def _check_waiting(case: Case) -> None:
    """Numaflow's allowed lateness makes windows close later and still drops what is behind the watermark."""
    lateness, unit = allowed_lateness(case), unit_of(case.config)
    watermark: int | None = None
    for batch, next_watermark in zip(case.body.get("batches", []), case.body.get("watermarks", []), strict=False):
        times = [instant(record["ts"], unit) for record in batch]
        if watermark is not None and any(t is not None and watermark - lateness <= t < watermark for t in times):
            raise NotApplicable(not_applicable.ONLY_WAITS)
        watermark = watermark if next_watermark is None else instant(next_watermark, unit)


def _operations(case: Case) -> Plan:
    """Records and watermarks come in, operations on windows come out."""
    case.only("time_unit", "boundary", "gap", "allowed_lateness")
    case.expects("initial", "steps")
    initial, steps = case.body.get("initial", []), case.body["steps"]
    _check(steps, OF_STEP - {"key"})
    columns = Columns(case, [*initial, *(step["record"] for step in steps if "record" in step)])
    runs = [Run(tuple(columns.of_range(n) for n in range(len(initial))))]
    clock: tuple[int | None, int | None] = (None, None)
    number, done = len(initial), []  # each step with the run that it is seen after
    for step in steps:
        if "record" in step:
            runs.append(Run((columns.event(number),), *clock))
            number += 1
        if "watermark" in step:
            clock = _clock(instant(step["watermark"], columns.unit) or 0, None, allowed_lateness(case))
            runs.append(Run((), *clock))
        done.append((len(runs) - 1, step))

    def compare(played: Sequence[list[Ran]]) -> list[str]:
        found, collected = [], list[Mapping[str, Any]]()
        for run, step in done:
            ran = played[0][run]
            found += _step(columns, f"run {run}", step, ran)
            gone = step.get("delete_closed", [])
            collected += columns.ranges([gone] if isinstance(gone, Mapping) else gone)
            if "oldest_window_end" in step:
                left = [s for s in ran.table if columns.range_of(s) not in collected]
                oldest = instant(step["oldest_window_end"], columns.unit)
                found += differences(f"run {run}", [{"oldest end": oldest}], [{"oldest end": _oldest_end(left)}])
        return found

    return Plan((Play(DIALECT.rules_of(case), tuple(runs)),), compare)


def _step(columns: Columns, what: str, step: Mapping[str, Any], ran: Ran) -> list[str]:
    operations = step.get("ops", [step] if "op" in step else [])
    found = []
    for operation in operations:
        if operation["op"] not in ("open", "append", "expand", "merge", "close"):
            raise UnknownShape(f"window operation {operation['op']!r}")
        for window in columns.ranges(operation["windows"]):
            if not any(_within(window, session) for session in ran.table):
                found.append(f"{what}: {operation['op']} {window} lies in no session")
    if "watermark" in step:
        closed = columns.ranges(w for o in operations if o["op"] == "close" for w in o["windows"])
        found += differences(what, closed, [columns.range_of(s) for s in ran.emitted])
    return found


def _oldest_end(sessions: Sequence[Session]) -> int | None:
    """The end of the oldest session that is open; one that has ended counts until it has been collected."""
    ended = [s for s in sessions if s.ended]
    return min((s.reach for s in ended or sessions), default=None)


def _within(window: Mapping[str, int], session: Session) -> bool:
    return session.start <= window["start"] and window["end"] <= session.reach


def _given_operations(case: Case) -> Plan:
    """Operations come in: each record has the range of the window it is put into."""
    case.only("time_unit", "boundary")
    case.expects("steps", "expected")
    _check(case.body["steps"], OF_STEP)
    placed = [dict(s["record"]) | s["windows"][-1] for s in case.body["steps"] if "record" in s]
    columns = Columns(case, placed)
    expected = columns.expected(case.body["expected"])

    def compare(played: Sequence[list[Ran]]) -> list[str]:
        return differences("sessions", expected, columns.sessions(played[0][-1].table, expected))

    return Plan((Play(DIALECT.rules_of(case), (Run(columns.of_ranges()),)),), compare)


def _check(steps: Sequence[Mapping[str, Any]], known: set[str]) -> None:
    for step in steps:
        if unknown := set(step) - known:
            raise UnknownShape(f"step with {', '.join(sorted(unknown))}")
