"""Times as files write them: ISO 8601, seconds or milliseconds since the epoch, a pattern, nanoseconds of Parquet."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.errors import SourceError, UsageError
from sessionizer.lib.time.micros import floor_div
from sessionizer.tables.delta.settings import having

ISO = "iso"
PER_SECOND = {"epoch_s": 1_000_000, "epoch_ms": 1_000}
# Spark's patterns, and Python's for the same. Two letters take two digits, one takes one or two.
PATTERNS = {
    "dd.MM.yyyy HH:mm:ss": "%d.%m.%Y %H:%M:%S",
    "d.M.yyyy H:mm:ss": "%d.%m.%Y %H:%M:%S",
    "dd.MM.yyyy HH:mm": "%d.%m.%Y %H:%M",
    "d.M.yyyy H:mm": "%d.%m.%Y %H:%M",
    "MM/dd/yyyy HH:mm:ss": "%m/%d/%Y %H:%M:%S",
    "M/d/yyyy H:mm:ss": "%m/%d/%Y %H:%M:%S",
    "MM/dd/yyyy HH:mm": "%m/%d/%Y %H:%M",
    "M/d/yyyy H:mm": "%m/%d/%Y %H:%M",
    "dd/MM/yyyy HH:mm:ss": "%d/%m/%Y %H:%M:%S",
    "d/M/yyyy H:mm:ss": "%d/%m/%Y %H:%M:%S",
    "dd/MM/yyyy HH:mm": "%d/%m/%Y %H:%M",
    "d/M/yyyy H:mm": "%d/%m/%Y %H:%M",
    "yyyy/MM/dd HH:mm:ss": "%Y/%m/%d %H:%M:%S",
    "yyyy/M/d H:mm:ss": "%Y/%m/%d %H:%M:%S",
    "yyyyMMdd HHmmss": "%Y%m%d %H%M%S",
    "dd/MMM/yyyy:HH:mm:ss Z": "%d/%b/%Y:%H:%M:%S %z",
}
_LETTERS = {
    **dict.fromkeys("dMH", r"\d\d?"),
    **dict.fromkeys(("dd", "MM", "HH", "mm", "ss"), r"\d\d"),
    **{"yyyy": r"\d{4}", "MMM": "[A-Za-z]{3}", "Z": r"[+-]\d{4}", ".": r"\."},
}
_LETTER = re.compile(r"yyyy|M+|d+|H+|mm|ss|Z|\.")
_SHAPES = {p: re.compile(_LETTER.sub(lambda found: _LETTERS[found[0]], p), re.ASCII) for p in PATTERNS}
# Spark takes 2024, 10:30 and the like for times too; a time without its date is none.
DATED = r"^\s*\d{4}-\d{1,2}-\d{1,2}(?!\d)"
# Spark reads a zone behind seconds alone; and these for one of several places that they may stand for.
_MINUTES = r"^(\s*\d{4}-\d{1,2}-\d{1,2}[T ]\d{1,2}:\d{2})(?=\s*[A-Za-z+-])"
_SHORT_ZONES = (
    *("ACT", "AET", "AGT", "ART", "AST", "BET", "BST", "CAT", "CNT", "CST", "CTT", "ECT", "IET", "IST"),
    *("MIT", "NET", "NST", "PLT", "PNT", "PRT", "PST", "SST", "VST"),
)
_SHORT_ZONE = rf"(?<![A-Za-z/])({'|'.join(_SHORT_ZONES)})(?![A-Za-z/])"
_TELLS_ZONE = re.compile(r"[zvO]")  # a pattern, beside its literals
_NANOS_AS_NUMBERS = {"spark.sql.legacy.parquet.nanosAsLong": "true"}  # which Spark refuses else
# Years 1 to 9999, in microseconds since the epoch: what SQL and every reader of Parquet can show.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def check_time_type(name: str, data_type: T.DataType, time_format: str) -> None:
    """Raise a UsageError if a column of this type cannot be read as times of this format."""
    match data_type:
        case T.StringType() | T.TimestampType() | T.TimestampNTZType() | T.DateType() | T.NullType():
            return
        case T.NumericType() if time_format in PER_SECOND:
            return
        case T.NumericType():
            raise UsageError(
                f"the time column {name} holds numbers, and the time format says otherwise",
                value=time_format,
                remedy="say --time-format epoch_s or epoch_ms",
            )
        case _:
            raise UsageError(
                f"the time column {name} must hold texts, numbers or times",
                value=data_type.simpleString(),
                remedy="name another column in source.event_time, or an SQL expression",
            )


def parse_time(value: Column, data_type: T.DataType, time_format: str) -> Column:
    """The value as TIMESTAMP; null where it is no such time, or outside the years 1 to 9999.

    Without an offset it is UTC. Formats: `iso` (a full date; `T` or a space before the time), `epoch_s` and
    `epoch_ms` (whole numbers or decimals, cut to microseconds), else a datetime pattern of Spark.
    """
    moment = _moment(value, data_type, time_format)
    return F.when(F.unix_micros(moment).between(_FIRST_US, _LAST_US), moment)


def _moment(value: Column, data_type: T.DataType, time_format: str) -> Column:
    match data_type:
        case T.TimestampType():
            return value
        case T.TimestampNTZType() | T.DateType():
            return value.try_cast("timestamp")
    if factor := PER_SECOND.get(time_format):
        us = F.floor(sane(value).try_cast(T.DecimalType(29, 9)) * F.lit(factor))
        return F.timestamp_micros(us.try_cast("bigint"))
    if time_format == ISO:
        dated = F.when(value.rlike(DATED) & ~value.rlike(rf"{_SHORT_ZONE}\s*$"), value)
        return F.regexp_replace(dated, _MINUTES, "$1:00").try_cast("timestamp")
    if _TELLS_ZONE.search(re.sub("'[^']*'", "", time_format)):
        value = F.when(~value.rlike(rf"(?i){_SHORT_ZONE}"), value)
    return F.try_to_timestamp(F.trim(value), F.lit(time_format))


def sane(number: Column) -> Column:
    """A text that may be a number, but none with an exponent of four digits: Spark fails for 1e-999999999, or hangs."""
    return F.when(~number.rlike(r"(?i)e[+-]?0*[1-9]\d{3}"), number)


def patterns_of(texts: Sequence[str], at_least: float) -> list[str]:
    """Those of `PATTERNS` that read most of the texts, one for each meaning; none where that is a smaller share."""
    shares = {pattern: sum(reads(pattern, text) for text in texts) / len(texts) for pattern in PATTERNS}
    most = max(at_least, *shares.values())
    by_meaning = dict[str, str]()
    for pattern in (pattern for pattern, share in shares.items() if share == most):
        by_meaning.setdefault(PATTERNS[pattern], pattern)
    return list(by_meaning.values())


def reads(pattern: str, text: str) -> bool:
    """Whether a text is a time by one of `PATTERNS`."""
    if not _SHAPES[pattern].fullmatch(text.strip(" ")):
        return False
    try:
        datetime.strptime(text.strip(" "), PATTERNS[pattern])
    except ValueError:
        return False
    return True


@contextmanager
def parquet_rows(spark: SparkSession, file: Path, named: Path) -> Iterator[DataFrame]:
    """The rows of a Parquet file; times in nanoseconds, as pandas writes them, are cut to microseconds.

    A column that is all null, of which pandas knows no type, has none here either, where Spark takes it for numbers.
    named: what the file is called in errors. The rows can be read inside alone.
    Errors: SourceError where such times lie within another column.
    """
    told = _told(file)
    nanos = [(column, kind) for column, kind in told if kind.get("timeUnit") == "nanoseconds"]
    if inner := [column.path for column, _ in nanos if column.path != column.name]:
        raise SourceError(
            "times in nanoseconds must be columns of a file, not lie within one",
            value=f"{inner[0]} in {named}",
            remedy="write the file anew with microseconds: coerce_timestamps='us'",
        )
    with having(spark, _NANOS_AS_NUMBERS if nanos else {}):
        rows = spark.read.parquet(file.as_uri())
        cut = {column.name: F.timestamp_micros(floor_div(C.col(column.name), 1_000)) for column, _ in nanos}
        here = {column.name for column, kind in nanos if not kind["isAdjustedToUTC"]}
        empty = {
            column.name: F.lit(None) for column, kind in told if kind["Type"] == "Null" and column.path == column.name
        }
        yield rows.withColumns({n: us.cast("timestamp_ntz") if n in here else us for n, us in cut.items()} | empty)


def _told(file: Path) -> list[tuple[Any, Mapping[str, Any]]]:
    """The columns, and what they are said to be; none of what is no Parquet file, of which Spark says it."""
    import pyarrow as pa  # noqa: PLC0415
    from pyarrow.parquet import ParquetFile  # noqa: PLC0415

    try:
        return [(column, json.loads(column.logical_type.to_json())) for column in ParquetFile(file).schema]
    except (OSError, pa.ArrowException):
        return []


def of_time(value: Column, kind: T.DataType) -> Column:
    """A time of the years 1 to 9999; null where it is of another. What is no time stays."""
    match kind:
        case T.TimestampType():
            return parse_time(value, kind, ISO)
        case T.DateType() | T.TimestampNTZType():
            return in_years(value)
    return value


def in_years(day: Column) -> Column:
    """A DATE or TIMESTAMP_NTZ of the years 1 to 9999, as times are; null where it is of another."""
    return F.when(F.year(day).between(1, 9999), day)
