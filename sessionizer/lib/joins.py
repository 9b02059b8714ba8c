"""Joins by columns that may be null: the one way in which frames meet by key."""

from functools import reduce
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C

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
