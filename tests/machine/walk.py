"""One walk per key over its accepted events: the sessions, and what their columns say."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from statistics import stdev
from typing import Any

from tests.machine.books import Event, Session
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
        for walked in _walk(rule, sorted(events, key=lambda e: e.t)):
            expires = max(rule.reach(e.row) for e in walked)
            found.append(Session(key, walked, walked[0].t, walked[-1].t, expires, late is not None))
    return found


def _walk(rule: Rule, events: list[Event]) -> Iterator[list[Event]]:
    current: list[Event] = []
    for e in events:
        if current and (rule.beyond(e.t, max(rule.reach(c.row) for c in current)) or _too_long(rule, current, e)):
            yield current
            current = []
        current.append(e)
    yield current


def _too_long(rule: Rule, current: list[Event], e: Event) -> bool:
    return rule.longest is not None and e.t - current[0].t > rule.longest * MINUTE


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
