"""Keys that the source has not: SQL over an event, and fields within a column."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.verify import Asked
from sessionizer.jobs.commands.verify_windows import verify_windows
from sessionizer.jobs.queries import lookups_duckdb, sql_duckdb
from sessionizer.jobs.queries.lookups import LookUp
from sessionizer.lib.errors import ConfigError
from tests.exactness.play import Play, minute

pytestmark = pytest.mark.broad
VISITS = "user STRING, device STRING, at TIMESTAMP, n INT"
WHO = {"key": [{"name": "who", "expr": "coalesce(user, device)"}]}
FIRST = """
user | device | at  | n
ann  | d1     | 0   | 1
-    | d1     | 3   | 2
-    | d2     | 5   | 4
tick | x      | 100 | 8
"""


@pytest.fixture
def visits(spark: SparkSession, tmp_path: Path) -> Callable[..., Play]:
    def visits(**sections: Any) -> Play:
        return Play(spark, tmp_path / "play", VISITS, **{"source": WHO} | sections).runs(FIRST)

    return visits


def found_without_spark(play: Play, key: str) -> list[tuple[Any, int]]:
    query = lookups_duckdb.look_up(play.config, LookUp(key=(key,)), whole=True)
    return [(row[query.names[0]], row["event_count"]) for row in sql_duckdb.documents(query)]


def hashes(play: Play, table: str) -> set[str]:
    return {row["event_hash"] for row in play.told_of(getattr(play.config.outputs, table), "event_hash")}


def test_an_event_is_of_the_key_that_its_row_makes_whatever_becomes_of_it(
    visits: Callable[..., Play], tmp_path: Path
) -> None:
    play = visits(outputs={"event_sessions": str(tmp_path / "play" / "event_sessions")})
    play.assert_sessions("""
        who  | start | end | count | total
        ann  | 0     | 0   | 1     | 1
        d1   | 3     | 3   | 1     | 2
        d2   | 5     | 5   | 1     | 4
        tick | 100   | 100 | 1     | 8
        """)
    play.source("UPDATE {} SET device = 'd2' WHERE at = timestamp'2026-01-01 00:03'").runs("""
        user | device | at | n
        -    | d2     | 8  | 1
        """)
    play.assert_sessions("""
        who  | start | end | count | total
        ann  | 0     | 0   | 1     | 1
        d2   | 3     | 5   | 2     | 6
        tick | 100   | 100 | 1     | 8
        """)
    play.assert_rejected("who | reason \n d2 | late")
    late = '{"at":"2026-01-01T00:08:00.000000Z","device":"d2","n":1}'
    assert hashes(play, "rejected_events") == {hashlib.sha256(late.encode()).hexdigest()}
    assert not hashes(play, "rejected_events") & hashes(play, "event_sessions")
    play.assert_clean()
    play.source("DELETE FROM {} WHERE user = 'ann'").run()
    play.backfill(0, 60, '{"who": "d1"}')
    play.assert_rejected("who | reason \n d2 | late")
    play.backfill(0, 60, '{"who": "d2"}')
    play.assert_rejected("who | reason")
    assert hashlib.sha256(late.encode()).hexdigest() in hashes(play, "event_sessions")
    play.assert_sessions("""
        who  | start | end | count | total
        d2   | 3     | 8   | 3     | 7
        tick | 100   | 100 | 1     | 8
        """)
    assert found_without_spark(play, "d2") == [("d2", 3)]
    play.assert_clean()
    play.damage("UPDATE {} SET who = 'd1' WHERE who = 'd2'")
    assert not play.verify().clean


@pytest.mark.broad
def test_an_update_that_moves_an_event_to_another_key_waits_in_quarantine(visits: Callable[..., Play]) -> None:
    play = visits(corrections="quarantine")
    play.source("UPDATE {} SET device = 'd2' WHERE device = 'd1' AND user IS NULL").run()
    play.assert_sessions("""
        who  | start | end | count | total
        ann  | 0     | 0   | 1     | 1
        d1   | 3     | 3   | 1     | 2
        d2   | 5     | 5   | 1     | 4
        tick | 100   | 100 | 1     | 8
        """)
    play.assert_rejected("who | kept | reason \n d1 | in | correction \n d2 | out | correction")
    play.assert_clean()
    play.readmit()
    play.assert_rejected("who | kept | reason")
    play.assert_sessions("""
        who  | start | end | count | total
        ann  | 0     | 0   | 1     | 1
        d2   | 3     | 5   | 2     | 6
        tick | 100   | 100 | 1     | 8
        """)
    play.assert_clean()


def test_another_expression_is_another_rule_that_a_rebuild_goes_over_to(visits: Callable[..., Play]) -> None:
    play = visits(time={"allowed_lateness": "0s", "watermark": {"per": ["who"]}})
    play.runs("""
        user | device | at | n
        -    | d1     | 2  | 1
        ann  | d1     | 50 | 1
        """)
    play.assert_rejected("who | reason \n d1 | late")
    other = {"key": [{"name": "who", "expr": "device"}]}
    play.change(source=other)
    with pytest.raises(ConfigError, match=r"the rule has changed.*'expr': 'device'"):
        play.run()
    play.rebuild()
    play.assert_rejected("who | reason")
    play.assert_sessions("""
        who | start | end | count | total
        d1  | 0     | 3   | 3     | 4
        d1  | 50    | 50  | 1     | 1
        d2  | 5     | 5   | 1     | 4
        x   | 100   | 100 | 1     | 8
        """)
    play.assert_clean()
    play.runs("""
        user | device | at | n
        ann  | d1     | 49 | 1
        ann  | x      | 99 | 1
        bob  | d2     | 16 | 1
        """)
    play.assert_rejected("who | reason \n d1 | late \n x | late")
    play.assert_clean()


@pytest.mark.broad
def test_an_event_whose_key_fails_or_is_null_is_rejected_until_it_is_mended(visits: Callable[..., Play]) -> None:
    play = visits(source={"key": [{"name": "who", "expr": "CAST(substr(device, 2) AS INT)"}]})
    play.runs("""
        user | device | at  | n
        -    | -      | 101 | 1
        """)
    play.assert_rejected("who | reason \n - | expression_failed \n - | null_key")
    play.assert_sessions("who | start | end | count \n 1 | 0 | 3 | 2 \n 2 | 5 | 5 | 1")
    play.assert_clean()
    play.source("UPDATE {} SET device = 'd2' WHERE device = 'x' OR device IS NULL").run()
    play.assert_rejected("who | reason")
    play.assert_sessions("who | start | end | count \n 1 | 0 | 3 | 2 \n 2 | 5 | 5 | 1 \n 2 | 100 | 101 | 2")
    play.assert_clean()


NESTED = "user STRUCT<id: STRING, org: STRING>, e INT, at TIMESTAMP, n INT"


@pytest.mark.broad
def test_fields_within_a_column_are_keys_and_tell_copies(spark: SparkSession, tmp_path: Path) -> None:
    play = Play(
        spark,
        tmp_path,
        NESTED,
        source={"key": ["user.org", "User.ID"], "dedupe": {"by": ["e"], "within": "1h"}},
        time={"allowed_lateness": "0s", "watermark": {"per": ["user.org"]}},
    )

    def add(*events: tuple[str | None, str, int, float]) -> None:
        play.append([((user, org), e, minute(at), 1) for user, org, e, at in events], NESTED)

    add(("ann", "a", 1, 0), ("ann", "b", 1, 0), ("ann", "a", 1, 3), ("bob", "a", 2, 90))
    play.init().run()
    add(("ann", "b", 2, 4), ("ann", "a", 2, 5), (None, "a", 3, 95))
    play.run()
    play.assert_sessions("""
        org | ID  | start | end | count
        a   | ann | 0     | 0   | 1
        a   | bob | 90    | 90  | 1
        b   | ann | 0     | 4   | 2
        """)
    play.assert_rejected("org | ID | reason \n a | ann | duplicate \n a | ann | late \n a | - | null_key")
    play.assert_clean()
    play.source("DELETE FROM {} WHERE e = 1 AND at = timestamp'2026-01-01 00:00' AND user.org = 'a'").run()
    play.assert_rejected("org | ID | reason \n a | ann | late \n a | - | null_key")
    play.assert_sessions("""
        org | ID  | start | end | count
        a   | ann | 3     | 3   | 1
        a   | bob | 90    | 90  | 1
        b   | ann | 0     | 4   | 2
        """)
    play.assert_clean()


@pytest.mark.broad
def test_a_column_of_the_whole_name_comes_before_a_field(spark: SparkSession, tmp_path: Path) -> None:
    schema = "`user.id` STRING, user STRUCT<id: STRING>, at TIMESTAMP, n INT"
    play = Play(spark, tmp_path, schema, source={"key": ["user.id"]}, time={"watermark": {"per": ["user.id"]}})
    play.append([("whole", ("within",), minute(0), 1)], schema)
    play.init().run()
    play.assert_sessions("user.id | start | count \n whole | 0 | 1")
    assert found_without_spark(play, "whole") == [("whole", 1)]
    play.assert_clean()


@pytest.mark.broad
def test_a_key_within_a_variant(spark: SparkSession, tmp_path: Path) -> None:
    key = {"name": "who", "expr": "try_variant_get(v, '$.user.id', 'bigint')"}
    play = Play(spark, tmp_path, "v VARIANT, at TIMESTAMP, n INT", source={"key": [key]})
    texts = """VALUES ('{"user": {"id": 7}}', 0), ('{"user": {"id": 7}}', 3), ('{"user": 1}', 5)"""
    at = f"timestampadd(MINUTE, m, timestamp'{minute(0):%Y-%m-%d}')"
    events = spark.sql(f"SELECT parse_json(t) AS v, {at} AS at, 1 AS n FROM {texts} AS (t, m)")
    play.append_frame(events.coalesce(1))
    play.init().run()
    play.assert_sessions("who | start | end | count \n 7 | 0 | 3 | 2")
    play.assert_rejected("who | reason \n - | null_key")
    play.assert_clean()


@pytest.mark.broad
def test_windows_are_of_the_key_that_a_row_makes(spark: SparkSession, tmp_path: Path) -> None:
    sliding = {"table": str(tmp_path / "windows"), "time_difference": "10m", "grace": "0s", "aggregates": []}
    play = Play(spark, tmp_path, VISITS, source=WHO, sliding=sliding)
    play.add(FIRST)
    play.init().slide()
    told = "who | window_start | last_event_time | count"
    before = play.told_windows(told)
    assert {row["who"] for row in before} == {"ann", "d1", "d2", "tick"}
    play.source("UPDATE {} SET device = 'd2' WHERE user IS NULL").slide()
    assert {row["who"] for row in play.told_windows(told)} == {"ann", "d2", "tick"}
    assert verify_windows(spark, play.config, Asked()).clean
