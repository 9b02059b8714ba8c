"""A value of a file that the table's type does not hold tears its row: it is not rounded, cut or taken for another."""

from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.file_columns import fitting
from sessionizer.jobs.ingest.time_formats import parse_time
from sessionizer.lib.errors import SourceError, UsageError
from tests.jobs.test_ingest import AT, CSV, JSON, Lake, lake_at
from tests.oracle import us

PARQUET = replace(CSV, format="parquet")
COLUMNS = "user string, event_time timestamp, n bigint, day date, price decimal(10,2), seen timestamp, x double"


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return lake_at(spark, tmp_path)


def parquet(spark: SparkSession, file: Path, query: str) -> Path:
    pq.write_table(spark.sql(query).toArrow(), file)
    return file


# A value in SQL, the type that it is to be, and whether it fits.
VALUES = [
    ("1.5D", "bigint", False),
    ("2.0D", "bigint", True),
    ("9007199254740993L", "double", False),
    ("9007199254740992L", "double", True),
    ("'9007199254740993'", "double", False),
    ("' +9007199254740992 '", "double", True),
    ("'16777217'", "float", False),
    ("'16777217.5'", "float", True),
    ("2", "boolean", False),
    ("1", "boolean", True),
    ("TIMESTAMP'2024-05-01 12:00:00'", "date", False),
    ("TIMESTAMP'2024-05-01 00:00:00'", "date", True),
    ("DATE'2024-05-01'", "timestamp", True),
    ("1714564800000L", "timestamp", False),
    ("1714564800", "timestamp", False),
    ("TIMESTAMP'2024-05-01 12:00:00'", "bigint", False),
    ("CAST(19.9999 AS DECIMAL(12,4))", "decimal(10,2)", False),
    ("CAST(19.9900 AS DECIMAL(12,4))", "decimal(10,2)", True),
    ("CAST('NaN' AS DOUBLE)", "float", True),
    ("CAST('-inf' AS DOUBLE)", "float", True),
    ("1e300D", "float", False),
    ("'1e39'", "float", False),
    ("'1e400'", "double", False),
    ("' -Infinity'", "double", True),
    ("'inf'", "double", True),
    ("'NaN'", "double", True),
    ("'30d'", "double", False),
    ("'12F'", "float", False),
    ("'0x1p3'", "double", False),
    ("' -1.5e-3 '", "double", True),
    ("'.5'", "double", True),
    ("'2.0'", "bigint", True),
    ("'3000000000.0'", "int", False),
    ("'2.5'", "int", False),
    ("'1e-30'", "bigint", False),
    ("'2.00000000000000000001E0'", "bigint", False),
    ("'1.2345678E7'", "bigint", True),
    ("'1.5E0'", "bigint", False),
    ("'4.503599627370498E15'", "bigint", False),
    ("'4.503599627370495E15'", "bigint", True),
    ("'9007199254740993.0'", "bigint", True),
    ("CAST(19.99 AS FLOAT)", "decimal(10,2)", True),
    ("CAST(19.999 AS FLOAT)", "decimal(10,2)", False),
    ("0.1D", "string", True),
    ("'19.999'", "decimal(10,2)", False),
    ("'19.9900'", "decimal(10,2)", True),
    ("' 19.99 '", "decimal(10,2)", True),
    ("'1e-3'", "decimal(10,2)", False),
    ("'1.5e1'", "decimal(10,2)", True),
    ("'1.23456789E7'", "decimal(18,2)", True),
    ("'1e-999999999'", "decimal(10,2)", False),
    ("'1e2147483647'", "decimal(10,2)", False),
    ("'1e-9999'", "bigint", False),
    ("timestampadd(YEAR, 10000, TIMESTAMP_NTZ'2024-05-01 00:00:00')", "timestamp", False),
    ("timestampadd(YEAR, 10000, TIMESTAMP_NTZ'2024-05-01 00:00:00')", "date", False),
    ("CAST(timestampadd(YEAR, 10000, TIMESTAMP_NTZ'2024-05-01 00:00:00') AS DATE)", "timestamp_ntz", False),
    ("59.97000000000001D", "decimal(10,2)", True),
    ("19.999D", "decimal(10,2)", False),
    ("1234567890123.5D", "decimal(20,0)", False),
    ("12345678901.994D", "decimal(18,2)", False),
    ("12345678901.99D", "decimal(18,2)", True),
    ("0.1D + 0.2D", "decimal(10,2)", True),
    ("CAST(9007199254740993 AS DECIMAL(20,0))", "double", False),
    ("CAST(9007199254740992 AS DECIMAL(20,0))", "double", True),
    ("CAST(16777217 AS DECIMAL(10,0))", "float", False),
    ("CAST(0.1 AS DECIMAL(10,2))", "double", True),
    ("9223372036854775808D", "bigint", False),
    ("9223372036854774784D", "bigint", True),
    ("-9223372036854775808D", "bigint", True),
    ("9223372036854775807L", "double", False),
    ("-9223372036854775808L", "double", True),
    ("2147483648F", "int", False),
    ("2147483647", "float", False),
    ("2147483648F", "bigint", True),
    ("CAST(32768 AS FLOAT)", "smallint", False),
    ("0.1D", "float", True),
    ("'10:30'", "timestamp", False),
    ("'202405'", "timestamp", False),
    ("'2024-05-01 10:30'", "timestamp", True),
    ("'2024-05-01T10:00:00+02:00'", "timestamp", True),
    ("'2024-05-01T10:00:00+02:00'", "timestamp_ntz", False),
    ("'2024-05-01 10:30+02:00'", "timestamp", True),
    ("'2024-05-01 10:30:00 BST'", "timestamp", False),
    ("'0000-05-01 10:30:00'", "timestamp", False),
    ("'2024-05-01T10:00:00'", "timestamp_ntz", True),
    ("'2024-05-01 10:00:00 Europe/Berlin'", "timestamp_ntz", False),
    ("'2024-05-01 1:2:3+02:00'", "timestamp_ntz", False),
    ("'2024-05-01 1:2:3'", "timestamp_ntz", True),
    ("'0000-05-01T10:00:00'", "timestamp_ntz", False),
    ("'0000-05-01'", "date", False),
    ("'2024'", "date", False),
    ("'2024-05'", "date", False),
    ("'2024-5-1'", "date", True),
    ("'2024-05-01 00:00:00 UTC'", "date", True),
    ("'2024-05'", "timestamp_ntz", False),
    ("'2024-05'", "timestamp", False),
    ("'2024-05-01T00:00:00+02:00'", "date", True),
    ("'19.999'", "decimal(38,2)", False),
    ("'0.1'", "double", True),
    ("'1.5'", "bigint", False),
    ("'2024-05-01 12:00:00'", "date", False),
    ("'2024-05-01 noon'", "date", False),
    ("'2024-05-01'", "date", True),
]


