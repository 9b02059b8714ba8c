from typing import cast

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import types as T

from sessionizer.jobs.ingest.lines import LINE, TORN, parse_csv, parse_json, text_lines, unreadable_rows


def text(spark: SparkSession, *lines: str) -> DataFrame:
    frame = spark.createDataFrame([(n, line) for n, line in enumerate(lines)], "n int, value string")
    return text_lines(frame.orderBy("n"))


def struct(ddl: str) -> T.StructType:
    return cast(T.StructType, T.StructType.fromDDL(ddl))


def csv(spark: SparkSession, *lines: str, sep: str = ",", quote: str = '"') -> list[tuple]:
    return [tuple(r)[1:] for r in parse_csv(text(spark, *lines), ("a", "b"), sep, quote).collect()]


def json(spark: SparkSession, *lines: str, schema: str = "a string, b string") -> list[Row]:
    return parse_json(text(spark, *lines), struct(schema)).collect()


def test_blank_lines_are_no_lines_and_carriage_returns_belong_to_no_field(spark: SparkSession) -> None:
    assert [r[LINE] for r in text(spark, "a", "", " ", "\r", "b\r", "\t", "c").collect()] == ["a", "b", "\t", "c"]


def test_csv_fields(spark: SparkSession) -> None:
    assert csv(spark, "1,x", "1,", '1,6" pipe', '1,"a, b"', '1,"say ""hi"""', '1,"back\\"', " 1 ,x", "é,日本") == [
        (False, "1", "x"),
        (False, "1", None),
        (False, "1", '6" pipe'),
        (False, "1", "a, b"),
        (False, "1", 'say "hi"'),
        (False, "1", "back\\"),
        (False, " 1 ", "x"),
        (False, "é", "日本"),
    ]


def test_csv_lines_of_too_few_or_too_many_fields_or_with_an_open_quote_are_torn(spark: SparkSession) -> None:
    lines = ["1", "1,2,3", '1,"two', '"1,two', '1,"a ""b""', '"a""b",c', '1,"' + '""' * 50_000]
    assert [row[0] for row in csv(spark, *lines)] == [True, True, True, True, True, False, True]


def test_csv_without_quoting_takes_quotes_for_text(spark: SparkSession) -> None:
    assert csv(spark, '"1\tx', '""\t"', "1", sep="\t", quote="") == [
        (False, '"1', "x"),
        (False, '""', '"'),
        (True, "1", None),
    ]


def test_json_lines_hold_one_object_each(spark: SparkSession) -> None:
    good = ['{"a": 1, "b": "x"}', ' {"a": {"x": [1]}, "c": 3} ', "{}", '{"b": null}', '{"a": "]"}']
    torn = ['{"a": 1', '{"a": 1}{"a": 2}', '{"a": 1} x', '{"a": 1}]', '{"a": 1},{"a": 2}', '[{"a": 1}]', "1", "null"]
    rows = json(spark, *good, *torn)
    assert [row[TORN] for row in rows] == [False] * 5 + [True] * 8
    assert [tuple(row)[2:] for row in rows[:5]] == [
        ("1", "x"),
        ('{"x":[1]}', None),
        (None, None),
        (None, None),
        ("]", None),
    ]


def test_a_json_value_of_another_type_tears_the_line(spark: SparkSession) -> None:
    rows = json(spark, '{"a": {"x": 1}}', '{"a": {"x": "one"}}', schema="a struct<x: int>")
    assert [row[TORN] for row in rows] == [False, True]


def test_unreadable_lines_become_rejected_events_and_identical_ones_are_numbered(spark: SparkSession) -> None:
    lines = spark.createDataFrame([("x",), (None,), ('"',), ("x",)], "__torn_line string")
    schema = struct(
        "user bigint, event_time timestamp, reason string, event string, event_hash string, ordinal int, run_id string"
    )
    rows = unreadable_rows(lines, "a.log", "ingest-1", schema)
    assert [(f.name, f.dataType) for f in rows.schema.fields] == [(f.name, f.dataType) for f in schema.fields]
    assert [tuple(r)[:4] + tuple(r)[5:] for r in rows.orderBy("event", "ordinal").collect()] == [
        (None, None, "unreadable", '{"file":"a.log","line":"\\""}', 1, "ingest-1"),
        (None, None, "unreadable", '{"file":"a.log","line":"x"}', 1, "ingest-1"),
        (None, None, "unreadable", '{"file":"a.log","line":"x"}', 2, "ingest-1"),
    ]
