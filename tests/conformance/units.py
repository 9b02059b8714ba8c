"""Units of the cases: every time becomes microseconds since the epoch, every gap the text of an interval."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from typing import Any

import duckdb

from sessionizer.lib.durations import parse_duration
from tests.conformance.cases import UnknownShape

US, MS, S = 1, 1_000, 1_000_000
LIMIT = 2**59  # what some systems write for the end of time fits into no timestamp
_UNITS = {"us": US, "µs": US, "ms": MS, "s": S, "abstract": S, "timestamp-string": US}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NAMES = {"microsecond": US, "millisecond": MS, "second": S, "minute": 60 * S, "hour": 3600 * S, "day": 86400 * S}
_PART = re.compile(rf"([+-]?\d+(?:\.\d+)?)\s*({'|'.join(_NAMES)})s?")


def unit_of(config: Mapping[str, Any]) -> int:
    """Microseconds in one unit of a case's times."""
    name = config.get("time_unit", "ms")
    if name not in _UNITS:
        raise UnknownShape(f"times in {name!r}")
    return _UNITS[name]


def instant(value: Any, unit: int) -> int | None:
    """A time in microseconds; None where there is none, or where a text is not a time."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            moment = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
        aware = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
        return (aware - _EPOCH) // timedelta(microseconds=1)
    return max(-LIMIT, min(LIMIT, int(Fraction(value) * unit)))


def length(value: Any, unit: int) -> int | None:
    """A duration in microseconds: a number of units, `10 seconds` or `30s`; None where a text is none."""
    if not isinstance(value, str):
        return int(Fraction(value) * unit)
    text = value.strip().lower().removeprefix("interval ").replace("'", "")
    if _PART.sub("", text).strip():
        try:
            return parse_duration(text)
        except ValueError:
            return None
    return int(sum(Fraction(number) * _NAMES[name] for number, name in _PART.findall(text)))


def gap_of(gap: Any, record: Mapping[str, Any], key: Any, unit: int) -> str | None:
    """The gap of one record, as the text of an interval; None where the case gives it none.

    A rule looks it up in a column of the record, by its value, by its key, or by the first word in its key.
    """
    if gap is None:
        return None
    if isinstance(gap, Mapping):
        return gap_of(_looked_up(gap, record, key), record, key, unit)
    if isinstance(gap, list | bool):
        raise UnknownShape(f"gap {gap!r}")
    us = length(gap, unit)
    return str(gap) if us is None else f"{us} microseconds"  # what is no duration, the engine is to find out


def _looked_up(rule: Mapping[str, Any], record: Mapping[str, Any], key: Any) -> Any:
    unknown = set(rule) - {"column", "rule", "by_value", "by_key", "by_word", "default"}
    if unknown or not rule:
        raise UnknownShape(f"gap by {', '.join(sorted(unknown)) or 'nothing'}")
    if "column" in rule:
        return record.get(rule["column"], rule.get("default"))
    if "rule" in rule:
        return by_rule(rule["rule"], record, key, rule.get("default"))
    for name, asked in (("by_key", key), ("by_value", record.get("value")), ("by_word", _first_word(key))):
        if name in rule and str(asked) in rule[name]:
            return rule[name][str(asked)]
    return rule.get("default")


def by_rule(rule: Any, record: Mapping[str, Any], key: Any, default: Any = None) -> Any:
    """What a rule in words makes of a record: a duration, a column or one in a unit, or an expression of SQL.

    >>> by_rule("value seconds", {"value": 3}, "a"), by_rule("case when key = 'a' then 5 else 10 end", {}, "a")
    ('3 seconds', 5)
    """
    if not isinstance(rule, str):
        return rule
    if rule in record:
        return record[rule]
    columns = {**record, "key": record.get("key", key)}
    words = rule.split()
    if len(words) == 2 and words[0] in columns and words[1].rstrip("s") in _NAMES:
        return f"{columns[words[0]]} {words[1]}"
    if length(rule, US) is not None:
        return rule
    names = [name for name, value in columns.items() if isinstance(value, str | int | float | None)]
    given = ", ".join(f'? AS "{name}"' for name in names)
    try:
        with duckdb.connect() as engine:
            found = engine.execute(f"SELECT {rule} FROM (SELECT {given})", [columns[n] for n in names]).fetchone()
    except duckdb.Error as error:
        raise UnknownShape(f"gap by the rule {rule!r}") from error
    value = None if found is None else found[0]
    return default if value is None else value


def _first_word(key: Any) -> Any:
    return _first_word(key[0]) if isinstance(key, list) and key else key
