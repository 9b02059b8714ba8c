from datetime import datetime

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.ingest.access_log import access_log_schema, parse_access_log
from sessionizer.jobs.ingest.lines import TORN, text_lines

TIME = "[14/Oct/2019:10:50:18 +0200]"
COMMON = f'1.2.3.4 - alice {TIME} "GET /a?b=c HTTP/1.1" 200 512'


def parsed(spark: SparkSession, *lines: str) -> list[Row]:
    text = spark.createDataFrame([(n, line) for n, line in enumerate(lines)], "n int, value string").orderBy("n")
    return parse_access_log(text_lines(text), "at").collect()


def torn(spark: SparkSession, *lines: str) -> list[bool]:
    return [row[TORN] is not None for row in parsed(spark, *lines)]


def test_the_fields_of_common_and_combined_lines(spark: SparkSession) -> None:
    common, combined, more = parsed(
        spark,
        COMMON,
        f'2001:db8::1 id - {TIME} "POST /x HTTP/2.0" 404 - "https://a.example/?q=\\"x\\"" "say \\"hi\\", \\\\"',
        f'h - - {TIME} "GET / HTTP/1.1" 304 0 "-" "-" "10.0.0.1" "-"\r',
    )
    assert tuple(common)[3:] == (
        *("1.2.3.4", None, "alice", datetime(2019, 10, 14, 8, 50, 18)),
        *("GET /a?b=c HTTP/1.1", "GET", "/a?b=c", "HTTP/1.1", 200, 512, None, None),
    )
    assert tuple(combined)[3:] == (
        *("2001:db8::1", "id", None, datetime(2019, 10, 14, 8, 50, 18)),
        *("POST /x HTTP/2.0", "POST", "/x", "HTTP/2.0", 404, None),
        *('https://a.example/?q=\\"x\\"', 'say \\"hi\\", \\\\'),
    )
    assert (more["bytes"], more["referer"], more["user_agent"], more[TORN]) == (0, None, None, None)
    assert common.__fields__[3:] == access_log_schema("at").fieldNames()


def test_a_request_that_is_not_method_path_protocol_is_kept_whole(spark: SparkSession) -> None:
    requests = ["\\x16\\x03\\x01", "GET /no-protocol", "-", "", "GET /with space HTTP/1.0"]
    rows = parsed(spark, *(f'h - - {TIME} "{request}" 400 0' for request in requests))
    assert [(r["request"], r["method"], r["path"], r["protocol"]) for r in rows] == [
        ("\\x16\\x03\\x01", None, None, None),
        ("GET /no-protocol", None, None, None),
        (None, None, None, None),
        (None, None, None, None),
        ("GET /with space HTTP/1.0", "GET", "/with space", "HTTP/1.0"),
    ]
    assert [r[TORN] for r in rows] == [None] * 5


def test_lines_that_are_cut_or_run_together_are_torn(spark: SparkSession) -> None:
    combined = f'{COMMON} "-" "curl/7.54.0"'
    assert torn(
        spark,
        combined,
        ' "curl/7.54.0"',
        combined[: combined.index('" 200')],
        combined[:-1],
        combined[: -len(' "curl/7.54.0"')],
        combined + combined,
        "# Version: 1.0",
        COMMON.replace(" 200 ", " OK "),
    ) == [False, *[True] * 7]


@pytest.mark.parametrize("language", ["en", "de"])
def test_a_time_that_does_not_exist_tears_the_line_whatever_the_locale(spark: SparkSession, language: str) -> None:
    locale = spark._jvm.java.util.Locale  # type: ignore[union-attr]
    before = locale.getDefault()
    locale.setDefault(locale.forLanguageTag(language))
    try:
        verdicts = torn(
            spark,
            COMMON,
            COMMON.replace("14/Oct", "31/Dec"),
            COMMON.replace("14/Oct", "30/Feb"),
            COMMON.replace("10:50", "24:00"),
            COMMON.replace("Oct", "Okt"),
            COMMON.replace(" +0200]", "]"),
        )
    finally:
        locale.setDefault(before)
    assert verdicts == [False, False, True, True, True, True]


def test_a_very_long_line_is_parsed_or_torn_but_never_fails(spark: SparkSession) -> None:
    many = 100_000
    rows = parsed(
        spark,
        COMMON.replace("/a?b=c", "/" + "a" * many),
        COMMON.replace("/a?b=c", '\\"' * many),
        COMMON + ' "-" "-"' + ' "x"' * many,
        '"' * many,
        "- " * many,
    )
    assert [r[TORN] is None for r in rows] == [True, True, True, False, False]
    assert len(rows[0]["path"]) == many + 1


def test_bytes_that_are_not_utf_8_are_replaced(spark: SparkSession) -> None:
    line = COMMON.encode().replace(b"/a", b"/caf\xe9")
    frame = spark.createDataFrame([(bytearray(line),)], "raw binary").select(F.col("raw").cast("string").alias("value"))
    row = parse_access_log(text_lines(frame), "at").collect()[0]
    assert (row["path"], row[TORN]) == ("/caf\ufffd?b=c", None)
