"""One walk per key over its accepted events: the sessions, and what their columns say."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from statistics import stdev
from typing import Any

from tests.machine.books import ABOVE_ALL, Event, Session
from tests.machine.rule import MINUTE, Key, Row, Rule, ascending, number


def made(rule: Rule, main: Iterable[Event], apart: Iterable[Event]) -> list[Session]:
    """The sessions of all events together, and those of late events apart, run by run."""
    populations: dict[tuple[Key, int | None, int | None], list[Event]] = defaultdict(list)
    for e in main:
        populations[rule.who(e.row), e.frozen, None].append(e)
    for e in apart:
        populations[rule.who(e.row), None, e.run].append(e)
    found = []
    for (key, _, late), events in populations.items():
        found += list(_walk(rule, key, sorted(events, key=lambda e: _place(rule, e)), late is not None))
    return found


def _place(rule: Rule, e: Event) -> tuple[int, int, str]:
    if not rule.by_content:
        return e.t, 0, ""
    return e.t, e.row.o if rule.ordered else 0, e.row.canonical


def _walk(rule: Rule, key: Key, events: list[Event], late: bool) -> Iterator[Session]:
    current, begun = [events[0]], 0
    for n, e in enumerate(events[1:], 1):
        reason = _cut_before(rule, current, e)
        if reason is not None:
            yield _session(rule, key, events, begun, n, late, reason)
            current, begun = [], n
        current.append(e)
    yield _session(rule, key, events, begun, len(events), late, "gap")


def _session(rule: Rule, key: Key, events: list[Event], first: int, end: int, late: bool, reason: str) -> Session:
    own = events[first:end]
    start, expires = own[0].t, max(rule.reach(e.row) for e in own)
    if rule.ends is not None and own[-1].row.x == rule.ends:
        reason = "ends_when"
    elif rule.most is not None and len(own) == rule.most:
        reason = "max_events"
    elif reason in ("gap", "max_duration"):
        reason = "max_duration" if start + _longest(rule) < expires else "gap"
    ahead = sum(e.t == start for e in events[:first])
    return Session(key, own, start, own[-1].t, expires, late, ahead, reason)


def _longest(rule: Rule) -> int:
    return ABOVE_ALL if rule.longest is None else rule.longest * MINUTE


def _cut_before(rule: Rule, current: list[Event], e: Event) -> str | None:
    """Why an event begins a session."""
    last, given = current[-1], [c.row.x for c in current if c.row.x is not None]
    if rule.beyond(e.t, max(rule.reach(c.row) for c in current)):
        return "gap"
    if rule.ends is not None and last.row.x == rule.ends:
        return "ends_when"
    if rule.most is not None and len(current) == rule.most:
        return "max_events"
    if rule.starts is not None and e.row.x == rule.starts:
        return "starts_when"
    if rule.midnight and rule.day(e.t) != rule.day(last.t):
        return "midnight"
    if rule.changes and given and e.row.x not in (None, given[-1]):
        return "changes_of"
    return "max_duration" if e.t - current[0].t > _longest(rule) else None


def islands(rule: Rule, spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Chains: what reaches each other, first time and last reach."""
    found: list[tuple[int, int]] = []
    for start, reach in sorted(spans):
        if found and not rule.beyond(start, found[-1][1]):
            found[-1] = (found[-1][0], max(reach, found[-1][1]))
        else:
            found.append((start, reach))
    return found


def in_order(rule: Rule, events: Iterable[Event], value: Callable[[Row], Any]) -> list[Any]:
    """Values in time order, then by `order_by`, then by the value itself."""
    by_order = rule.ordered
    ordered = sorted(events, key=lambda e: (e.t, e.row.o if by_order else 0, ascending(value(e.row))))
    return [value(e.row) for e in ordered]


def aggregates(rule: Rule, s: Session) -> dict[str, Any]:
    """The columns that the configuration asks for, see `aggregates` in options; but those of `nearly`."""
    if rule.aggregates == "none":
        return {}
    values = in_order(rule, s.events, (lambda r: number(r.v)) if rule.aggregates == "doubles" else (lambda r: r.x))
    given = [v for v in values if v is not None]
    distinct: list[Any] = []
    for v in sorted(given, key=ascending):
        if not distinct or ascending(distinct[-1]) != ascending(v):
            distinct.append(v)
    if rule.aggregates == "kinds":
        return {"kinds": len(distinct)}
    if rule.aggregates == "near":
        return {"exact": sum(given) if given else None}
    early = [v for v in in_order(rule, s.events, lambda r: r.x) if v is not None]
    return {
        "filled": len(given),
        "total": sum(given) if given else None,
        "least": min(given, key=ascending, default=None),
        "most": max(given, key=ascending, default=None),
        "mean": sum(given) / len(given) if given else None,
        "entry": values[0],
        "exit": values[-1],
        "entered": given[0] if given else None,
        "kinds": len(distinct),
        "which": distinct,
        "path": early[:3],
        "path_truncated": len(early) > 3,
    }


def later(rule: Rule, s: Session) -> dict[str, Any]:
    """Those that come later, see `LATER` in options."""
    values = in_order(rule, s.events, lambda r: r.x)
    return {"later_kinds": len({v for v in values if v is not None}), "later_exit": values[-1]}


def nearly(rule: Rule, s: Session) -> dict[str, Callable[[Any], bool]]:
    """Whether what is found in a column is right: of those that are right within an error."""
    if rule.aggregates != "near":
        return {}
    given = sorted(e.row.x for e in s.events if e.row.x is not None)

    def is_spread(found: float | None) -> bool:
        if len(given) < 2 or found is None:
            return len(given) < 2 and found is None
        return math.isclose(found, stdev(given), rel_tol=1e-6, abs_tol=1e-9)

    def is_middle(found: int | None) -> bool:
        if not given or found is None:
            return not given and found is None
        return sum(x < found for x in given) <= len(given) / 2 <= sum(x <= found for x in given)

    return {"spread": is_spread, "about": lambda found: found == len(set(given)), "middle": is_middle}
