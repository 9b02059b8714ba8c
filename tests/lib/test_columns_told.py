"""By what rows are told that a later run knows again."""

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.lib.admission.retold import as_told
from sessionizer.lib.schema.evolution import PHYSICAL, bare_columns, is_told_otherwise
from sessionizer.tables.delta.changes import retyped


def columns(kind: T.DataType) -> T.StructType:
    return T.StructType([T.StructField("note", kind), T.StructField("notes", T.ArrayType(kind))])


def test_a_collation_makes_no_other_values() -> None:
    before, after = columns(T.StringType()), columns(T.StringType("UTF8_LCASE"))
    assert before != after
    assert not is_told_otherwise(bare_columns(before), bare_columns(after))
    assert retyped(before, after) == []


def test_a_text_keeps_its_value_whatever_its_collation_and_what_else_has_another_name(spark: SparkSession) -> None:
    def told(name: str, kind: T.DataType) -> T.StructType:
        fields = [T.StructField("s", T.StructType([T.StructField("t", kind)])), T.StructField("t", kind)]
        return T.StructType([*fields, T.StructField(name, T.IntegerType(), True, {PHYSICAL: "of-file"})])

    rows = spark.createDataFrame([(("a",), "b", 1)], told("n", T.StringType()))
    (row,) = as_told(rows, told("n", T.StringType()), told("m", T.StringType("UTF8_LCASE"))).collect()
    assert row.asDict(recursive=True) == {"s": {"t": "a"}, "t": "b", "m": 1}
