"""find_sessions: inclusive bounds, keys and ranges of keys, order; and Kafka's own cases."""

import json
import os
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.lib.errors import UsageError
from sessionizer.lib.reading.lookups import find_sessions, find_windows, retained
from tests.conformance.lookups import FAILED, NOT_APPLICABLE, PASSED, run_cases
from tests.text_tables import clock, rows

SESSIONS = rows(
    """
    shop | user | session_start   | session_end     | session_id
    1    | ann  | 10:00           | 10:30           | a1
    1    | ann  | 11:00           | 11:00           | a2
    1    | ann  | 12:00           | 13:00           | a3
    1    | bob  | 09:00           | 13:00           | b1
    2    | ann  | 10:00           | 10:10           | c1
    2    | -    | 10:00           | 10:10           | d1
    -    | ann  | 10:00           | 10:10           | e1
    3    | zoe  | -30000d 10:00   | -30000d 10:20   | z1
    """,
    shop=int,
    session_start=clock,
    session_end=clock,
)
KEY = ["shop", "user"]


@pytest.fixture(scope="module")
def sessions(spark: SparkSession) -> DataFrame:
    schema = "shop INT, user STRING, session_start TIMESTAMP, session_end TIMESTAMP, session_id STRING"
    return spark.createDataFrame([tuple(s.values()) for s in SESSIONS], schema).coalesce(1).cache()


def ids(found: DataFrame) -> str:
    return " ".join(row["session_id"] for row in found.collect())


def test_the_bounds_of_time_are_inclusive(sessions: DataFrame) -> None:
    def look(**bounds: str) -> str:
        times: dict[str, Any] = {name: clock(text) for name, text in bounds.items()}
        return ids(find_sessions(sessions, KEY, key=(1, "ann"), **times))

    assert look() == "a1 a2 a3"
    assert look(earliest_end="10:30") == "a1 a2 a3"
    assert look(earliest_end="10:30:00.000001") == "a2 a3"
    assert look(latest_start="11:00") == "a1 a2"
    assert look(latest_start="10:59:59.999999") == "a1"
    assert look(latest_end="13:00") == "a1 a2 a3"
    assert look(latest_end="12:59:59.999999") == "a1 a2"
    assert look(earliest_end="10:45", latest_start="11:30") == "a2"
    assert look(earliest_end="12:30", latest_start="12:10") == "a3"  # crossed: who was there from 12:10 to 12:30


def test_a_range_of_keys_is_inclusive_and_ordered_by_key_then_time(sessions: DataFrame) -> None:
    def look(**bounds: Any) -> str:
        return ids(find_sessions(sessions, KEY, **bounds))

    assert look() == "e1 a1 a2 a3 b1 d1 c1 z1"  # nulls first
    assert look(backward=True) == "z1 c1 d1 b1 a3 a2 a1 e1"
    assert look(key_from=(1, "ann"), key_to=(1, "ann")) == "a1 a2 a3"
    assert look(key_from=(1, "bob")) == "b1 d1 c1 z1"
    assert look(key_to=(1, "ann")) == "e1 a1 a2 a3"
    assert look(key_from=(1, "b"), key_to=(2, "a")) == "b1 d1"
    assert look(key_from=2, key_to=(2,)) == "d1 c1"  # the first column alone
    assert look(key_from=(2, None), key_to=(2, None)) == "d1"
    assert look(key_to=(None, "ann")) == "e1"
    assert look(key_from=(2, "a"), key_to=(1, "z")) == ""
    assert look(key_from=(1, "ann"), key_to=(1, "bob"), earliest_end=clock("12:00"), backward=True) == "b1 a3"


def test_keys_are_cast_and_times_may_lie_before_1970(sessions: DataFrame) -> None:
    z1 = find_sessions(sessions, KEY, key=("3", "zoe"), earliest_end=-(10**16), latest_start=0)
    assert ids(z1) == "z1"
    assert ids(find_sessions(sessions, KEY, key=(2, None))) == "d1"
    east = timezone(timedelta(hours=2))
    noon = [datetime(2026, 1, 1, 12, 0), datetime(2026, 1, 1, 14, 0, tzinfo=east)]
    assert [ids(find_sessions(sessions, KEY, key=(1, "ann"), earliest_end=t)) for t in noon] == ["a3", "a3"]