def test_a_value_fits_where_it_would_come_back_as_it_was(spark: SparkSession) -> None:
    found = []
    frame = spark.range(1).select(*[F.expr(f"{value} AS v{n}") for n, (value, _, _) in enumerate(VALUES)])
    for n, (_, kind, _) in enumerate(VALUES):
        wanted: Any = T.StructType.fromDDL(f"c {kind}")
        found.append(fitting(F.col(f"v{n}"), frame.schema[n].dataType, wanted["c"].dataType).isNotNull())
    (row,) = frame.select(*found).collect()
    assert [(value, kind, fits) for (value, kind, _), fits in zip(VALUES, row, strict=True)] == VALUES


def test_a_zone_that_several_places_go_by_is_none_by_a_pattern_either(spark: SparkSession) -> None:
    texts = [("31.07.2026 08:00 BST",), ("31.07.2026 08:00 IST",), ("31.07.2026 08:00 UTC",)]
    time = parse_time(F.col("t"), T.StringType(), "dd.MM.yyyy HH:mm zzz")
    found = spark.createDataFrame(texts, "t STRING").select(F.unix_micros(time)).collect()
    assert [row[0] for row in found] == [None, None, us(datetime(2026, 7, 31, 8, tzinfo=UTC))]


def test_times_of_parquet_are_of_the_years_1_to_9999(lake: Lake) -> None:
    good = f"TIMESTAMP'{AT}'"
    rows = [
        f"SELECT '{n}' AS user, {good} AS event_time, {seen} AS seen, {day} AS day, {local} AS local"
        for n, (seen, day, local) in enumerate(
            [
                (good, "DATE'2024-05-01'", "TIMESTAMP_NTZ'2024-05-01'"),
                (f"timestamp_micros({2**62})", "DATE'2024-05-01'", "TIMESTAMP_NTZ'2024-05-01'"),
                (good, "DATE'2024-05-01'", "TIMESTAMP_NTZ'+12024-05-01'"),
            ]
        )
    ]
    file = lake.folder / "a.parquet"
    lake.spark.sql(" UNION ALL ".join(rows)).coalesce(1).write.parquet(str(lake.folder / "rows"))
    (part,) = (lake.folder / "rows").glob("*.parquet")
    part.rename(file)
    (report,) = lake.ingest(PARQUET, file)
    assert (report.added, report.unreadable) == (1, 2)
    assert [(column, reason) for _, column, reason, _ in lake.reasons()] == [
        ("seen", "no TIMESTAMP"),
        ("local", "no TIMESTAMP_NTZ"),
    ]


