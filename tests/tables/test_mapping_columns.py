"""By which columns events and a mapping table can meet, and what commits tell of columns."""

from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.lib.config import Stitch
from sessionizer.tables.delta import Table
from sessionizer.tables.stitch.mapping import stitch_problems

OF = Stitch.model_validate({"table": "devices", "from": "device", "to": "user_id"})
INT, BIGINT, TEXT = T.IntegerType(), T.LongType(), T.StringType()
ONE = T.StructType().add("a", INT)
WIDE = T.StructType().add("a", BIGINT)
TWO = T.StructType().add("a", INT).add("b", INT)


def problems(ours: T.DataType, theirs: T.DataType) -> list[str]:
    events, mapping = (T.StructType().add("device", kind) for kind in (ours, theirs))
    return [str(problem) for problem in stitch_problems(events, mapping.add("user_id", INT), OF, "source.stitch")]


@pytest.mark.parametrize(("ours", "theirs"), [(INT, BIGINT), (BIGINT, INT), (ONE, ONE), (ONE, WIDE)])
def test_events_meet_a_mapping_by_one_type_or_a_wider_one(ours: T.DataType, theirs: T.DataType) -> None:
    assert problems(ours, theirs) == []


@pytest.mark.parametrize(("ours", "theirs"), [(INT, TEXT), (ONE, TWO), (TWO, ONE)])
def test_others_are_refused_before_spark_compares_them(ours: T.DataType, theirs: T.DataType) -> None:
    (problem,) = problems(ours, theirs)
    assert "must have one type in the source and in the mapping table" in problem


def test_of_texts_that_are_equal_by_a_collation_none_is_the_smallest() -> None:
    columns = T.StructType().add("device", INT)
    mapping = columns.add("user_id", T.StringType("UTF8_LCASE"))
    (problem,) = stitch_problems(T.StructType().add("device", INT), mapping, OF, "source.stitch")
    assert "several are one by STRING COLLATE UTF8_LCASE" in str(problem)


def test_columns_are_known_wherever_a_commit_tells_them(spark: SparkSession, tmp_path: Path) -> None:
    """Other writers than Spark tell them last, behind all files."""
    for n in range(7):
        deltalake.write_deltalake(tmp_path, pa.table({"x": [n]}), mode="append")
    deltalake.DeltaTable(tmp_path).restore(0)
    entry = Table(spark, str(tmp_path), "source.table").entry(7)
    assert entry is not None
    assert (entry.operation, entry.columns) == ("RESTORE", T.StructType().add("x", BIGINT))
