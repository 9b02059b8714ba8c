"""What of a table can still be read: its files may be vacuumed, its log cleaned up."""

from collections.abc import Callable
from functools import partial

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.errors import SourceError, TableError
from sessionizer.tables.delta.commits import GONE, NO_CHANGES


def opens(read: Callable[[], DataFrame]) -> bool:
    """Whether all files of a frame are there; of each no more is read than its end. A `limit` would look at a few.

    Errors: those of Spark that tell of something else: it may be over the next time.
    """
    return is_there(lambda: read().agg(F.sum(F.lit(1))).collect())  # a count the log would answer


def reads(rows: Callable[[], DataFrame]) -> bool:
    """Whether all values of a frame that may be null can be read. Errors: as of `opens`."""
    return is_there(lambda: read_through(rows()))


def read_through(rows: DataFrame) -> None:
    """Compute every value that may be null. To write them nowhere is refused by tables that have deletion vectors."""
    rows.agg(*[F.count(C.col(name)) for name in rows.columns]).collect()


def is_there(look: Callable[[], object]) -> bool:
    """Whether what is looked at can be read. Errors: as of `opens`."""
    try:
        look()
    except (SourceError, TableError):
        return False
    except (PySparkException, Py4JJavaError) as error:
        if not any(sign in str(error) for sign in (*GONE, *NO_CHANGES)):
            raise
        return False
    return True


def first_readable(of: Callable[[int, int], DataFrame], low: int, high: int) -> int:
    """The first of these versions from which on all their changes can be read; the one behind them: none can."""
    first = low if reads(partial(of, low, high)) else high + 1
    while low < first:
        middle = (low + first) // 2
        low, first = (low, middle) if reads(partial(of, middle, high)) else (middle + 1, first)
    return first
