"""An expression of the config that has no value for an event, such as 1/0: the event is rejected, the run goes on."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.commands.maintain import Asked, maintain
from sessionizer.jobs.reporting.run_output import show
from sessionizer.jobs.run.phases import wall_clock
from sessionizer.lib.durations import DAY
from sessionizer.lib.expressions import of_event
from tests.exactness.play import WIDENING, Play

OF_N: dict[str, dict[str, Any]] = {
    "time": {"source": {"event_time": "timestampadd(SECOND, 0 div n, at)"}},
    "where": {"source": {"where": "1 div n >= 0"}},
    "gap": {"session": {"gap": {"expr": "make_dt_interval(0, 0, 10, 0 div n)"}}},
    "aggregate": {
        "aggregates": [
            {"name": "total", "fn": "sum", "of": "CAST(6 / n AS INT)"},
            {"name": "any", "fn": "bool_or", "of": "CAST(6 / n AS INT) > 1"},
        ]
    },
}
# Spark computes what they share, or use twice, once, and would do so ahead of them.
ALIKE = [
    ["CAST(6 / n AS INT)", "CAST(6 / n AS INT) > 1", "CAST(6 / n AS INT) * CAST(6 / n AS INT)"],
    ["nullif(6 div n, 0)", "6 div n BETWEEN 0 AND 100"],
    ["timestamp_millis(CAST(t AS BIGINT))", "CAST(t AS BIGINT)", "nullif(CAST(t AS BIGINT), 7L)"],
]


def is_guarded(spark: SparkSession, text: str) -> bool:
    events = spark.createDataFrame([], "u STRING, at TIMESTAMP, n INT, big BIGINT, day DATE, user STRUCT<id: STRING>")
    return of_event(text, events, "source.where")[1] is not None


@pytest.mark.parametrize(
    "text", ["n", "n = 1", "u <> 'ping' AND big > n", "user.id IS NULL", "u IN ('a', 'b')", "u LIKE 'a%b_c'"]
)
def test_what_cannot_fail_is_left_as_it_is_so_that_files_are_skipped_by_it(spark: SparkSession, text: str) -> None:
    assert not is_guarded(spark, text)


def test_a_date_may_be_of_a_year_that_no_time_has(spark: SparkSession) -> None:
    assert is_guarded(spark, "day > at")
    assert not is_guarded(spark, "day > DATE'2026-01-01'")


@pytest.mark.parametrize("texts", ALIKE, ids=lambda texts: texts[0])
@pytest.mark.parametrize("nullable", [True, False])
def test_what_expressions_share_fails_in_each_of_them_alone(
    spark: SparkSession, texts: list[str], nullable: bool
) -> None:
    fields = [T.StructField("n", T.IntegerType(), nullable), T.StructField("t", T.StringType(), nullable)]
    events = spark.createDataFrame([(1, "7"), (0, "x"), (3, "9")], T.StructType(fields)).repartition(1)
    tried = [of_event(text, events, "source.where") for text in texts]
    fails = [F.count_if(failed) for _, failed in tried if failed is not None]
    found = events.agg(*[F.count(value) for value, _ in tried], *[F.max(value) for value, _ in tried], *fails)
    assert found.collect()[0][-len(texts) :] == (1,) * len(texts)
    flagged = events.select(*[failed.alias(f"f{i}") for i, (_, failed) in enumerate(tried) if failed is not None])
    assert sorted(map(tuple, flagged.collect())) == [(False,) * len(texts)] * 2 + [(True,) * len(texts)]


@pytest.mark.parametrize(
    "text", ["1 / n > 1", "CAST(u AS INT) = 1", "u LIKE user.id", "n = u", "n + 1 > n", "timestamp_millis(big)"]
)
def test_what_may_fail_is_tried(spark: SparkSession, text: str) -> None:
    assert is_guarded(spark, text)


@pytest.mark.broad
@pytest.mark.parametrize("name", OF_N)
def test_an_event_that_an_expression_fails_for_is_rejected_until_it_is_mended(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    play = Play(spark, tmp_path, **OF_N[name]).runs("a@0 a@5=0 b@3 tick@100")
    play.assert_rejected("u | reason \n a | expression_failed")
    play.assert_sessions("u | start | end | count \n a | 0 | 0 | 1 \n b | 3 | 3 | 1 \n tick | 100 | 100 | 1")
    play.source("UPDATE {} SET n = CASE u WHEN 'a' THEN 2 ELSE 0 END WHERE n = 0 OR u = 'b'").run()
    play.assert_rejected("u | reason \n b | expression_failed")
    play.assert_sessions("u | start | end | count \n a | 0 | 5 | 2 \n tick | 100 | 100 | 1")
    play.assert_clean()
    play.source("DELETE FROM {} WHERE u = 'b'").runs("c@50=0 c@51 tick@101")
    play.assert_rejected("u | reason \n c | expression_failed \n c | late")
    play.backfill(0, 200)
    play.assert_rejected("u | reason \n c | expression_failed")
    told = "u | start | end | count \n a | 0 | 5 | 2 \n c | 51 | 51 | 1 \n tick | 100 | 101 | 2"
    play.assert_sessions(told)
    play.assert_clean()
    play.rebuild().assert_sessions(told)


@pytest.mark.broad
def test_an_update_that_an_expression_fails_for_waits_in_quarantine_as_any_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    play = Play(spark, tmp_path, corrections="quarantine", **OF_N["aggregate"]).runs("a@0 a@5=2 tick@100")
    play.source("UPDATE {} SET n = 0 WHERE n = 2").run()
    waiting = "u | event_time | reason \n a | 5 | correction \n a | 5 | correction"
    sessions = "u | start | end | count \n a | 0 | 5 | 2 \n tick | 100 | 100 | 1"
    play.assert_rejected(waiting)
    play.assert_sessions(sessions)
    play.assert_clean()
    of = "CAST(coalesce(6 / nullif(n, 0), 0) AS INT)"
    mended = play.change(aggregates=[{"name": "total", "fn": "sum", "of": of}])
    mended.rebuild()
    mended.assert_rejected(waiting)
    mended.assert_sessions(sessions)
    mended.assert_clean()


@pytest.mark.broad
def test_what_an_expression_has_failed_for_stays_rejected_though_wider_columns_would_do(
    spark: SparkSession, tmp_path: Path
) -> None:
    of = [{"name": "total", "fn": "sum", "of": "n * 1000000"}]
    play = Play(spark, tmp_path, aggregates=of).runs("a@0 b@5=5000 tick@100")
    play.source(WIDENING)
    play.source("ALTER TABLE {} ALTER COLUMN n TYPE BIGINT").run()
    play.assert_rejected("u | reason \n b | expression_failed")
    play.assert_clean()
    play.readmit().assert_rejected("u | reason")
    play.assert_clean()


@pytest.mark.broad
def test_a_time_that_wider_columns_give_is_taken_in_by_readmit(spark: SparkSession, tmp_path: Path) -> None:
    time = "timestamp_seconds(1767225600L + (try_add(n, CAST(2147483000 AS INT)) - 2147483000))"
    play = Play(spark, tmp_path, source={"event_time": time}).runs("a@0 b@5=5000 tick@100=6000")
    old = Asked(keep={"rejected_events": DAY}, now=wall_clock() + 9 * DAY)
    maintain(play.spark, play.config, old)
    play.source(WIDENING)
    play.source("ALTER TABLE {} ALTER COLUMN n TYPE BIGINT").run()
    maintain(play.spark, play.config, old)
    play.assert_rejected("u | reason \n b | null_time \n tick | null_time")
    play.assert_clean()
    play.readmit().assert_rejected("u | reason")
    play.assert_clean()
    versions = play.versions()
    assert play.readmit().versions() == versions  # as there is nothing left


@pytest.mark.broad
def test_a_gap_that_wider_columns_would_give_is_taken_in_by_readmit_and_no_difference_before(
    spark: SparkSession, tmp_path: Path
) -> None:
    gap = {"expr": "make_dt_interval(0, 0, 0, try_add(n, CAST(2147483000 AS INT)) - 2147483000)"}
    play = Play(spark, tmp_path, session={"gap": gap}).runs("a@0 b@5=5000 tick@100")
    play.source(WIDENING)
    play.source("ALTER TABLE {} ALTER COLUMN n TYPE BIGINT").run()
    play.assert_rejected("u | reason \n b | non_positive_gap")
    play.assert_clean()
    play.readmit().assert_rejected("u | reason")
    play.assert_clean()


def test_a_map_that_is_never_null_is_read_by_an_expression_that_may_fail(spark: SparkSession) -> None:
    only = T.StructType([T.StructField("props", T.MapType(T.StringType(), T.StringType()), nullable=False)])
    for columns in (only, T.StructType([*only.fields, T.StructField("n", T.IntegerType())])):
        rows = [({"x": "1"}, 1)[: len(columns)], ({"x": "one"}, 2)[: len(columns)]]
        events = spark.createDataFrame(rows, columns)
        _, fails = of_event("CAST(props['x'] AS INT)", events, "source.where")
        assert fails is not None
        assert sorted(events.select(fails).collect()) == [(False,), (True,)]


def test_a_run_says_which_expression_fails_and_what_spark_says_of_it(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    of = [{"name": "total", "fn": "sum", "of": "n"}, {"name": "ids", "fn": "max", "of": "CAST(u AS INT)"}]
    play = Play(spark, tmp_path, aggregates=of).add("a@0 1@2 2@3").init()
    show(play.kind, play.run())
    said = " ".join(capsys.readouterr().err.split())
    assert "1 event in rejected_events with reason expression_failed; aggregates.ids.of: [CAST_INVALID_INPUT]" in said
    assert "The value 'a' of the type" in said
