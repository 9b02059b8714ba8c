"""By which columns events and a mapping table can meet."""

import pytest
from pyspark.sql import types as T

from sessionizer.lib.config import Stitch
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
