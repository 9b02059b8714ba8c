"""Plans: what an adapter answers with, and how the rows of a case are read and written."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sessionizer.lib.config import Aggregate
from tests.conformance import not_applicable
from tests.conformance.cases import Case, NotApplicable, UnknownShape
from tests.conformance.plays import Event, Play, Ran, Session
from tests.conformance.units import MS, gap_of, instant, unit_of
from tests.conformance.values import Reading, canonical, reading

Record = Mapping[str, Any]
LATE, NULL_TIME = "late", "null_time"


@dataclass(frozen=True)
class Plan:
    """Plays of a case, and what differs between what it expects and what they did: nothing, if it passes.

    look_ups: cases of kind `store` to run on what they left.
    """

    plays: tuple[Play, ...]
    differences: Callable[[Sequence[list[Ran]]], list[str]]
    look_ups: Callable[[Sequence[list[Ran]]], list[dict[str, Any]]] = lambda played: []


def edges(row: Any) -> dict[str, Any]:
    """Start and end of a range, which may be a pair."""
    start, end = (row["start"], row["end"]) if isinstance(row, Mapping) else row
    return {"start": start, "end": end}


class Columns:
    """The columns of a case: how its records become events, and our sessions its rows."""

    def __init__(self, case: Case, records: Sequence[Record]) -> None:
        config = case.config
        self.unit = unit_of(config)
        self.records = [record if isinstance(record, Mapping) else edges(record) for record in records]
        self.gap = config.get("gap")
        names = {name for record in self.records for name in record}
        asked = config.get("group_by", ["key"] if "key" in names else [])
        self.group = [name for name in asked if name != "session"]
        last_event = config.get("documented_end") == "last event"
        self.readings: dict[str, Reading] = {
            "start": self._time(lambda s: s.start),
            "end": self._time((lambda s: s.end) if last_event else (lambda s: s.reach)),
            "closes_at": self._time(lambda s: s.reach),
            "rowtime": self._time(lambda s: s.reach - MS),
            "count": Reading(lambda s: s.count),
            "values": Reading(self._values, expected=lambda v: sorted(map(canonical, v))),
        }
        for number, name in enumerate(self.group):
            self.readings[name] = Reading(lambda s, n=number: json.loads(s.key or "[null]")[n])  # type: ignore[misc]
        for name, text in config.get("aggregates", {}).items():
            if name == "values":
                continue
            found = reading(name, text, names - {"key"}, self.unit)
            self.readings[name] = self._time(found.read) if "element time" in text else found

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        return tuple(a for r in self.readings.values() for a in r.aggregates)

    def events(self, numbers: Iterable[int]) -> tuple[Event, ...]:
        """These records, each with its own gap."""
        return tuple(self.event(number) for number in numbers)

    def event(self, number: int) -> Event:
        record = self.records[number]
        key = [record.get(name) for name in self.group]
        gap = gap_of(self.gap, record, record.get("key"), self.unit)
        text = None if key == [None] else json.dumps(key)
        return Event(number, text, instant(record["ts"], self.unit), gap, record)

    def of_ranges(self) -> tuple[Event, ...]:
        """Records that are ranges: an event at the start that reaches to the end."""
        return tuple(self.of_range(number) for number in range(len(self.records)))

    def of_range(self, number: int) -> Event:
        row = self.records[number]
        start, end = (instant(row[edge], self.unit) for edge in ("start", "end"))
        if start is None or end is None or end < start:
            raise NotApplicable(not_applicable.BACKWARD)
        end = max(end, start + 1)  # a gap must be positive; `range_of` leaves the microsecond out again
        key = [row.get(name) for name in self.group]
        return Event(number, None if key == [None] else json.dumps(key), start, f"{end - start} microseconds", row)

    def expected(self, rows: Sequence[Record]) -> list[Record]:
        """The rows of a case as ours are: times in microseconds, lists sorted."""
        return [{name: self._reading(name).expected(value) for name, value in row.items()} for row in rows]

    def sessions(self, found: Iterable[Session], asked: Sequence[Record]) -> list[Record]:
        """Our sessions with the columns that the case asks for."""
        names = {name for row in asked for name in row} or {"start", "end", *self.group}
        return [{name: self._reading(name).read(s) for name in names} for s in found]

    def members(self, found: Iterable[Session]) -> list[Record]:
        """Our sessions as rows of their records, each with the range of its session."""
        return [dict(self.records[m]) | self.range_of(s) for s in found for m in s.members]

    def expected_members(self, rows: Sequence[Record]) -> list[Record]:
        """Rows of records with the range of their session; all other columns are the record's own."""
        known = {"start", "end", *(name for record in self.records for name in record)}
        if unknown := {name for row in rows for name in row} - known:
            raise UnknownShape(f"row with {', '.join(sorted(unknown))}")
        times = {"start", "end"}
        return [{n: instant(v, self.unit) if n in times else v for n, v in row.items()} for row in rows]

    def ranges(self, rows: Iterable[Record]) -> list[Record]:
        """The ranges of a case's rows, in microseconds."""
        return [{edge: instant(value, self.unit) for edge, value in edges(row).items()} for row in rows]

    @staticmethod
    def range_of(session: Session) -> dict[str, int]:
        """From the first event to the reach, in whole milliseconds: the cases have no finer ranges."""
        return {"start": session.start, "end": session.reach - session.reach % MS}

    def rejected(self, runs: Iterable[Ran], *reasons: str) -> list[Record]:
        """The rejected records, of these reasons or of any."""
        return [self.records[n] for ran in runs for n, reason in ran.rejected if not reasons or reason in reasons]

    def _reading(self, name: str) -> Reading:
        if name not in self.readings:
            raise UnknownShape(f"session with column {name!r}")
        return self.readings[name]

    def _time(self, read: Callable[[Session], Any]) -> Reading:
        return Reading(read, expected=lambda value: instant(value, self.unit))

    def _values(self, session: Session) -> list[str]:
        return sorted(canonical(self.records[m].get("value")) for m in session.members)