def test_a_json_number_is_the_same_with_a_point_and_a_bare_nan_is_one(lake: Lake) -> None:
    lake.spark.sql(f"CREATE TABLE delta.`{lake.config.source.table}` ({COLUMNS}) USING delta")
    values = ["2.0", "2.5", "2e0", "null", "12345678.0"], ["NaN", "1e400", "Infinity", "1.5"]
    members = [*(f'"n": {n}' for n in values[0]), *(f'"x": {x}' for x in values[1])]
    file = lake.file("a.json", "".join(f'{{"user": "u", "event_time": "{AT}", {member}}}\n' for member in members))
    (report,) = lake.ingest(JSON, file)
    assert (report.added, report.unreadable) == (6, 3)
    found = sorted(map(str, lake.rows("n", "x")))
    assert found == ["(12345678, None)", "(2, None)", "(2, None)", "(None, 1.5)", "(None, None)", "(None, nan)"]
    assert [(column, reason) for _, column, reason, _ in lake.reasons()] == [
        ("n", "no BIGINT"),
        ("x", "no DOUBLE"),
        ("x", "no DOUBLE"),
    ]


def test_parquet_of_other_types_than_the_tables_changes_no_value(lake: Lake) -> None:
    lake.spark.sql(f"CREATE TABLE delta.`{lake.config.source.table}` ({COLUMNS}) USING delta")
    good = f"TIMESTAMP'{AT}' AS event_time, 2.0D AS n, TIMESTAMP'2024-05-01' AS day, 19.9900BD AS price, 1 AS x"
    lines = [
        f"'good' AS user, {good}",
        f"'n' AS user, {good.replace('2.0D', '1.5D')}",
        f"'day' AS user, {good}".replace("05-01'", "05-01 10:00'"),
        f"'price' AS user, {good.replace('19.9900', '19.9990')}",
    ]
    file = parquet(lake.spark, lake.folder / "a.parquet", " UNION ALL ".join(f"SELECT {line}" for line in lines))
    (report,) = lake.ingest(PARQUET, file)
    assert (report.added, report.unreadable) == (1, 3)
    assert [(column, reason) for _, column, reason, _ in lake.reasons()] == [
        ("n", "no BIGINT"),
        ("day", "no DATE"),
        ("price", "no DECIMAL(10,2)"),
    ]
    number = f"SELECT 'u' AS user, TIMESTAMP'{AT}' AS event_time, 17L AS seen"
    seen = parquet(lake.spark, lake.folder / "b.parquet", number)
    assert "seen is no TIMESTAMP: got '17'" in lake.refused(SourceError, PARQUET, seen)


