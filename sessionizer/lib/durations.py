"""Durations in Go's notation (`30s`, `2h45m`, `1.5h`), and days, as whole microseconds."""

import re
from fractions import Fraction

from sessionizer.lib.errors import explain

MILLISECOND = 1_000
SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
EVER = 2**62  # from 1970 to where all times end, either way: what is reckoned from them stays within 64 bits

LONGEST = 2**63 - 1

# What a JSON Schema can say; the arithmetic rules (whole microseconds, range) are checked when parsing.
PATTERN = r"^[-+]?(0|(([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h|d))+)$"

_UNITS = {
    "ns": Fraction(1, 1_000),
    "us": Fraction(1),
    "\u00b5s": Fraction(1),  # micro sign
    "\u03bcs": Fraction(1),  # Greek letter mu: looks the same, and Go takes both
    "ms": Fraction(MILLISECOND),
    "s": Fraction(SECOND),
    "m": Fraction(MINUTE),
    "h": Fraction(HOUR),
    "d": Fraction(DAY),
}
_MEANT = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "m"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
    **dict.fromkeys(("msec", "millis", "millisecond", "milliseconds"), "ms"),
    **dict.fromkeys(("usec", "micros", "microsecond", "microseconds"), "us"),
}
_PART = re.compile(r"(?P<whole>[0-9]*)(?:\.(?P<decimals>[0-9]*))?(?P<unit>[^.0-9]*)")
_LONGEST_TEXT = 200


def parse_duration(text: str) -> int:
    """Read a duration as microseconds, as Go's `time.ParseDuration` does, plus the unit `d` (24 hours).

    A sign, then one or more decimal numbers, each with a unit: `300ms`, `-1.5h`, `.5s`, `1.s`, `2h45m`, `1d`.
    `0` needs no unit. The arithmetic is exact.

    Raises:
        ValueError: not such a text, finer than a microsecond, or beyond 64 bits.
    """
    if not isinstance(text, str):
        raise _not_text(text)
    if not text.strip() or len(text) > _LONGEST_TEXT:
        raise _invalid("a duration is a number and a unit", text, "Write it like '30s' or '2h45m'")
    if any(character.isspace() for character in text):
        raise _invalid("a duration has no spaces", text, _named_right(text))
    digits = text[1:] if text[0] in "+-" else text
    exact = Fraction(0) if digits == "0" else _sum_of_parts(digits, text)
    if exact.denominator != 1:
        raise _invalid("a duration must be whole microseconds", text, "Round it to 1us or coarser")
    microseconds = -int(exact) if text[0] == "-" else int(exact)
    if not -LONGEST - 1 <= microseconds <= LONGEST:
        raise _invalid("a duration must fit into 64 bits of microseconds", text, "Write a shorter one")
    return microseconds


def format_duration(us: int) -> str:
    """Write microseconds as Go's `Duration.String` does: `2h45m0s`, `1.5s`, `300ms`, `1µs`, `0s`.

    `parse_duration` reads every result back as the same number.
    """
    sign, us = ("-", -us) if us < 0 else ("", us)
    if us == 0:
        return "0s"
    if us < MILLISECOND:
        return f"{sign}{us}µs"
    if us < SECOND:
        return f"{sign}{_decimal(us, MILLISECOND)}ms"
    minutes, rest = divmod(us, MINUTE)
    hours, minutes = divmod(minutes, 60)
    seconds = f"{_decimal(rest, SECOND)}s"
    if hours:
        return f"{sign}{hours}h{minutes}m{seconds}"
    return f"{sign}{minutes}m{seconds}" if minutes else f"{sign}{seconds}"


def _named_right(text: str) -> str:
    """How to write it, without spaces and by the names of units, if that is a duration then: `30 min` is `30m`."""
    joined = "".join(text.split())
    named = re.sub("[A-Za-z]+", lambda unit: _meant(unit[0]) or unit[0], joined)
    try:
        parse_duration(named)
    except ValueError:
        return "Write it like '2h45m'"
    return f"Write '{named}'"


def _meant(unit: str) -> str | None:
    """The unit, as durations have it, that somebody means by this word."""
    return _MEANT.get(unit.lower()) or (unit.lower() if unit.lower() in _UNITS else None)


def _sum_of_parts(digits: str, text: str) -> Fraction:
    total, position = Fraction(0), 0
    while position < len(digits) or not position:
        part = _PART.match(digits, position)
        if part is None or not (part["whole"] or part["decimals"]):
            rule = f"a number must stand before {digits[position:]!r}" if digits[position:] else "a number is missing"
            raise _invalid(f"{rule} in a duration", text, "Write it like '30s' or '2h45m'")
        decimals = part["decimals"] or ""
        number = Fraction(int(part["whole"] + decimals), 10 ** len(decimals))
        total += number * _unit(part["unit"], text, missing_at_end=part.end() == len(digits))
        position = part.end()
    return total


def _unit(unit: str, text: str, *, missing_at_end: bool) -> Fraction:
    if unit in _UNITS:
        return _UNITS[unit]
    if not unit:
        remedy = f"Write '{text}s' for seconds, '{text}m' for minutes" if missing_at_end else "Write it like '2h45m'"
        raise _invalid("durations need a unit", text, remedy)
    remedy = _named_right(text) if _meant(unit) else "Units are ns, us, ms, s, m, h and d"
    raise _invalid(f"{unit!r} is not a unit of a duration", text, remedy)


def _decimal(us: int, unit: int) -> str:
    whole, rest = divmod(us, unit)
    width = len(str(unit)) - 1
    return f"{whole}.{rest:0{width}}".rstrip("0").rstrip(".") if rest else str(whole)


def _not_text(value: object) -> ValueError:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _invalid("durations need a unit", value, f"Write '{value}s' for seconds, '{value}m' for minutes")
    return _invalid("a duration is text", value, "Write it like '30s' or '2h45m'")


def _invalid(rule: str, value: object, remedy: str) -> ValueError:
    return ValueError(explain(rule, value, remedy))
