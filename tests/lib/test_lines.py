from pathlib import Path
from typing import cast

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.lines import (
    LINE,
    NUMBER,
    TORN,
    examples,
    parse_csv,
    parse_json,
    places,
    text_lines,
    unreadable_rows,
)
from sessionizer.tables.delta.settings import having


def text(spark: SparkSession, *lines: str) -> DataFrame:
    frame = spark.createDataFrame([(n, line) for n, line in enumerate(lines)], "n int, value string")
    return text_lines(frame.orderBy("n"))


def struct(ddl: str) -> T.StructType:
    return cast(T.StructType, T.StructType.fromDDL(ddl))


def csv(spark: SparkSession, *lines: str, sep: str = ",", quote: str = '"') -> list[tuple]:
    rows = parse_csv(text(spark, *lines), ("a", "b"), sep, quote).collect()
    return [(why(r), *tuple(r)[3:]) for r in rows]


def why(row: Row) -> str | None:
    """Column, reason and value, as far as they are there."""
    return None if row[TORN] is None else " · ".join(part for part in row[TORN] if part is not None)


def json(spark: SparkSession, *lines: str, schema: str = "a string, b string") -> list[Row]:
    return parse_json(text(spark, *lines), struct(schema)).collect()


def test_blank_lines_are_no_lines_and_carriage_returns_belong_to_no_field(spark: SparkSession) -> None:
    assert [r[LINE] for r in text(spark, "a", "", " ", "\r", "b\r", "\t", "c").collect()] == ["a", "b", "\t", "c"]


def test_csv_fields(spark: SparkSession) -> None:
    assert csv(spark, "1,x", "1,", '1,6" pipe', '1,"a, b"', '1,"say ""hi"""', '1,"back\\"', " 1 ,x", "é,日本") == [
        (None, "1", "x"),
        (None, "1", None),
        (None, "1", '6" pipe'),
        (None, "1", "a, b"),
        (None, "1", 'say "hi"'),
        (None, "1", "back\\"),
        (None, " 1 ", "x"),
        (None, "é", "日本"),
    ]


def test_nul_is_a_letter_also_within_quotes_and_beside_them(spark: SparkSession) -> None:
    lines = ['"a\0b",x\0', '"\0",""', '"\0""\0""",\0', '"a\0"",b","\0,"']
    assert csv(spark, *lines) == [
        (None, "a\0b", "x\0"),
        (None, "\0", None),
        (None, '\0"\0"', "\0"),
        (None, 'a\0",b', "\0,"),
    ]


def test_csv_lines_of_too_few_or_too_many_fields_or_with_an_open_quote_are_torn(spark: SparkSession) -> None:
    lines = ["1", "1,2,3", '1,"two', '"1,two', '1,"a ""b""', '"a""b",c', '1,"' + '""' * 50_000]
    number, quote = "not 2 fields", "a quote that nothing closes"
    assert [row[0] for row in csv(spark, *lines)] == [number, number, quote, quote, quote, None, quote]


def test_csv_without_quoting_takes_quotes_for_text(spark: SparkSession) -> None:
    assert csv(spark, '"1\tx', '""\t"', "1", sep="\t", quote="") == [
        (None, '"1', "x"),
        (None, '""', '"'),
        ("not 2 fields", "1", None),
    ]


def test_json_lines_hold_one_object_each(spark: SparkSession) -> None:
    good = ['{"a": 1, "b": "x"}', ' {"a": {"x": [1]}, "c": 3} ', "{}", '{"b": null}', '{"a": "]"}']
    torn = ['{"a": 1', '{"a": 1}{"a": 2}', '{"a": 1} x', '{"a": 1}]', '{"a": 1},{"a": 2}', '[{"a": 1}]', "1", "null"]
    rows = json(spark, *good, *torn)
    assert [why(row) for row in rows] == [None] * 5 + ["not one JSON object"] * 8
    assert [tuple(row)[3:] for row in rows[:5]] == [
        ("1", "x"),
        ('{"x":[1]}', None),
        (None, None),
        (None, None),
        ("]", None),
    ]


def test_a_json_value_of_another_type_tears_the_line_and_is_named(spark: SparkSession) -> None:
    lines = ['{"a": {"x": 1}, "b": 1.5}', '{"a": {"x": "one"}, "b": 2}', '{"b": "much", "a": null}']
    rows = json(spark, *lines, schema="a struct<x: int>, b decimal(4,1)")
    assert [why(row) for row in rows] == [None, 'a · no STRUCT<X:INT> · {"x":"one"}', "b · no DECIMAL(4,1) · much"]


def test_half_of_a_character_tears_a_line_of_json_and_a_whole_one_does_not(spark: SparkSession) -> None:
    good = [r'{"a": "\ud83d\ude00"}', r'{"a": "\\ud83d"}', r'{"a": "\u00e9 \\\ud83d\ude00\ud83d\ude00"}']
    torn = [
        r'{"a": "a\ud83d"}',
        r'{"a": "\ude00"}',
        r'{"a": "\ud83d\ud83d\ude00"}',
        r'{"a": "\\\uD83D!"}',
        r'{"a": "\\ud83d\ude00"}',
    ]
    torn += [r'{"a": "\ud83d\\\ude00"}']
    rows = json(spark, *good, *torn)
    assert [why(row) for row in rows] == [None] * 3 + ["half of a character"] * 6


def test_unreadable_lines_become_rejected_events_with_all_that_is_known(spark: SparkSession) -> None:
    data = [(("n,x", 0, ("n", "no INT", "x")),), (None,), (("1", 1, (None, "not 2 fields", None)),)]
    of_line = "column: string, reason: string, value: string"
    lines = spark.createDataFrame(data, f"__torn struct<__line: string, __number: bigint, __torn: struct<{of_line}>>")
    schema = struct(
        "user bigint, event_time timestamp, reason string, event string, event_hash string, ordinal int, run_id string"
    )
    rows = unreadable_rows(lines, F.col(NUMBER) + 7, "a.log", "ingest-1", schema)
    assert [(f.name, f.dataType) for f in rows.schema.fields] == [(f.name, f.dataType) for f in schema.fields]
    assert [tuple(r)[:4] + tuple(r)[5:] for r in rows.collect()] == [
        (
            *(None, None, "unreadable"),
            '{"column":"n","file":"a.log","line":"n,x","number":7,"reason":"no INT","value":"x"}',
            *(1, "ingest-1"),
        ),
        (None, None, "unreadable", '{"file":"a.log","line":"1","number":8,"reason":"not 2 fields"}', 1, "ingest-1"),
    ]
    assert examples(lines, F.col(NUMBER) + 7, 5) == ["line 7: n is no INT: got 'x'", "line 8: not 2 fields"]


def test_lines_have_the_numbers_that_they_have_in_the_file_however_it_is_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "rows").write_text("".join(f"{n}\n" if n % 3 else "\n" for n in range(5, 400)))
    with having(spark, {"spark.sql.files.maxPartitionBytes": "200", "spark.sql.files.openCostInBytes": "0"}):
        raw = spark.read.text(str(tmp_path / "rows"))
        rows = text_lines(raw).select(LINE, places(raw, 4)).collect()
    assert len(rows) == 263
    assert [int(line) for line, _ in rows] == [number for _, number in rows]