@pytest.mark.parametrize(
    ("options", "content"),
    [
        (CSV, f"user,event_time,price\nu1,{AT},19.990\nu2,{AT},19.999\n"),
        (JSON, "".join(f'{{"user": "u", "event_time": "{AT}", "price": {n}}}\n' for n in ("19.990", "19.999"))),
    ],
    ids=["csv", "json"],
)
def test_a_decimal_is_not_rounded(lake: Lake, options: Any, content: str) -> None:
    lake.spark.sql(f"CREATE TABLE delta.`{lake.config.source.table}` ({COLUMNS}) USING delta")
    (report,) = lake.ingest(options, lake.file("a.txt", content))
    assert (report.added, report.unreadable) == (1, 1)
    assert [row[1:] for row in lake.reasons()] == [("price", "no DECIMAL(10,2)", "19.999")]


def test_large_amounts_and_many_digits_of_json_stay_as_they_are(lake: Lake) -> None:
    lake.spark.sql(f"CREATE TABLE delta.`{lake.config.source.table}` ({COLUMNS}, wei decimal(38,18)) USING delta")
    numbers = '"price": 12345678.90, "wei": 123456.123456789012345678'
    lake.ingest(JSON, lake.file("a.json", f'{{"user": "u", "event_time": "{AT}", {numbers}}}\n'))
    assert lake.rows("price", "wei") == [(Decimal("12345678.90"), Decimal("123456.123456789012345678"))]


def test_a_type_that_is_declared_is_that_of_the_table(lake: Lake) -> None:
    one, two = (lake.file(f"{n}.csv", f"user,event_time,amount,note\nu{n},{AT},1.5,x\n") for n in (1, 2))
    lake.ingest(replace(CSV, schema="amount decimal(10,2), note varchar(9)"), one)
    version = lake.source.version
    told = lake.refused(UsageError, replace(CSV, schema="AMOUNT double"), two)
    assert "another type than the table has: got 'amount double'. in the table it is decimal(10,2)" in told
    assert lake.source.version == version
    lake.ingest(replace(CSV, schema="amount decimal(10,2), note varchar(9)"), two)
    assert len(lake.rows("amount")) == 2


def test_lines_that_are_not_utf_8_are_unreadable_and_no_two_keys_become_one(lake: Lake) -> None:
    lines = [
        b"user,event_time,note",
        b"m\xfcller,%s,x",
        b"m\xe4ller,%s,x",
        "müller,%s,x".encode(),
        b'u1,%s,"two\n\xff"',
    ]
    content = b"\n".join(line.replace(b"%s", AT.encode()) for line in lines) + b"\n"
    (report,) = lake.ingest(CSV, lake.file("a.csv", b"\xef\xbb\xbf" + content))
    assert (report.added, report.unreadable, report.torn[0]) == (1, 3, "line 2: not UTF-8")
    assert lake.rows("user") == [("müller",)]
    assert [(number, reason) for number, _, reason, _ in lake.reasons()] == [(n, "not UTF-8") for n in (2, 3, 5)]


def test_a_number_of_a_huge_exponent_is_no_time(spark: SparkSession) -> None:
    times = [parse_time(F.lit(text), T.StringType(), "epoch_s") for text in ("1e-999999999", "1e2147483647", "1.7e9")]
    assert [value is None for value in spark.range(1).select(*times).collect()[0]] == [True, True, False]


def test_a_text_that_is_too_long_tears_its_line_alone(lake: Lake) -> None:
    place = lake.config.source.table
    lake.spark.sql(f"CREATE TABLE delta.`{place}` (user STRING, event_time TIMESTAMP, code VARCHAR(3)) USING delta")
    lines = "".join(f"u,{AT},{code}\n" for code in ("abc", "abcd", "ab   ", "日本語", ""))
    (report,) = lake.ingest(CSV, lake.file("a.csv", "user,event_time,code\n" + lines))
    assert (report.added, report.unreadable) == (3, 2)
    assert [told[1:] for told in lake.reasons()] == [("code", "no VARCHAR(3)", text) for text in ("abcd", "ab   ")]


