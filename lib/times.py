"""Integer time on columns: microseconds since the epoch, UTC."""

from pyspark.sql import Column
from pyspark.sql import functions as F

DAY = 24 * 3600 * 1_000_000


def floor_div(us: Column, width: int) -> Column:
    """Exact integer division towards minus infinity.

    SQL's `div` rounds towards zero, which makes the bucket around 1970 twice as wide; `/` goes through DOUBLE.
    """
    return F.call_function("div", us, F.lit(width)) - F.when(us % width < 0, 1).otherwise(0)


def timestamp(us: int | None) -> Column:
    """A TIMESTAMP literal; None = null."""
    return F.timestamp_micros(F.lit(us).cast("bigint"))
