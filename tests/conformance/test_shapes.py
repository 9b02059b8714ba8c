"""Cases of our own, in each shape that a case may have: what is right passes, what is wrong fails, and what nobody
understands is an error."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conformance import not_applicable
from tests.conformance.cases import Case
from tests.conformance.suite import run_cases

pytestmark = pytest.mark.broad

PUTS = [
    {"op": "put", "key": k, "start": s, "end": e, "value": v} for k, s, e, v in (("a", 0, 5, 1), ("b", 1, 9_990, 2))
]
NOTHING = {"op": "put", "key": "a", "start": 0, "end": 5, "value": None}
LATEST = {"op": "put", "key": "c", "start": 0, "end": 10_005, "value": 3}
FIND = {"op": "find", "key": "a", "earliest_end": 0, "latest_start": 10}
ALL = {"op": "find", "earliest_end": 0, "latest_start": 10, "key_from": "a", "key_to": "c"}
SECONDS = {"time_unit": "s", "gap": 10}
ONE = [{"start": 0, "end": 13}]


def store(*ops: dict[str, Any], **config: Any) -> dict[str, Any]:
    return {"kind": "store", "config": config, "ops": list(ops)}


def merged(records: list[dict[str, Any]], expected: list[dict[str, Any]], **body: Any) -> dict[str, Any]:
    return {"kind": "merge_records", "config": SECONDS, "records": records, "expected": expected} | body


def gaps(gap: Any, **config: Any) -> dict[str, Any]:
    """Records of a and b, of which that of a lies 7 seconds before the next, that of b 3 seconds."""
    records = [{"key": key, "value": value, "ts": ts} for key, value, ts in (("a", 5, 0), ("a", 2, 7), ("b", 4, 3))]
    expected = [
        {"key": "a", "start": 0, "end": 5},
        {"key": "a", "start": 7, "end": 9},
        {"key": "b", "start": 3, "end": 7},
    ]
    config = {"time_unit": "s", "mode": "batch", "gap": gap, "group_by": ["session", "key"]} | config
    return {"kind": "pipeline", "config": config, "records": records, "expected": expected}


def overlap(rows: list[Any], expected: Any, kind: str = "overlap", **body: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "config": {"time_unit": "s", "boundary": "exclusive"},
        "rows": rows,
        "expected": expected,
    } | body


def steps(*told: dict[str, Any], **body: Any) -> dict[str, Any]:
    return {"kind": "window_ops", "config": SECONDS | {"boundary": "exclusive"}, "steps": list(told)} | body


def sliding(retention: int) -> dict[str, Any]:
    """Windows of 100 ms that start at 0, 400, 500 and 501, where the first has ended 501 ms before the last."""
    records = [{"key": "a", "value": "v", "ts": ts} for ts in (100, 500, 600)]
    rows = [{"key": "a", "start": start, "end": start + 100, "value": n} for start, n in ((400, 1), (500, 2), (501, 1))]
    config = {"time_difference_ms": 100, "grace_ms": 1000, "aggregator": {"type": "count"}, "cache": "none"}
    asked = {"op": "fetch_windows", "key": "a", "expect_order": "exact"}
    first = asked | {"after_record": 0, "expect": [{"key": "a", "start": 0, "end": 100, "value": 1}]}
    queries = [first, asked | {"expect": rows}]
    return {
        "kind": "sliding",
        "config": config | {"retention_ms": retention},
        "records": records,
        "store_queries": queries,
    }


PASS: dict[str, tuple[str, dict[str, Any]]] = {
    "a put of nothing removes": ("kafka", store(*PUTS, NOTHING, FIND | {"expect_non_empty": False})),
    "there is something": ("kafka", store(*PUTS, FIND | {"expect_non_empty": True, "expect_count": 1})),
    "so long kept": ("kafka", store(*PUTS, LATEST, ALL | {"expect_values": [1, 2, 3]}, retention_ms=10_001)),
    "a millisecond less": ("kafka", store(*PUTS, LATEST, ALL | {"expect_values": [2, 3]}, retention_ms=10_000)),
    "by one key": ("kafka", store(*PUTS, LATEST, FIND | {"expect": []}, retention_ms=10_000)),
    "one session": ("kafka", store(*PUTS, {"op": "fetch_session", "key": "a", "start": 0, "end": 5, "expect": 1})),
    "no session": ("kafka", store(*PUTS, {"op": "fetch_session", "key": "a", "start": 0, "end": 4, "expect": None})),
    "windows so long kept": ("kafka", sliding(200)),
    "windows of several others": (
        "kafka",
        {
            "kind": "window",
            "config": {"window": "session", "start": 5, "end": 10},
            "checks": [{"others": [[0, 5], [10, 11], [11, 12]], "overlap": [True, True, False]}],
        },
    ),
    "any order": (
        "beam",
        merged(
            [{"ts": 0}, {"ts": 20}, {"ts": 10}],
            [{"start": 0, "end": 10}, {"start": 10, "end": 20}, {"start": 20, "end": 30}],
            permutable_records=True,
        ),
    ),
    "these in any order": (
        "spark",
        gaps(10)
        | {
            "permutable": [0, 2],
            "expected": [{"key": "a", "start": 0, "end": 17}, {"key": "b", "start": 3, "end": 13}],
        },
    ),
    "gaps by a rule": ("spark", gaps({"rule": "value seconds"})),
    "gaps by SQL": ("spark", gaps({"rule": "CASE WHEN value = 5 THEN 5 WHEN key = 'b' THEN 4 ELSE 2 END"})),
    "gaps by value and key": ("flink", gaps({"by_key": {"b": 4}, "default": {"by_value": {"5": 5}, "default": 2}})),
    "an assigner": (
        "flink",
        gaps({"column": "value"}, assigner="DynamicEventTimeSessionWindows", api="withDynamicGap"),
    ),
    "three ranges of which none overlap": (
        "numaflow",
        overlap([[0, 5], [5, 9], {"start": 9, "end": 12}], {"overlap": False}),
    ),
    "pairs of ranges": (
        "flink",
        overlap([[0, 5], [5, 9], [20, 30]], [True, False, False], config={"time_unit": "ms", "boundary": "inclusive"}),
    ),
    "ranges by name": (
        "numaflow",
        overlap(
            [[0, 5], [4, 9], [9, 12]],
            [{"a": [0, 5], "b": [4, 9], "overlap": True}, {"ranges": [1, 2], "overlap": False}],
        ),
    ),
    "one that overlaps": (
        "numaflow",
        {
            "kind": "find_overlap",
            "config": {"time_unit": "s", "boundary": "exclusive"},
            "rows": [{"start": 0, "end": 3}, {"start": 4, "end": 8}],
            "window": {"start": 7, "end": 12},
            "expected": {"start": 4, "end": 8},
        },
    ),
    "one after the other on top of stored ones": (
        "flink",
        {
            "kind": "merge_incremental",
            "config": {"time_unit": "ms", "boundary": "inclusive", "gap": 3},
            "state": [{"window": {"start": 0, "end": 4}, "kept_as": {"start": 0, "end": 4}}, [[20, 23], [20, 23]]],
            "steps": [{"add": [3, 6], "result": [0, 6], "merged": True, "merged_from_existing": [[0, 4]]}],
            "expected": [[0, 6], [20, 23]],
        },
    ),
    "ranges on top of stored ones": (
        "spark",
        {
            "kind": "ranges",
            "config": {"time_unit": "abstract", "aggregates": {"count": "count(rows)"}, "state": "stored"},
            "state": [{"start": 0, "end": 5}],
            "rows": [{"start": 4, "end": 8}],
            "expected": [{"start": 0, "end": 8, "count": 2}],
        },
    ),
    "the oldest that is open": (
        "numaflow",
        steps(
            {"record": {"key": "a", "ts": 0}, "op": "open", "windows": [[0, 10]], "oldest_window_end": 10},
            {"record": {"key": "b", "ts": 5}, "op": "open", "windows": [[5, 15]], "oldest_window_end": 10},
            {"record": {"key": "a", "ts": 8}, "op": "expand", "windows": [[0, 18]], "oldest_window_end": 15},
            {"watermark": 15, "ops": [{"op": "close", "windows": [[5, 15]]}], "oldest_window_end": 15},
            {"delete_closed": {"start": 5, "end": 15}, "oldest_window_end": 18},
            {
                "watermark": 18,
                "ops": [{"op": "close", "windows": [[0, 18]]}],
                "delete_closed": [[0, 18]],
                "oldest_window_end": None,
            },
        ),
    ),
}
FAIL: dict[str, tuple[str, dict[str, Any]]] = {
    "it is there": ("kafka", store(*PUTS, FIND | {"expect_non_empty": False})),
    "it is not forgotten": ("kafka", store(*PUTS, LATEST, FIND | {"expect": []}, retention_ms=10_001)),
    "not in every order": (
        "kafka",
        {
            "kind": "session",
            "config": {"gap_ms": 5, "grace_ms": 0, "aggregator": {"type": "count"}},
            "permuted": True,
            "records": [{"key": "a", "value": "v", "ts": ts} for ts in (0, 20)],
            "expected_sessions": [{"key": "a", "start": 0, "end": 0}, {"key": "a", "start": 20, "end": 20}],
        },
    ),
    "they do": ("numaflow", overlap([[0, 5], [4, 9], [9, 12]], {"overlap": False})),
    "another is the oldest": (
        "numaflow",
        steps({"record": {"key": "a", "ts": 0}, "op": "open", "windows": [[0, 10]], "oldest_window_end": 11}),
    ),
}
UNREAD: dict[str, tuple[str, dict[str, Any]]] = {
    "no key": ("kafka", store({"op": "put", "start": 0, "end": 1, "value": 1}, FIND | {"expect": []})),
    "an operation": ("kafka", store(*PUTS, {"op": "peek", "key": "a"})),
    "an expectation": ("kafka", store(*PUTS, FIND | {"expect_colour": "red"})),
    "no time": ("beam", merged([{"value": 1}], [])),
    "a field": ("beam", merged([{"ts": 1}], [], weather="fine")),
    "a gap": ("spark", gaps({"by_moon": {}})),
    "a rule": ("spark", gaps({"rule": "as the crow flies"})),
    "a kind": ("flink", {"kind": "tea", "config": {}}),
    "a system": ("samza", {"kind": "pipeline", "config": {}}),
    "windows": ("kafka", {"kind": "sliding", "config": {"time_difference_ms": 5}}),
}
OTHERWISE: dict[str, tuple[str, dict[str, Any], str]] = {
    "random": ("spark", {"kind": "property", "config": {"generator": "random ranges"}}, not_applicable.RANDOM),
    "tumbling": ("flink", gaps(10, assigner="TumblingEventTimeWindows"), not_applicable.NO_SESSIONS),
    "null": ("kafka", store({"op": "find", "key": None, "expect_error": "null_pointer"}), not_applicable.NULL_KEY),
}


def cases(told: dict[str, Any]) -> list[Case]:
    return [Case(t[0], "own", name, t[1]["kind"], t[1].get("config", {}), t[1]) for name, t in told.items()]


def test_cases_of_each_shape_are_understood(spark: SparkSession) -> None:
    results = run_cases(spark, cases(PASS | FAIL | UNREAD | OTHERWISE))
    outcomes = {r.case.name: (r.outcome, r.detail) for r in results}
    assert {n: outcomes[n] for n in PASS if outcomes[n][0] != "passed"} == {}
    assert {n: outcomes[n] for n in FAIL if outcomes[n][0] != "failed" or outcomes[n][1].startswith("error")} == {}
    assert {n: outcomes[n] for n in UNREAD if outcomes[n][0] != "failed" or "error" not in outcomes[n][1]} == {}
    assert {n: outcomes[n] for n in OTHERWISE} == {n: ("not_applicable", t[2]) for n, t in OTHERWISE.items()}
