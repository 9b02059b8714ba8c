"""Joins by columns that may be null: the one way in which frames meet by key."""

from functools import reduce
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C

ONE_FORM = (T.BooleanType, T.IntegralType, T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType, T.BinaryType)
How = Literal["inner", "left", "left_semi", "left_anti"]


def joined(
    left: DataFrame, right: DataFrame, names: tuple[str, ...], how: How, also: Column | None = None
) -> DataFrame:
    """Rows of `left` with those of `right` that are equal in these columns; two nulls are equal.

    also: a further condition, over columns that only one of the frames has. No names: all rows meet.
    Out: the columns of left, then, of an inner or left join, those of right but `names`.
    """
    low = {name.lower() for name in names}
    theirs = [C.col(name).alias(f"__same_{i}") for i, name in enumerate(names)]
    others = [C.col(name) for name in right.columns if name.lower() not in low]
    same = [C.col(name).eqNullSafe(F.col(f"__same_{i}")) for i, name in enumerate(names)]
    condition = reduce(Column.__and__, [*same, *([] if also is None else [also])], F.lit(True))
    met = left.join(right.select(*theirs, *others), condition, how)
    return met if how in ("left_semi", "left_anti") else met.drop(*[f"__same_{i}" for i in range(len(names))])


def met_by_few(rows: DataFrame, few: DataFrame, names: tuple[str, ...]) -> DataFrame:
    """Rows that are equal in these columns to one of a few rows, which differ in them; two nulls are equal.

    They meet by a hash where equal values have one: a single BIGINT is looked up in half of the time that several
    columns take.
    """
    if not all(_has_one_form(field.dataType) for field in rows.select(*C.cols(names)).schema.fields):
        return joined(rows, F.broadcast(few), names, "left_semi")
    theirs = [C.col(name).alias(f"__same_{i}") for i, name in enumerate(names)]
    there = few.select(F.xxhash64(*C.cols(names)).alias("__met"), *theirs)
    # Spark would look up all that it sees to be an equality.
    same = [F.greatest(C.col(name).eqNullSafe(F.col(f"__same_{i}")), F.lit(False)) for i, name in enumerate(names)]
    met = rows.withColumn("__met", F.xxhash64(*C.cols(names))).join(F.broadcast(there), "__met")
    return met.where(reduce(Column.__and__, same)).select(*C.cols(tuple(rows.columns)))


def _has_one_form(kind: T.DataType) -> bool:
    """Whether what is equal is the same: 0.0 and -0.0 are not, nor what a collation holds to be equal."""
    if isinstance(kind, T.StringType):
        return kind == T.StringType()
    return isinstance(kind, ONE_FORM)
