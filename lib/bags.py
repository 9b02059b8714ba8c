"""Bags of whole rows: which copies are left when some are taken away (SEMANTICS §3).

Rows are compared by their hash, since maps cannot be compared themselves; equal rows are as good as each other.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import FROM_FEED, WITHDRAWN
from lib.canonical import canonical_json

HASH = "__hash"
COPIES = "__copies"
NTH = "__nth"


def hashed(rows: DataFrame) -> DataFrame:
    """Source rows with `__hash`, which is what `rejected_events` calls `event_hash`."""
    payload = tuple(n for n in rows.columns if not n.startswith("__") and n not in FROM_FEED)
    return rows.withColumn(HASH, F.sha2(canonical_json(rows.select(*C.cols(payload)).schema), 256))


def without(rows: DataFrame, gone: DataFrame) -> DataFrame:
    """The rows, less as many copies of each as are gone. Both have `__hash`; of the latter only their number counts."""
    numbered = rows.join(_copies(gone, COPIES), HASH, "left").withColumn(NTH, _nth(C.col(HASH)))
    return numbered.where(F.col(COPIES).isNull() | (F.col(NTH) > F.col(COPIES))).drop(COPIES, NTH)


def netted(changes: DataFrame) -> DataFrame:
    """Change rows without those that undo each other: added and taken away again, in whatever order.

    In: change rows with `__hash` and `__verdict`; `withdrawn` says that the row is gone from the source.
    """
    same = Window.partitionBy(HASH)
    is_gone = C.col(C.VERDICT).eqNullSafe(F.lit(WITHDRAWN))
    undone_by = F.when(is_gone, F.count_if(~is_gone).over(same)).otherwise(F.count_if(is_gone).over(same))
    one_way = Window.partitionBy(HASH, F.col("__gone")).orderBy(C.CHANGE_TYPE)
    numbered = changes.withColumns({"__gone": is_gone, COPIES: undone_by})
    numbered = numbered.withColumn(NTH, F.row_number().over(one_way))
    return numbered.where(F.col(NTH) > F.col(COPIES)).drop(NTH, COPIES, "__gone")


def excess(rejected: DataFrame, gone: DataFrame, source: DataFrame) -> DataFrame:
    """Rows of `rejected_events` whose event has left the source: of equal rows, accepted ones leave first.

    In: rejected: rows of the table; gone: the withdrawn rows; source: rows as they were before, among them all
    copies of withdrawn rows that have a key and a time. All with `__hash`.
    """
    counted = (
        _copies(gone, COPIES)
        .join(_copies(rejected, "__rejected"), HASH)
        .join(_copies(source, "__source"), HASH, "left")
    )
    # A row without key or time is not looked up in the source: all its copies are rejected.
    of_source = F.coalesce(F.col("__source"), F.col("__rejected"))
    left = counted.select(HASH, (F.col("__rejected") + F.col(COPIES) - of_source).alias("__excess"))
    numbered = rejected.join(left, HASH).withColumn(NTH, _nth(C.col(C.RUN_SEQ), C.col(C.ORDINAL)))
    return numbered.where(F.col(NTH) <= F.col("__excess")).select(*C.cols(tuple(rejected.columns)))


def _copies(rows: DataFrame, name: str) -> DataFrame:
    return rows.groupBy(HASH).agg(F.count(F.lit(1)).alias(name))


def _nth(*order: Column) -> Column:
    return F.row_number().over(Window.partitionBy(HASH).orderBy(*order))