def test_texts_of_so_many_letters_within_a_column_are_taken(lake: Lake) -> None:
    columns = "user STRING, event_time TIMESTAMP, tags ARRAY<VARCHAR(3)>, w STRUCT<c: CHAR(3)>"
    lake.spark.sql(f"CREATE TABLE delta.`{lake.config.source.table}` ({columns}) USING delta")
    line = f'{{"user": "u", "event_time": "{AT}", "tags": ["abc"], "w": {{"c": "abc"}}}}\n'
    (report,) = lake.ingest(JSON, lake.file("a.json", line))
    assert (report.added, report.unreadable) == (1, 0)


def test_a_column_that_was_all_null_in_parquet_gets_the_type_of_its_first_value(
    lake: Lake, spark: SparkSession
) -> None:
    first = "SELECT 'a' AS user, TIMESTAMP'2024-05-01 12:00:00' AS event_time"
    rows = spark.sql(first).toArrow().append_column("coupon", pa.nulls(1))
    pq.write_table(rows, lake.folder / "a.parquet")
    lake.ingest(PARQUET, lake.folder / "a.parquet")
    assert lake.source.schema.names == ["user", "event_time"]
    declared = replace(PARQUET, schema="user string, event_time timestamp, coupon string")
    assert lake.ingest(replace(declared, add_columns=True), lake.folder / "a.parquet")[0].skipped
    second = parquet(spark, lake.folder / "b.parquet", f"{first}, 'x' AS coupon")
    (report,) = lake.ingest(replace(PARQUET, add_columns=True), second)
    assert (report.added, report.unreadable) == (1, 0)
    assert lake.rows("coupon") == [("x",), (None,)]


def test_texts_of_so_many_letters_are_declared_of_json_as_of_csv(lake: Lake) -> None:
    line = f'{{"user": "u", "event_time": "{AT}", "code": 17, "tags": ["x"]}}\n'
    declared = replace(JSON, schema="code varchar(3), tags array<char(3)>")
    assert lake.ingest(declared, lake.file("a.json", line))[0].added == 1
    assert lake.ingest(declared, lake.file("b.json", line.replace("17", '"abcd"')))[0].added == 1
    assert sorted(lake.rows("code")) == [("17",), ("abcd",)]


def test_a_number_of_a_huge_exponent_tears_its_line_of_json_alone(lake: Lake) -> None:
    lake.spark.sql(f"CREATE TABLE delta.`{lake.config.source.table}` ({COLUMNS}) USING delta")
    numbers = ("1e999999999", "1.50", '"1e-999999999"')
    lines = "".join(f'{{"user": "u", "event_time": "{AT}", "price": {n}}}\n' for n in numbers)
    (report,) = lake.ingest(JSON, lake.file("a.json", lines))
    assert (report.added, report.unreadable) == (1, 2)


def test_a_key_that_is_all_null_in_the_first_parquet_has_to_be_of_a_type(lake: Lake, spark: SparkSession) -> None:
    rows = spark.sql("SELECT TIMESTAMP'2024-05-01 12:00:00' AS event_time").toArrow().append_column("uid", pa.nulls(1))
    rows = rows.append_column("source", pa.nulls(1))  # which the config has for a key, and asks for none of
    pq.write_table(rows, lake.folder / "a.parquet")
    told = lake.refused(SourceError, renames := replace(PARQUET, rename={"uid": "user"}), lake.folder / "a.parquet")
    assert "nobody knows its type: got 'uid'" in told
    assert "--schema '`uid` string'" in told
    assert lake.ingest(replace(renames, schema="uid string"), lake.folder / "a.parquet")[0].added == 1


def test_times_that_are_all_null_in_parquet_are_none(lake: Lake, spark: SparkSession) -> None:
    rows = spark.sql("SELECT 'u' AS user").toArrow().append_column("event_time", pa.nulls(1))
    pq.write_table(rows, lake.folder / "a.parquet")
    assert lake.ingest(replace(PARQUET, time_format="epoch_ms"), lake.folder / "a.parquet")[0].added == 1
    assert lake.rows("user", "event_time") == [("u", None)]
