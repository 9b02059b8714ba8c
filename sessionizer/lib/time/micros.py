"""Integer time on columns: microseconds since the epoch, UTC."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def floor_div(us: Column, width: int) -> Column:
    """Exact integer division towards minus infinity.

    SQL's `div` rounds towards zero, which makes the bucket around 1970 twice as wide; `/` goes through DOUBLE.
    """
    return F.call_function("div", us, F.lit(width)) - F.when(us % width < 0, 1).otherwise(0)


def steady(us: int | None, beside: Column | None) -> Column:
    """A BIGINT that is another one in each run; None = null.

    As a literal it would be part of the generated code, which Spark then compiles, and Java warms up, in each run
    anew. In a constant array it is data, and the code stays: Spark cannot take it out beforehand, since its place
    seems to depend on `beside`, a column that may be null. None: a literal.
    """
    number = F.lit(us).cast("bigint")
    if us is None or beside is None:
        return number
    return F.get(F.array(number, number), beside.isNull().cast("int"))


def timestamp(us: int | None) -> Column:
    """A TIMESTAMP literal; None = null."""
    return F.timestamp_micros(F.lit(us).cast("bigint"))
