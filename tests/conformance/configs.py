"""Cases about configurations alone: what must be refused, what is kept, what is equal."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from sessionizer.lib.config import Config
from sessionizer.lib.durations import format_duration
from sessionizer.lib.rule import Rule
from sessionizer.lib.windows.sliding.rule import SlidingRule
from tests.conformance import not_applicable
from tests.conformance.cases import Case, NotApplicable, UnknownShape
from tests.conformance.plans import Plan
from tests.conformance.plays import Event, Play, Rules, Run
from tests.conformance.units import MS, length, unit_of

SESSION, SLIDING = "session", "sliding"


def refused(case: Case, rules: Rules) -> Plan:
    """A configuration that must be refused; a gap that a record states must be refused with the record."""
    gap, unit = case.config.get("gap"), unit_of(case.config)
    if isinstance(gap, Mapping):
        return _refused_records(gap, unit, rules)
    alternatives = gap if isinstance(gap, list) and not any(isinstance(g, str) for g in gap) else [gap]
    accepted = [g for g in alternatives if _built({"session": {"gap": _gap_text(g, unit)}}) is not None]
    if accepted:
        raise NotApplicable(not_applicable.VALID_HERE)
    return Plan((), lambda played: [])


def _refused_records(gap: Mapping[str, Any], unit: int, rules: Rules) -> Plan:
    if set(gap) != {"extractor_returns"}:
        raise UnknownShape(f"error with a gap by {', '.join(gap)}")
    gaps = [length(value, unit) for value in gap["extractor_returns"]]
    events = tuple(Event(n, '["k"]', 0, f"{us} microseconds") for n, us in enumerate(gaps))

    def compare(played: Any) -> list[str]:
        invalid = {n for n, reason in played[0][0].rejected if reason == "non_positive_gap"}
        return [f"gap of {us} us: accepted" for n, us in enumerate(gaps) if n not in invalid]

    return Plan((Play(rules, (Run(events),)),), compare)


def _gap_text(gap: Any, unit: int) -> Any:
    """The gap as our file has it; what is no duration stays as it is."""
    if isinstance(gap, bool | float) or not isinstance(gap, int | str):
        return gap
    us = length(gap, unit)
    return gap if us is None else format_duration(us)


def checked(case: Case) -> Plan:
    """Checks of Kafka's window definitions: an error, a value that is kept, two that are equal or not."""
    window = case.config.get("window")
    if window not in (SESSION, SLIDING):
        raise NotApplicable(not_applicable.NO_SESSIONS)
    found: list[str] = []
    for number, check in enumerate(case.body["checks"]):
        found += [f"check {number}: {line}" for line in _check(case.config | check, check)]
    return Plan((), lambda played: found)


def _check(stated: Mapping[str, Any], check: Mapping[str, Any]) -> list[str]:
    asked = set(check) - {"gap_ms", "grace_ms", "time_difference_ms"}
    if asked == {"a", "b", "equal"}:
        rules = [_rule(stated | check[side]) for side in ("a", "b")]
        return [] if (rules[0] == rules[1]) == check["equal"] else [f"expected equal: {check['equal']}"]
    if asked == {"expect_error"}:
        return [] if _rule(stated) is None else ["expected an error, got none"]
    rule = _rule(stated)
    if rule is None:
        return ["got an error"]
    if asked == {"expect"}:
        kept = {name: _kept(rule, name) for name in check["expect"]}
        return [] if kept == check["expect"] else [f"expected {check['expect']}, got {kept}"]
    if asked == {"suppress_wait_after_window_end_ms"} and isinstance(rule, Rule):
        wait, expected = _kept(rule, "gap_ms") + _kept(rule, "grace_ms"), check["suppress_wait_after_window_end_ms"]
        return [] if wait == expected else [f"expected final {expected} ms after its end, got {wait}"]
    raise UnknownShape(f"config check of {', '.join(sorted(asked - {'expect', 'expect_error'}))}")


def _rule(stated: Mapping[str, Any]) -> Rule | SlidingRule | None:
    """The rule of a session or a sliding window; None where the configuration is refused."""
    grace = stated.get("grace_ms", 0)
    late = "0s" if isinstance(grace, str) else format_duration(grace * MS)
    if stated["window"] == SESSION:
        gap = format_duration(stated["gap_ms"] * MS)
        config = _built({"session": {"gap": gap}, "time": {"allowed_lateness": late}})
        return None if config is None else Rule.of(config)
    difference = format_duration(stated["time_difference_ms"] * MS)
    config = _built({"sliding": {"table": "out/windows", "time_difference": difference, "grace": late}})
    return None if config is None else SlidingRule.of(config)


def _kept(rule: Rule | SlidingRule, name: str) -> Any:
    events = rule.events if isinstance(rule, SlidingRule) else rule
    match name:
        case "gap_ms" if isinstance(events.gap, int):
            return events.gap // MS
        case "grace_ms":
            return events.allowed_lateness // MS
        case "time_difference_ms" if isinstance(rule, SlidingRule):
            return rule.difference // MS
    raise UnknownShape(f"config with {name}")


def _built(sections: Mapping[str, Any]) -> Config | None:
    tables = {"source": {"table": "in/events", "key": ["k"]}, "sessions": {"table": "out/sessions"}}
    try:
        return Config.model_validate({**tables, **sections})
    except ValidationError:
        return None
