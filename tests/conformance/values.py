"""Values: what a case calls a column of a session, and where this product has it."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from pydantic import ValidationError
from pyspark.sql import functions as F

from sessionizer.lib.config import Aggregate
from tests.conformance import not_applicable
from tests.conformance.cases import NotApplicable, UnknownShape
from tests.conformance.plays import FIELDS, Session

Read = Callable[[Session], Any]


@dataclass(frozen=True)
class Reading:
    """How to read a column from our rows, the aggregates needed, and how to read the expected value."""

    read: Read
    aggregates: tuple[Aggregate, ...] = ()
    expected: Callable[[Any], Any] = lambda value: value


def reading(name: str, text: str, columns: set[str], unit: int) -> Reading:
    """The reading of an aggregate as a case writes it: `sum(value)`, `count(*)`, `mean(ts) as long`, `max`, …

    A function without a column is meant of the column its name ends with, else of `value`, else of the time.
    Errors: NotApplicable for a function that this product does not have, UnknownShape for what is none.
    """
    plain = text.strip().lower().removesuffix(" as long")
    whole = (lambda v: None if v is None else int(v)) if text.strip().lower().endswith(" as long") else lambda v: v
    if plain in ("count", "count(*)", "count(1)", "count(rows)", "sum(1)"):
        return Reading(lambda s: s.count)
    if plain in ("end-start", "end - start"):
        return Reading(lambda s: Decimal(s.reach - s.start) / unit)
    if edge := re.fullmatch(r"(earliest|latest) element time", plain):
        return Reading(lambda s: s.start if edge[1] == "earliest" else s.end)
    column = next((c for c in sorted(columns, key=len, reverse=True) if name.endswith(f"_{c}")), None)
    column = column or ("value" if "value" in columns else "ts")
    if joined := re.fullmatch(r"distinct values joined with (\S), null when none", plain):
        return _distinct(column, lambda v: v or None, lambda v: v and sorted(v.split(joined[1])))
    called = re.fullmatch(r"(?:user-defined )?(\w+)(?:\s*\(\s*(distinct )?\s*(\w+)\s*\)|( distinct)| of (\w+))?", plain)
    if not called:
        raise UnknownShape(f"aggregate {text!r}")
    function, column, distinct = called[1], called[3] or called[5] or column, called[2] or called[4]
    column = column.removesuffix("s") if column not in columns else column  # sum of values
    if distinct and function == "sum":
        return _distinct(column, lambda v: sum(map(Decimal, v)) if v else None, lambda v: v)
    return _of_function(f"{function} distinct" if distinct else function, column, whole)


def _distinct(column: str, finish: Callable[[list[str]], Any], expected: Callable[[Any], Any]) -> Reading:
    aggregate = _aggregate("set", column, _text(column))
    return Reading(lambda s: finish(list(s.values[aggregate.name])), (aggregate,), expected)


def _of_function(function: str, column: str, finish: Callable[[Any], Any]) -> Reading:
    number = _number(column)
    ours: dict[str, tuple[str, str, dict[str, Any]]] = {
        "count": ("count", _text(column), {}),
        "count distinct": ("count_distinct", _text(column), {}),
        "sum": ("sum", number, {}),
        "min": ("min", number, {}),
        "max": ("max", number, {}),
        "avg": ("avg", number, {}),
        "mean": ("avg", number, {}),
        "first": ("first", number, {}),
        "last": ("last", number, {}),
        "stddev": ("stddev", f"CAST({number} AS DOUBLE)", {}),
        "variance": ("stddev", f"CAST({number} AS DOUBLE)", {}),
        "median": ("approx_percentile", f"CAST({number} AS DOUBLE)", {"percentile": 0.5}),
        "collect_list": ("list", _text(column), {}),
        "collect_set": ("set", _text(column), {}),
    }
    if function not in ours:
        raise NotApplicable(not_applicable.NO_AGGREGATE)
    if function == "median" and not hasattr(F, "kll_sketch_agg_double"):
        raise NotApplicable(not_applicable.NO_SKETCHES)
    fn, of, options = ours[function]
    aggregate = _aggregate(fn, column, of, **options)
    power = 2 if function == "variance" else 1

    def read(session: Session) -> Any:
        value = session.values[aggregate.name]
        return finish(value if value is None or power == 1 else value**power)

    def bag(values: Any) -> list[str]:
        return sorted(map(str, values))

    if fn in ("list", "set"):
        return Reading(lambda s: bag(s.values[aggregate.name]), (aggregate,), bag)
    return Reading(read, (aggregate,), _as_number)


def _aggregate(fn: str, column: str, of: str, **options: Any) -> Aggregate:
    try:
        return Aggregate.model_validate({"name": f"{fn}_{column}", "fn": fn, "of": of, **options})
    except ValidationError as error:
        raise UnknownShape(f"aggregate {fn!r} of {column!r}") from error


def _text(column: str) -> str:
    return f"get_json_object({FIELDS}, '$.{column}')"


def _number(column: str) -> str:
    return f"try_cast({_text(column)} AS DECIMAL(38, 9))"


def _as_number(value: Any) -> Any:
    return Decimal(value) if isinstance(value, str) else value


def canonical(value: Any) -> str:
    """A value as text, so that 3, 3.0 and Decimal("3.000") are one."""
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int | float | Decimal):
        return format(round(Decimal(str(value)), 9).normalize(), "f")
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {canonical(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, list | tuple | set):
        return "[" + ", ".join(map(canonical, value)) + "]"
    return repr(value)


def differences(what: str, expected: Sequence[Mapping[str, Any]], got: Iterable[Mapping[str, Any]]) -> list[str]:
    """What of the expected rows is not there, and what is there beside; only the fields expected are compared."""
    left, missing = list(got), []
    for row in sorted(expected, key=len, reverse=True):
        same = next((g for g in left if all(canonical(g.get(f)) == canonical(v) for f, v in row.items())), None)
        if same is None:
            missing.append(row)
        else:
            left.remove(same)
    asked = {field for row in expected for field in row}
    lines = [f"{what}: expected {canonical(row)}" for row in missing]
    return lines + [f"{what}: got {canonical({f: v for f, v in g.items() if f in asked} or g)}" for g in left]