def test_a_look_up_that_cannot_be_is_named(sessions: DataFrame) -> None:
    with pytest.raises(UsageError, match="one key or for a range"):
        find_sessions(sessions, KEY, key=(1, "ann"), key_to=(2, "ann"))
    with pytest.raises(UsageError, match=r"key must have one value for each key column.*shop, user"):
        find_sessions(sessions, KEY, key="ann")
    with pytest.raises(UsageError, match="key_from must have at most one value"):
        find_sessions(sessions, KEY, key_from=(1, "ann", 3))
    with pytest.raises(UsageError, match="the sessions have no key"):
        find_sessions(sessions, [], key="ann")


LATEST = 1_699_999_995_000  # ms


@pytest.mark.parametrize("kind", ["session", "window"])
def test_what_ended_further_behind_the_latest_than_the_retention_is_not_found(spark: SparkSession, kind: str) -> None:
    ends = {"p": LATEST - 15_000, "q": LATEST - 10_000, "r": LATEST}
    rows = [(key, ms * 1000 - early) for key, ms in ends.items() for early in (0, 1)]
    us = spark.createDataFrame(rows, "k STRING, us BIGINT").coalesce(1)
    names = {f"{kind}_{edge}": F.timestamp_micros("us") for edge in ("start", "end")}
    found = retained(us.withColumns(names | {"session_id": F.col("k")}), f"{kind}_end", 10_000_000)
    find = find_sessions if kind == "session" else find_windows

    def look(**asked: Any) -> list[tuple[str, int]]:
        return [(row["k"], row["us"] - LATEST * 1000) for row in find(found, ["k"], **asked).collect()]

    left = [("q", -10_000_000), ("r", -1), ("r", 0)]
    assert (look(key="p"), look(key="q"), look(key="r")) == ([], left[:1], left[1:])
    assert look(key_from="p", key_to="r") == look() == left
    assert look(key_from="p", key_to="q", backward=True) == left[:1]
    assert look(backward=True) == left[::-1]


def test_open_sessions_are_found_by_themselves(sessions: DataFrame) -> None:
    states = sessions.withColumn(
        "status", F.when(F.col("session_id").isin("a2", "a3", "d1"), "open").otherwise("final")
    )
    assert ids(find_sessions(states, KEY, key=(1, "ann"), only_open=True)) == "a2 a3"
    assert ids(find_sessions(states, KEY, only_open=True, backward=True)) == "d1 a3 a2"


def kafka_cases() -> list[dict[str, Any]]:
    here = Path(__file__).parents[1] / "conformance" / "vectors" / "kafka"
    folder = Path(os.environ.get("SESSIONIZER_KAFKA_VECTORS", here))
    if not folder.is_dir():
        pytest.skip(f"Kafka's cases are not here: {folder} (set SESSIONIZER_KAFKA_VECTORS)")
    cases = [case for file in sorted(folder.glob("*.json")) for case in json.loads(file.read_text(encoding="utf-8"))]
    return [case for case in cases if case["kind"] == "store" or "store_queries" in case]


@pytest.mark.slow
def test_kafkas_session_store_cases(spark: SparkSession) -> None:
    results = run_cases(spark, kafka_cases())
    assert [r for r in results if r[1] == FAILED] == []
    assert sum(outcome == PASSED for _, outcome, _ in results) >= 24
    assert sum(outcome == NOT_APPLICABLE for _, outcome, _ in results) <= 12


def test_a_wrong_expectation_fails(spark: SparkSession) -> None:
    put = {"op": "put", "key": "a", "start": 0, "end": 5, "value": 1}
    find = {"op": "find", "key": "a", "earliest_end": 5, "latest_start": 0, "expect_order": "exact"}
    row = {"key": "a", "start": 0, "end": 5, "value": 1}
    cases = [
        {"name": name, "kind": "store", "config": {}, "ops": [put, find | {"expect": expected}]}
        for name, expected in {"right": [row], "empty": [], "other": [row | {"value": 2}]}.items()
    ]
    assert [outcome for _, outcome, _ in run_cases(spark, cases)] == [PASSED, FAILED, FAILED]
