"""The row of those that may still change that began first, and the watermark that it ends by; by Spark or without."""

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from ctypes import c_float
from dataclasses import dataclass
from datetime import MAXYEAR, date, datetime, timedelta
from decimal import Decimal
from math import isfinite, isnan
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.durations import DAY
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.queries.file import File
from sessionizer.tables.queries.local import as_numbers

_TIME = re.compile(r"[+-]?\d{4,6}-\d\d-\d\d[T ]\d\d:")
DAYS_OF_400_YEARS = 146_097
_PLAIN = 1e-3, 1e7  # between these a number has no exponent
OWN = "__own"  # the watermark that a row keeps of its key


@dataclass(frozen=True)
class Oldest:
    """The row that began first. key: text, as `--key` takes it (None: null), by column. times: microseconds, by column.

    watermark: the one that it ends by, in microseconds; None: not known.
    """

    key: Mapping[str, str | None]
    times: Mapping[str, int]
    watermark: int | None


def oldest_by_spark(rows: DataFrame, status: Column, span: Sequence[str], manifest: Manifest) -> dict[str, Oldest]:
    """Of the rows of each status; span: the columns of their times, the start first."""
    key, per_key = manifest.key, manifest.rule.get("watermark_per") == "key"
    own = _own(rows) if per_key else F.lit(None).cast("bigint")
    times = [F.unix_micros(C.col(name)).alias(name) for name in span]
    binary = {field.name.lower() for field in rows.schema.fields if isinstance(field.dataType, T.BinaryType)}
    values = [C.col(name) if name.lower() in binary else C.col(name).cast("string") for name in key]
    texts = [value.alias(f"__key_{i}") for i, value in enumerate(values)]
    least = F.min(F.struct(*times, *texts, own.alias(OWN))).alias("oldest")
    found = {}
    for name, first in rows.groupBy(status.alias("status")).agg(least).collect():
        of_key = {column: first[f"__key_{i}"] for i, column in enumerate(key)}
        of_row = {column: first[column] for column in span}
        found[name] = Oldest(_texts(of_key), of_row, _watermark(manifest, of_key, first[OWN]))
    return found


def oldest_in(
    files: Iterable[File], status: str, least: tuple[int, ...], span: Sequence[str], manifest: Manifest
) -> Oldest:
    """The row of this status (windows have none: theirs is given) with these times, of files that have one."""
    key, per_key = manifest.key, manifest.rule.get("watermark_per") == "key"
    found = list[tuple[dict[str, object], int | None]]()
    has_status = C.SESSION_START in span
    for file in files:
        told = file.read([*span, *([C.STATUS] if has_status else []), *key, *([C.STATE] if per_key else [])])
        statuses = told[C.STATUS].to_pylist() if has_status else [status] * told.num_rows
        rows = zip(statuses, *[as_numbers(told[name]).to_pylist() for name in span], strict=True)
        for place in (i for i, row in enumerate(rows) if row == (status, *least)):
            of_row = {name: _value(told[name], place) for name in key}
            state = told[C.STATE][place].as_py() if per_key else None
            found.append((of_row, (state or {}).get(C.STATE_WATERMARK)))
    first, own = min(found, key=lambda row: [(text is not None, text or "") for text in _texts(row[0]).values()])
    return Oldest(_texts(first), dict(zip(span, least, strict=True)), _watermark(manifest, first, own))


def _value(column: Any, place: int) -> object:
    """The value; of a time beyond the years that Python has its text, as Spark writes it."""
    try:
        value = column[place].as_py()
    except (OverflowError, ValueError):
        is_day = str(column.type) == "date32[day]"
        return _beyond(column[place].value * DAY if is_day else column[place].value, is_day=is_day)
    return single(value) if str(column.type) == "float" else value


