"""By what rows are told that a later run knows again; needs no Spark."""

from pyspark.sql import types as T

from sessionizer.lib.schema.evolution import bare_columns, is_told_otherwise
from sessionizer.tables.delta.changes import retyped


def columns(kind: T.DataType) -> T.StructType:
    return T.StructType([T.StructField("note", kind), T.StructField("notes", T.ArrayType(kind))])


def test_a_collation_makes_no_other_values() -> None:
    before, after = columns(T.StringType()), columns(T.StringType("UTF8_LCASE"))
    assert before != after
    assert not is_told_otherwise(bare_columns(before), bare_columns(after))
    assert retyped(before, after) == []
