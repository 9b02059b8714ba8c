import re
from datetime import UTC, datetime

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.ingest.time_formats import PATTERNS, check_time_type, parse_time, reads
from sessionizer.lib.errors import UsageError


def times(spark: SparkSession, time_format: str, *texts: str) -> list[datetime | None]:
    frame = spark.createDataFrame([(n, text) for n, text in enumerate(texts)], "n int, text string").orderBy("n")
    moment = parse_time(F.col("text"), T.StringType(), time_format)
    return [row[0] for row in frame.select(moment).collect()]


NOON = datetime(2024, 5, 1, 12)


def test_iso_needs_a_full_date_and_is_utc_without_an_offset(spark: SparkSession) -> None:
    good = {
        "2024-05-01T12:00:00Z": NOON,
        "2024-05-01 12:00:00": NOON,
        "2024-05-01T14:00:00+02:00": NOON,
        "2024-05-01T14:00:00+0200": NOON,
        "2024-05-01 12:00": NOON,
        "2024-05-01T12:00Z": NOON,
        "2024-05-01T14:00+02:00": NOON,
        "2024-05-01 12:00 UTC": NOON,
        "2024-05-01 14:00:00 Europe/Berlin": NOON,
        "2024-05-01 14:00 Europe/Berlin": NOON,
        "2024-05-01 22:00 Australia/ACT": NOON,
        "2024-05-01 21:00:00 JST": NOON,
        "2024-05-01": datetime(2024, 5, 1),
        "2024-05-01T12:00:00.123456Z": NOON.replace(microsecond=123456),
        "1969-12-31T23:59:59.5Z": datetime(1969, 12, 31, 23, 59, 59, 500000),
    }
    bad = ["", "12:00:00", "2024", "2024-05", "2024-02-30", "1714564800", "01/05/2024", "2024-05-01T25:00", "soon"]
    bad += [f"2024-05-01 12:00:00 {zone}" for zone in ("BST", "CST", "IST")] + [
        "2024-05-01T12:00BST"
    ]  # of several places
    assert times(spark, "iso", *good, *bad) == [*good.values(), *[None] * len(bad)]


def test_epochs_are_whole_numbers_or_decimals(spark: SparkSession) -> None:
    assert times(spark, "epoch_s", "1714564800", " 1714564800.25 ", "1.7145648E9", "-1", "x", "", "1e30") == [
        NOON,
        NOON.replace(microsecond=250000),
        NOON,
        datetime(1969, 12, 31, 23, 59, 59),
        *[None] * 3,
    ]
    assert times(spark, "epoch_ms", "1714564800001", "1714564800000.0019", "2024-05-01") == [
        NOON.replace(microsecond=1000),
        NOON.replace(microsecond=1),
        None,
    ]


def test_a_time_beyond_the_year_9999_is_none(spark: SparkSession) -> None:
    assert times(spark, "epoch_s", "253402300799", "253402300800", "1714564800000") == [
        datetime(9999, 12, 31, 23, 59, 59),
        None,
        None,
    ]
    assert times(spark, "iso", "12024-05-01") == [None]


def test_a_timestamp_or_date_beyond_the_year_9999_is_none(spark: SparkSession) -> None:
    columns = "timestamp_micros(us) AS at, timestamp_micros(us)::timestamp_ntz AS here, date_from_unix_date(day) AS day"
    far = "(1, 253402300799999999, 2932896), (2, 253402300800000000, 2932897), (3, 1700000000000000000, 2147483647)"
    frame = spark.sql(f"SELECT n, {columns} FROM VALUES {far} AS t(n, us, day)")
    read = [parse_time(F.col(f.name), f.dataType, "iso") for f in frame.schema.fields[1:]]
    last = datetime(9999, 12, 31, 23, 59, 59, 999999)
    assert [tuple(row) for row in frame.orderBy("n").select(*read).collect()] == [
        (last, last, datetime(9999, 12, 31)),
        *[(None, None, None)] * 2,
    ]


def test_a_pattern_of_spark(spark: SparkSession) -> None:
    assert times(spark, "d.M.yyyy HH:mm", "1.5.2024 12:00", "31.2.2024 12:00", "2024-05-01") == [NOON, None, None]
    assert times(spark, "MMM d yyyy HH:mm XXX", "May 1 2024 14:00 +02:00") == [NOON]


def test_patterns_that_are_guessed_read_the_same_by_spark_and_python(spark: SparkSession) -> None:
    days = [datetime(2026, n, n + 12 * (n % 2), n + 8, n * 4, 60 - n * 5) for n in range(1, 13)]
    padded = [day.strftime(python.replace("%z", "+0230")) for python in PATTERNS.values() for day in days]
    odd = ["29.2.2024 9:03", "29.2.2026 9:03", "1/5/2026 9:3", "1/5/26 9:03", "1/5/2026 24:00", "1/5/2026  9:03"]
    texts = dict.fromkeys([*padded, *(re.sub(r"\b0", "", text) for text in padded), *odd])
    frame = spark.createDataFrame([(text,) for text in texts], "text string").coalesce(1)
    moments = [parse_time(F.col("text"), T.StringType(), pattern) for pattern in PATTERNS]
    for text, *found in frame.select("text", *moments).collect():
        expected = [strictly(text, pattern) for pattern in PATTERNS]
        assert dict(zip(PATTERNS, found, strict=True)) == dict(zip(PATTERNS, expected, strict=True)), text


def strictly(text: str, pattern: str) -> datetime | None:
    if not reads(pattern, text):
        return None
    moment = datetime.strptime(text, PATTERNS[pattern])
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def test_numbers_are_times_since_the_epoch_or_nothing() -> None:
    check_time_type("ts", T.LongType(), "epoch_ms")
    with pytest.raises(UsageError, match=r"ts holds numbers.*got 'iso'.*epoch_s or epoch_ms"):
        check_time_type("ts", T.LongType(), "iso")
    with pytest.raises(UsageError, match="must hold texts, numbers or times: got 'boolean'"):
        check_time_type("ts", T.BooleanType(), "iso")
