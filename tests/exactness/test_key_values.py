"""A key of any type is found again, whatever way its values go."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from sessionizer.jobs.commands.status import status_without_spark
from sessionizer.jobs.queries.lookups import LookUp, look_up
from tests.exactness.play import Play, UsageError, minute

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
KEYS = {
    "TIMESTAMP": "TIMESTAMP'2026-01-01 00:00:00.123456'",
    "BINARY": "X'00FF10'",
    "DOUBLE": "DOUBLE('1e-10')",
    "DECIMAL(38,18)": "12345678901234567890.123456789012345678BD",
    "DATE": "DATE'9999-12-31'",
    "BOOLEAN": "true",
}


def of_key(spark: SparkSession, types: list[str], at: float) -> DataFrame:
    values = ", ".join(f"{KEYS[t]} AS k{i}" for i, t in enumerate(types))
    return spark.sql(f"SELECT {values}, TIMESTAMP'{minute(at)}' AS at, 1 AS n")


@pytest.mark.parametrize(
    "types",
    [
        ["TIMESTAMP"],
        ["BINARY"],
        ["DECIMAL(38,18)"],
        ["DOUBLE", "DATE", "BOOLEAN"],
    ],
    ids=" ".join,
)
def test_late_events_of_keys_of_any_type_are_readmitted(spark: SparkSession, tmp_path: Path, types: list[str]) -> None:
    done = Play(spark, tmp_path, source={"key": [f"k{i}" for i, _ in enumerate(types)]})
    done.append_frame(of_key(spark, types, 100))
    done.init().run()
    done.append_frame(of_key(spark, types, 5))
    done.run()
    done.assert_rejected("event_time | reason \n 5 | late")
    done.readmit()
    done.assert_sessions("start | count \n 5 | 1 \n 100 | 1")
    done.assert_rejected("event_time | reason")


def test_a_key_that_is_not_of_its_columns_type_is_an_error(play: Plays) -> None:
    done = play("u | at | n \n 1 | 5 | 1 \n - | 5 | 1", schema="u BIGINT, at TIMESTAMP, n INT")
    with pytest.raises(UsageError, match="u"):
        done.backfill(0, 10, '{"u": "abc"}')


def test_a_decimal_key_of_more_digits_is_not_rounded_to_another_key(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, "u DECIMAL(10,2), at TIMESTAMP, n INT")
    done.append_frame(spark.sql(f"SELECT 12.35BD AS u, TIMESTAMP'{minute(5)}' AS at, 1 AS n"))
    done.init().run()
    for text in ("12.345", "1.2345e1"):
        with pytest.raises(UsageError, match="u is DECIMAL"):
            done.backfill(0, 10, json.dumps({"u": text}))
    done.backfill(0, 10, '{"u": 12.350}')
    with pytest.raises(UsageError, match="--key must be of type decimal"):
        look_up(done.tables, LookUp(key=("12.345",)))
    assert look_up(done.tables, LookUp(key=("12.350",))).count() == 1


def test_a_commit_does_not_grow_with_the_keys_of_the_events_it_readmits(spark: SparkSession, play: Plays) -> None:
    done = play("tick@100")
    done.append_frame(spark.sql(f"SELECT 'key ' || id AS u, TIMESTAMP'{minute(5)}' AS at, 1 AS n FROM range(2000)"))
    done.run()
    done.readmit()
    done.assert_sessions("u | start \n key 1999 | 5", u="key 1999")
    assert len(done.position().model_dump_json()) < 10_000


def test_the_watermark_of_a_scope_is_known_without_spark_by_a_float(play: Plays) -> None:
    done = play("u | at | n \n 0.1 | 5 | 1", "u FLOAT, at TIMESTAMP, n INT", time={"watermark": {"per": ["u"]}})
    oldest = status_without_spark(done.config)["oldest_open"]
    assert (oldest["key"], oldest["watermark"]) == ({"u": "0.1"}, "2026-01-01T00:05:00Z")


@pytest.mark.broad
@pytest.mark.parametrize("value", ["DATE'+10000-01-01'", "DATE'0000-12-31'", "TIMESTAMP_NTZ'+10000-01-01 00:00:01'"])
def test_a_scope_may_be_a_time_that_python_does_not_have(spark: SparkSession, tmp_path: Path, value: str) -> None:
    kind, per = value.partition("'")[0], {"watermark": {"per": ["u"]}}
    done = Play(spark, tmp_path, f"u {kind}, at TIMESTAMP, n INT", time=per)
    for time in (minute(5), minute(9)):
        done.append_frame(spark.sql(f"SELECT {value} AS u, TIMESTAMP'{time}' AS at, 1 AS n"))
        done.init().run()
    assert [row["event_count"] for row in done.kind.home.table.read().select("event_count").collect()] == [2]
    done.assert_clean()
