"""Bags of whole rows: which copies are left when some are taken away (SEMANTICS §3).

Rows are compared by a hash, since maps cannot be compared themselves; equal rows are as good as each other.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.canonical import canonical_json
from sessionizer.lib.joins import joined

GOES, COMES = ("delete", "update_preimage"), ("insert", "update_postimage")
FROM_FEED = (C.CHANGE_TYPE, C.COMMIT_VERSION, C.COMMIT_TIMESTAMP)


def own_columns(names: Sequence[str]) -> tuple[str, ...]:
    """The source's own columns: without those in flight, those of the change feed and key columns that it has not."""
    made = {name.removeprefix(C.MADE) for name in names if name.startswith(C.MADE)}
    return tuple(name for name in names if not name.startswith("__") and name not in FROM_FEED and name not in made)


def hashed(rows: DataFrame) -> DataFrame:
    """Source rows with `__json` (canonical JSON of the source's own columns) and `__hash` (its SHA-256, hex)."""
    json = canonical_json(rows.select(*C.cols(own_columns(rows.columns))).schema)
    return rows.withColumn(C.JSON, json).withColumn(C.HASH, F.sha2(C.col(C.JSON), 256))


def taken(rows: DataFrame, gone: DataFrame, *order: Column) -> DataFrame:
    """The rows with `__taken`: whether they are among the copies that go. Both have `__hash`.

    order: which of equal rows go first; none: any.
    """
    copies = gone.groupBy(C.HASH).agg(F.count(F.lit(1)).alias("__copies"))
    counted = joined(rows.withColumn("__nth", nth(*order)), copies, (C.HASH,), "left")
    is_taken = F.col("__nth") <= F.coalesce(F.col("__copies"), F.lit(0))
    return counted.withColumn(C.TAKEN, is_taken).drop("__nth", "__copies")


def undone(rows: DataFrame, news: DataFrame) -> DataFrame:
    """Rows of the source as they were before an increment, whose rows a change feed tells, or all are new.

    Out: the columns of rows, and others.
    """
    kind = F.coalesce(C.col(C.CHANGE_TYPE), F.lit("insert")) if C.CHANGE_TYPE in news.columns else F.lit("insert")
    told = rows.unionByName(news.where(kind.isin(*GOES)), allowMissingColumns=True)
    return taken(hashed(told), hashed(news.where(kind.isin(*COMES)))).where(~C.col(C.TAKEN))


def nth(*order: Column) -> Column:
    """The number of a row among equal ones, from 1 on. In: rows with `__hash`."""
    return F.row_number().over(Window.partitionBy(C.HASH).orderBy(*(order or (C.col(C.HASH),))))
