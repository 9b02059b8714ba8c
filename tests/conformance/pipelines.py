"""Pipelines of Spark, Flink, Beam and Numaflow: batches of records, watermarks between them, sessions out."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance import not_applicable
from tests.conformance.cases import Case, NotApplicable, UnknownShape
from tests.conformance.plans import LATE, NULL_TIME, Columns, Plan
from tests.conformance.plays import FOREVER, Event, Play, Ran, Rules, Run, Session
from tests.conformance.units import instant, length
from tests.conformance.values import differences

CONFIG = (
    *("time_unit", "time", "gap", "boundary", "group_by", "aggregates", "mode", "trigger", "late_output", "output"),
    *("watermark", "watermark_delay", "allowed_lateness", "order_by", "output_timestamp", "documented_end"),
    *("key_columns", "key_shape", "variants_same_result", "accumulation", "time_zone", "time_type"),
    *("keyed", "sql", "api", "function"),
)
BODY = (
    *("records", "batches", "watermarks", "clock", "expected", "expected_by_batch", "expected_open_by_batch"),
    *("expected_late", "expected_late_by_batch", "expected_dropped", "expected_dropped_null_time"),
    "expected_dropped_metric_by_batch",
)
BOUNDARIES = {"inclusive": "joins", "exclusive": "splits"}

# Watermark, gap and allowed lateness of a system (µs) to our watermark and horizon.
ToClock = Callable[[int, int | None, int], tuple[int, int]]


@dataclass(frozen=True)
class Dialect:
    """What a system means: its rules, its clock, and whether it judges record by record within a batch."""

    rules: Rules
    clock: ToClock
    one_by_one: bool = False

    def rules_of(self, case: Case) -> Rules:
        """The rules, with the boundary that the case states."""
        boundary = case.config.get("boundary")
        if boundary is None:
            return self.rules
        if boundary not in BOUNDARIES:
            raise UnknownShape(f"boundary {boundary!r}")
        return self.rules._replace(boundary=BOUNDARIES[boundary])  # type: ignore[arg-type]


def pipeline(case: Case, dialect: Dialect) -> Plan:
    """Records to sessions: what was emitted, what stands open, what was late, batch by batch or at the end."""
    case.only(*CONFIG)
    case.expects(*BODY)
    body, config = case.body, case.config
    streams = "batches" in body
    batches = body["batches"] if streams else [body["records"]]
    if not streams and ("watermark_delay" in config or len(body.get("watermarks", [])) > 1):
        batches = [[record] for record in body["records"]]  # a source that emits a watermark after each record
    columns = Columns(case, [record for batch in batches for record in batch])
    numbers = iter(range(len(columns.records)))
    numbered = [[next(numbers) for _ in batch] for batch in batches]
    runs, spans = _runs(case, dialect, columns, numbered)
    play = Play(dialect.rules_of(case), runs, columns.aggregates)
    judge = _Judge(case, columns, spans, _emits(case))
    judge.check_columns()
    return Plan((play,), lambda played: judge.differences(played[0]))


def _runs(
    case: Case, dialect: Dialect, columns: Columns, batches: Sequence[Sequence[int]]
) -> tuple[tuple[Run, ...], list[slice]]:
    """Each batch meets the watermark of the one before; then the watermark after it has a run of its own."""
    lateness, gap = allowed_lateness(case), case.config.get("gap")
    fixed = None if isinstance(gap, dict) or gap is None else length(gap, columns.unit)
    runs: list[Run] = []
    spans: list[slice] = []
    clock: tuple[int | None, int | None] = (None, None)
    before: int | None = None
    for numbers, watermark in zip(batches, _watermarks(case, columns, batches), strict=True):
        first = len(runs)
        events = columns.events(numbers)
        runs += [Run(part, *clock) for part in _parts(events, clock[1], columns, dialect.one_by_one)]
        if watermark is not None and watermark != before:
            before, clock = watermark, dialect.clock(watermark, fixed, lateness)
            runs.append(Run((), *clock))
        spans.append(slice(first, len(runs)))
    return tuple(runs), spans


def _watermarks(case: Case, columns: Columns, batches: Sequence[Sequence[int]]) -> list[int | None]:
    body, unit = case.body, columns.unit
    if _is_complete(case):
        return [None] * len(batches)
    stated = body.get("watermarks", body.get("clock"))
    if stated is not None:
        return [instant(w, unit) for w in stated]
    if "watermark_delay" not in case.config:
        return [None] * len(batches)
    delay, latest = length(case.config["watermark_delay"], unit) or 0, None
    found: list[int | None] = []
    for numbers in batches:
        times = [t for n in numbers if (t := instant(columns.records[n]["ts"], unit)) is not None]
        latest = max([*times, *([] if latest is None else [latest])], default=None)
        found.append(None if latest is None else latest - delay)
    return found


def _parts(
    events: Sequence[Event], horizon: int | None, columns: Columns, one_by_one: bool
) -> Iterator[tuple[Event, ...]]:
    """The runs of a batch: where order within it matters, a record that could be late comes by itself."""
    if not one_by_one or horizon is None:
        if events:
            yield tuple(events)
        return
    together: list[Event] = []
    for event in events:
        reach = None if event.at is None or event.gap is None else length(event.gap, columns.unit)
        if reach is not None and event.at is not None and event.at + reach >= horizon:
            together.append(event)
            continue
        if together:
            yield tuple(together)
        together = []
        yield (event,)
    if together:
        yield tuple(together)


def allowed_lateness(case: Case) -> int:
    """The allowed lateness in microseconds; `unbounded` is for ever."""
    stated = case.config.get("allowed_lateness", 0)
    if isinstance(stated, str) and stated.startswith("unbounded"):
        return FOREVER
    us = length(stated, Columns(case, []).unit)
    if us is None:
        raise UnknownShape(f"allowed lateness {stated!r}")
    return us


def _emits(case: Case) -> bool:
    """Whether a case expects what was emitted, not what stands at the end."""
    if _is_complete(case):
        return False
    stated = any(w is not None for w in case.body.get("watermarks", case.body.get("clock", [])))
    streams = "batches" in case.body and "watermark_delay" in case.config
    return stated or streams or case.config.get("mode") == "append"


def _is_complete(case: Case) -> bool:
    mode = str(case.config.get("mode", ""))
    return mode == "complete" or mode.startswith("batch")


@dataclass(frozen=True)
class _Judge:
    """Compares what a pipeline did with what its case expects."""

    case: Case
    columns: Columns
    spans: Sequence[slice]
    emits: bool

    def check_columns(self) -> None:
        """Refuse a case with columns that are not known, before anything runs."""
        body = self.case.body
        for rows in [body.get("expected", []), *body.get("expected_by_batch", [])]:
            self._expected(rows)

    def differences(self, runs: list[Ran]) -> list[str]:
        body, found = self.case.body, []
        self._check_emitted_once(runs)
        batches = [runs[span] for span in self.spans]
        if "expected" in body:
            found += self._sessions("sessions", body["expected"], runs, [s for ran in runs for s in ran.emitted])
        for number, rows in enumerate(body.get("expected_by_batch", [])):
            emitted = [s for ran in batches[number] for s in ran.emitted]
            upto = runs[: self.spans[number].stop]
            found += self._sessions(f"batch {number}", rows, upto, emitted)
        for number, rows in enumerate(body.get("expected_open_by_batch", [])):
            standing = self._table(runs[: self.spans[number].stop])
            opened = [s for s in standing if not s.ended]
            expected = self.columns.expected(rows)
            found += differences(f"open after batch {number}", expected, self.columns.sessions(opened, expected))
        return found + self._rejections(runs, batches)

    def _check_emitted_once(self, runs: list[Ran]) -> None:
        """A trigger that purges and one that keeps differ as soon as a record is emitted a second time."""
        emitted = [(s.key, member) for ran in runs for s in ran.emitted for member in s.members]
        if "purge" in str(self.case.config.get("trigger", "")) and len(emitted) > len(set(emitted)):
            raise NotApplicable(not_applicable.PURGES)

    def _sessions(self, what: str, rows: Sequence[Any], runs: list[Ran], emitted: list[Session]) -> list[str]:
        sessions = emitted if self.emits else self._table(runs)
        expected = self._expected(rows)
        if "output" in self.case.config:
            return differences(what, expected, self.columns.members(sessions))
        return differences(what, expected, self.columns.sessions(sessions, expected))

    def _expected(self, rows: Sequence[Any]) -> list[Any]:
        if "output" in self.case.config:
            return self.columns.expected_members(rows)
        return self.columns.expected(rows)

    def _rejections(self, runs: list[Ran], batches: list[list[Ran]]) -> list[str]:
        body, found = self.case.body, []
        expected: list[tuple[str, Iterable[Ran], Any, tuple[str, ...]]] = [
            ("late", runs, body.get("expected_late"), (LATE,)),
            ("dropped", runs, body.get("expected_dropped"), ()),
            ("without a time", runs, body.get("expected_dropped_null_time"), (NULL_TIME,)),
        ]
        for number, rows in enumerate(body.get("expected_late_by_batch", [])):
            expected.append((f"late in batch {number}", batches[number], rows, (LATE,)))
        for what, of, rows, reasons in expected:
            rejected = self.columns.rejected(of, *reasons)
            if isinstance(rows, int):
                found += [] if rows == len(rejected) else [f"{what}: expected {rows}, got {len(rejected)}"]
            elif rows is not None:
                found += differences(what, rows, rejected)
        for number, dropped in enumerate(body.get("expected_dropped_metric_by_batch", [])):
            counted = len(self.columns.rejected(batches[number], LATE))
            if dropped is not None and dropped != counted:
                found.append(f"late in batch {number}: expected {dropped}, got {counted}")
        return found

    @staticmethod
    def _table(runs: list[Ran]) -> tuple[Session, ...]:
        return runs[-1].table if runs else ()