def _beyond(us: int, *, is_day: bool) -> str:
    days, rest = divmod(us, DAY)
    cycles, day = divmod(days + date(1970, 1, 1).toordinal() - 1, DAYS_OF_400_YEARS)  # alike, but for the year
    alike = datetime.fromordinal(day + 1) + timedelta(microseconds=rest)
    year = alike.year + 400 * cycles
    told = f"{'+' if year > MAXYEAR else ''}{year:0{5 if year < 0 else 4}}{alike:-%m-%d}"
    return told if is_day else _time(f"{told} {alike:%H:%M:%S.%f}")


def _own(rows: DataFrame) -> Column:
    """The watermark that live rows keep where each key has its own."""
    state = rows.schema[C.STATE].dataType
    keeps = isinstance(state, T.StructType) and C.STATE_WATERMARK in state.names
    return C.col(C.STATE)[C.STATE_WATERMARK] if keeps else F.lit(None).cast("bigint")


def _watermark(manifest: Manifest, key: Mapping[str, object], own: int | None) -> int | None:
    """That of the table, of the row's scope, or of its key. key: values of BINARY, else texts or values."""
    per = manifest.rule.get("watermark_per", "table")
    if per == "key":
        return own
    if per == "table":
        return manifest.watermark_after
    wanted = {name.lower(): _in_json(value) for name, value in key.items()}
    scopes = [json.loads(line, parse_float=Decimal) for line in manifest.scopes_after or ()]
    for is_same in (_is, _is_nearly):  # JSON writes times by ISO-8601, as texts may be
        for scope in scopes:
            if all(is_same(scope.get(name), wanted.get(name.lower())) for name in per):
                return None if (found := scope.get(C.SCOPE_WATERMARK)) is None else int(found)
    return None


def _is(value: object, text: str | None) -> bool:
    """Whether this is how Spark writes a value."""
    return key_text(value) == text


def _is_nearly(value: object, text: str | None) -> bool:
    """The same, but for how times and numbers are written."""
    match value, text:
        case str(), str() if _TIME.match(value) and _TIME.match(text):
            return _time(value) == _time(text)
        case ((int() | Decimal()), str()) if not isinstance(value, bool):
            with suppress(ArithmeticError):
                return value == Decimal(text)
    return _is(value, text)


def _time(text: str) -> str:
    """As Spark writes it."""
    time = text.replace("T", " ").removesuffix("Z")
    return time.rstrip("0").rstrip(".") if "." in time else time


def _in_json(value: object) -> str | None:
    """As JSON has it: BINARY by base64."""
    return b64encode(value).decode() if isinstance(value, bytes | bytearray) else key_text(value)


def _texts(key: Mapping[str, object]) -> dict[str, str | None]:
    return {name: key_text(value) for name, value in key.items()}


def key_text(value: object) -> str | None:
    """As Spark writes a value of a key."""
    match value:
        case None | str():
            return value
        case bool():
            return str(value).lower()
        case bytes() | bytearray():
            return value.decode(errors="replace")
        case datetime():
            plain = str(value.replace(tzinfo=None))
            return plain.rstrip("0") if value.microsecond else plain
        case date():
            return value.isoformat()
        case Decimal():
            return f"{value:f}"
        case float() if not isfinite(value):
            return "NaN" if isnan(value) else f"{'-' if value < 0 else ''}Infinity"
        case float() if value != 0 and not _PLAIN[0] <= abs(value) < _PLAIN[1]:  # 1.0E7, as Java has it
            of = Decimal(repr(value)).normalize()
            first, *others = of.as_tuple().digits
            told = "".join(map(str, others or [0]))
            return f"{'-' if value < 0 else ''}{first}.{told}E{of.adjusted()}"
    return str(value)


def single(value: Any) -> Any:
    """A number of single precision by as few digits as tell it, as Spark writes it."""
    if isinstance(value, list):
        return [single(one) for one in value]
    if not isinstance(value, float) or not isfinite(value):
        return value
    told = (float(f"{value:.{digits}g}") for digits in range(1, 10))
    return next(found for found in told if c_float(found).value == value)
