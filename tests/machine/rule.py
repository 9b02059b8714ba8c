"""The options of one configuration, and the rows that its source holds. Times are microseconds, spans are minutes."""

import json
import math
from dataclasses import dataclass
from datetime import date
from typing import Any, Literal, NamedTuple
from zoneinfo import ZoneInfo

from tests.oracle import at

MINUTE = 60_000_000
FIRST = 1_767_225_600_000_000  # 2026-01-01
Key = tuple[Any, ...]
Laid = Literal["plain", "by date", "with vectors"]
Late = Literal["quarantine", "drop", "amend", "separate"]
SPELLED = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


class Row(NamedTuple):
    """A row of the source. `n` tells rows apart, but for copies; `v` is a double as text, so that NaN equals itself."""

    n: int
    k1: str | None
    k2: int | None
    at: int | None
    id: int
    g: int | None
    o: int
    x: int | None
    v: str | None

    def __deepcopy__(self, _: Any) -> "Row":
        return self

    @property
    def canonical(self) -> str:
        """What orders rows that nothing else does: JSON, where the doubles that no number tells are texts."""
        told = self._asdict() | {"v": None if self.v is None else SPELLED.get(self.v, float(self.v))}
        return json.dumps({n: v for n, v in told.items() if v is not None}, sort_keys=True, separators=(",", ":"))


def time_of(row: Row) -> int:
    """Of a row that has one."""
    assert row.at is not None
    return row.at


def number(text: str | None) -> float | None:
    return None if text is None else float(text)


def ascending(value: float | None) -> tuple[bool, bool, float]:
    """Nulls come first, NaN comes last, and the two zeros are one."""
    missing, nan = value is None, value is not None and math.isnan(value)
    return not missing, nan, 0.0 if missing or nan else value + 0.0  # type: ignore[operator]


@dataclass(frozen=True)
class Rule:
    """Spans in minutes; `gap` None: that of each event; `by` tells who settles ties beside the value itself."""

    key: tuple[str, ...] = ("k1",)
    groups_nulls: bool = False
    gap: int | None = 10
    at_least: int = 0
    splits: bool = False
    longest: int | None = None
    lateness: Literal["event", "session"] = "event"
    revive: bool = False
    late: Late = "quarantine"
    corrections: Literal["apply", "quarantine", "ignore"] = "apply"  # ignore: deletes alone
    invalid: Literal["quarantine", "drop"] = "quarantine"
    within: int | None = None
    earliest: bool = False
    per: tuple[str, ...] = ()
    per_key: bool = False
    delay: int = 0
    allowed: int = 0
    skew: int = 60
    idle_after: int | None = None
    idle_by_arrival: bool = False
    ordered: bool = False
    aggregates: Literal["none", "ints", "doubles", "kinds", "near"] = "ints"
    commit: Literal["merge", "replace"] = "merge"
    laid: Laid = "plain"  # how real tables of sessions lie
    traced: bool = False
    from_version: int | None = None  # of the source: where the first run begins
    one_by_one: bool = False  # a run takes one version of the source at a time
    type_of_key: Literal["STRING", "BIGINT", "DECIMAL(12,2)", "TIMESTAMP", "BINARY"] = "STRING"  # of k1 in the tables
    starts: int | None = None  # an event with this x begins a session
    ends: int | None = None  # an event with this x is the last one
    changes: bool = False  # of x
    most: int | None = None  # events of a session
    midnight: bool = False
    zone: str = "UTC"
    is_made: bool = False  # whether SQL makes k1 of what the source has
    filters: bool = False  # whether `where` lets through but what has another x than 5
    fails: bool = False  # whether an aggregate has no value for an event with x = 4
    erases: int | None = None  # with corrections: ignore: a delete of a row with this x is made all the same
    gains: bool = False  # whether the aggregates that come later are there
    earlier: int = 0  # microseconds: all times of the tables are so much earlier than those that are told here

    @property
    def freezes(self) -> bool:
        """Whether final sessions stay out of what comes within their gap."""
        return self.lateness == "session" and not self.revive and self.late != "amend"

    @property
    def by_content(self) -> bool:
        return any((self.starts, self.ends, self.changes, self.most, self.midnight))

    def day(self, time: int) -> date:
        """Where the sessions are."""
        return at(time - self.earlier).astimezone(ZoneInfo(self.zone)).date()

    def passes(self, row: Row) -> bool:
        """Whether `where` lets a row through."""
        return not self.filters or (row.x is not None and row.x != 5)

    def who(self, row: Row) -> Key:
        return tuple(getattr(row, name) for name in self.key)

    def scope(self, row: Row) -> Key:
        return tuple(getattr(row, name) for name in self.per)

    def reach(self, row: Row) -> int:
        gap = self.gap if self.gap is not None else max(row.g or 0, self.at_least)
        return time_of(row) + gap * MINUTE

    def beyond(self, time: int, reach: int) -> bool:
        return time >= reach if self.splits else time > reach
