"""When two results are the same."""

from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib.compare import ADDED, same_value, tolerances
from sessionizer.lib.config import Aggregate
from sessionizer.lib.rule import Rule


def same(spark: SparkSession, one: str, other: str, within: float = 0.0) -> bool:
    rows = spark.sql(f"SELECT {one} AS one, {other} AS other")
    kind = rows.schema["one"].dataType
    assert isinstance(kind, T.DataType)
    (row,) = rows.select(same_value(F.col("one"), F.col("other"), kind, within)).collect()
    return bool(row[0])


def test_maps_are_the_same_in_any_order(spark: SparkSession) -> None:
    assert same(spark, "map('a', 1, 'b', 2)", "map('b', 2, 'a', 1)")
    assert same(spark, "array(struct(map('a', 1, 'b', 2)))", "array(struct(map('b', 2, 'a', 1)))")
    assert not same(spark, "map('a', 1, 'b', 2)", "map('b', 1, 'a', 2)")


def test_times_in_maps_are_compared_to_the_microsecond(spark: SparkSession) -> None:
    assert not same(spark, "map('a', timestamp_micros(1))", "map('a', timestamp_micros(2))")


def test_numbers_within_others_may_be_as_near_as_those_alone(spark: SparkSession) -> None:
    assert same(spark, "array(0.6D, NULL)", "array(0.6000000000000001D, NULL)", ADDED)
    assert same(spark, "map('b', array(0.6D), 'a', NULL)", "map('a', NULL, 'b', array(0.6000000000000001D))", ADDED)
    assert same(spark, "struct(array(0.1F))", "struct(array(0.1000001F))", ADDED)
    assert same(spark, "CAST(NULL AS ARRAY<DOUBLE>)", "CAST(NULL AS ARRAY<DOUBLE>)", ADDED)
    assert not same(spark, "array(0.6D)", "array(0.6D, 0.6D)", ADDED)
    assert not same(spark, "array(0.6D)", "CAST(NULL AS ARRAY<DOUBLE>)", ADDED)
    assert not same(spark, "map('a', 0.6D)", "map('a', 0.7D)", ADDED)


def test_sql_is_as_near_as_what_it_may_be_made_of() -> None:
    median = Aggregate(name="median", fn="approx_percentile", of="n", percentile=0.5)
    twice, total = Aggregate(name="twice", sql="median * 2"), Aggregate(name="total", fn="sum", of="n")
    own = Aggregate(name="own", fn="custom", of="n", initial="0D", update="acc + value", merge="left + right")
    within = tolerances(Rule(key=(), gap=1, aggregates=(twice, total, median, own)))
    assert within["twice"] == within["median"] > within["total"] == within["own"]
