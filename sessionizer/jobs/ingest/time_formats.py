"""Times as files write them: ISO 8601, seconds or milliseconds since the epoch, or a pattern."""

from datetime import datetime

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib.errors import UsageError

ISO = "iso"
PER_SECOND = {"epoch_s": 1_000_000, "epoch_ms": 1_000}
# Spark's patterns, and Python's for the same; where several fit alike, the first.
PATTERNS = {
    "dd.MM.yyyy HH:mm:ss": "%d.%m.%Y %H:%M:%S",
    "dd.MM.yyyy HH:mm": "%d.%m.%Y %H:%M",
    "MM/dd/yyyy HH:mm:ss": "%m/%d/%Y %H:%M:%S",
    "MM/dd/yyyy HH:mm": "%m/%d/%Y %H:%M",
    "dd/MM/yyyy HH:mm:ss": "%d/%m/%Y %H:%M:%S",
    "dd/MM/yyyy HH:mm": "%d/%m/%Y %H:%M",
    "yyyy/MM/dd HH:mm:ss": "%Y/%m/%d %H:%M:%S",
    "yyyyMMdd HHmmss": "%Y%m%d %H%M%S",
    "dd/MMM/yyyy:HH:mm:ss Z": "%d/%b/%Y:%H:%M:%S %z",
    "EEE MMM dd HH:mm:ss Z yyyy": "%a %b %d %H:%M:%S %z %Y",
}
# Spark takes 2024, 10:30 and the like for times too; a time without its date is none.
_DATED = r"^\s*\d{4}-\d{1,2}-\d{1,2}(?!\d)"
# Years 1 to 9999, in microseconds since the epoch: what SQL and every reader of Parquet can show.
_FIRST_US, _LAST_US = -62_135_596_800_000_000, 253_402_300_799_999_999


def check_time_type(name: str, data_type: T.DataType, time_format: str) -> None:
    """Raise a UsageError if a column of this type cannot be read as times of this format."""
    match data_type:
        case T.StringType() | T.TimestampType() | T.TimestampNTZType() | T.DateType():
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
    match data_type:
        case T.TimestampType():
            return value
        case T.TimestampNTZType() | T.DateType():
            return value.cast("timestamp")
    if factor := PER_SECOND.get(time_format):
        us = F.floor(value.try_cast(T.DecimalType(29, 9)) * F.lit(factor))
        return F.when(us.between(_FIRST_US, _LAST_US), F.timestamp_micros(us.try_cast("bigint")))
    if time_format == ISO:
        moment = F.when(value.rlike(_DATED), value).try_cast("timestamp")
    else:
        moment = F.try_to_timestamp(F.trim(value), F.lit(time_format))
    return F.when(F.unix_micros(moment).between(_FIRST_US, _LAST_US), moment)


def reads(pattern: str, text: str) -> bool:
    """Whether a text is a time by one of `PATTERNS`, as far as Python can tell."""
    try:
        datetime.strptime(text.strip(), PATTERNS[pattern])
    except ValueError:
        return False
    return True
