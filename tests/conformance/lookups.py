"""Kafka's session-store tests, run against `find_sessions`: all queries of all cases in one Spark job.

A put is a row of the sessions table, a remove takes it away, each query sees the table as it is at that point. Cases
of kind `session` that query their store see the sessions of their records: those the case expects at its end, and
before that the records so far, cut where they lie more than a gap apart. A millisecond of Kafka is a microsecond
here: a look-up only compares, and the store tests use times that no TIMESTAMP holds. Keys are bytes, as there.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lib import columns as C
from lib.reading.lookups import find_sessions

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not_applicable"
Case = Mapping[str, Any]
Session = tuple[bytes, int, int, Any]  # key, start, end, value
QUERIES = {"find", "fetch", "all", "find_by_end_range"}
SCHEMA = "look INT, key BINARY, start BIGINT, end BIGINT, n INT"
REASONS = {
    "fetch_windows": "sliding windows are a table of windows, not of sessions",
    "open_iterator": "the life of an iterator over a store in memory: a table is read at one version",
    "dropped_count": "the store's own retention: a table drops nothing that is written to it",
    None: "nothing is looked up",
}


@dataclass(frozen=True)
class Look:
    """One query, and the sessions that it sees."""

    case: str
    query: Case
    sessions: Sequence[Session]
    hex_keys: bool


def run_cases(spark: SparkSession, cases: Sequence[Case]) -> list[tuple[str, str, str]]:
    """(case, passed | failed | not_applicable, why) of each case, in their order."""
    reasons = {i: reason for i, case in enumerate(cases) if (reason := not_applicable(case))}
    looks = [(i, look) for i, case in enumerate(cases) if i not in reasons for look in looks_of(case)]
    found = look_all(spark, [look for _, look in looks])
    results = []
    for i, case in enumerate(cases):
        mine = [(look, rows) for (owner, look), rows in zip(looks, found, strict=True) if owner == i]
        wrong = [text for look, rows in mine if (text := difference(look, rows))]
        if i in reasons:
            results.append((case["name"], NOT_APPLICABLE, reasons[i]))
        else:
            results.append((case["name"], FAILED if wrong else PASSED, "; ".join(wrong) or f"{len(mine)} look-ups"))
    return results


def not_applicable(case: Case) -> str | None:
    """Why the case says nothing about look-ups in a table, or None."""
    operations = {o["op"] for o in (*case.get("ops", ()), *case.get("store_queries", ()))}
    for name, reason in REASONS.items():
        if name in operations:
            return reason
    if case["name"].startswith("retention"):
        return "the store forgets sessions by its own clock; a table keeps them until its owner removes them"
    if case["config"].get("emit") == "on_close" and case["config"].get("retention_is_default"):
        return "the store has forgotten a session that was emitted (retention = gap + grace); a table keeps it"
    return None if operations & QUERIES else REASONS[None]


def looks_of(case: Case) -> Iterator[Look]:
    """The queries of a case in order, each with what it sees."""
    hex_keys = case["name"].startswith("binary keys")
    stored: dict[tuple[bytes, int, int], Any] = {}
    for step in case.get("ops", ()):
        if step["op"] in QUERIES:
            sessions = [(*bounds, value) for bounds, value in stored.items()]
            yield Look(case["name"], step, sessions, hex_keys)
            continue
        bounds = _key(step["key"], hex_keys), step["start"], step["end"]
        if step["op"] == "put":
            stored[bounds] = step["value"]
        else:
            stored.pop(bounds, None)
    for query in case.get("store_queries", ()):
        yield Look(case["name"], query, _sessions_before(case, query), hex_keys)


def look_all(spark: SparkSession, looks: Sequence[Look]) -> list[list[Session]]:
    """What each query finds, in its order."""
    rows = [
        (i, bytearray(key), start, end, n)
        for i, look in enumerate(looks)
        for n, (key, start, end, _) in enumerate(look.sessions)
    ]
    stored = spark.createDataFrame(rows, SCHEMA).coalesce(1)
    sessions = stored.select(
        "look",
        "key",
        F.timestamp_micros("start").alias(C.SESSION_START),
        F.timestamp_micros("end").alias(C.SESSION_END),
        F.col("n").cast("string").alias(C.SESSION_ID),
    )
    found = [_ask(sessions.where(F.col("look") == i), look) for i, look in enumerate(looks)]
    answers: list[list[Session]] = [[] for _ in looks]
    for row in reduce(DataFrame.unionAll, found).collect() if found else ():  # keeps the order within each
        answers[row["look"]].append(looks[row["look"]].sessions[int(row[C.SESSION_ID])])
    return answers


def difference(look: Look, found: Sequence[Session]) -> str | None:
    """What the case expects and was not found, or None."""
    query = look.query
    if "expect_windows_order" in query:
        expected: Any = [tuple(bounds) for bounds in query["expect_windows_order"]]
        actual: Any = [(start, end) for _, start, end, _ in found]
    elif "expect_values" in query:
        expected, actual = sorted(query["expect_values"]), sorted(value for *_, value in found)
    elif "expect_non_empty" in query:
        expected, actual = query["expect_non_empty"], bool(found)
    elif "expect_first" in query:
        expected, actual = [_expected(query["expect_first"], look)], list(found[:1])
    else:
        expected, actual = [_expected(row, look) for row in query["expect"]], list(found)
        if any(value is None for *_, value in expected):  # a case that says nothing of values
            actual = [(*bounds, None) for *bounds, _ in found]
        if query.get("expect_order") != "exact":
            expected, actual = sorted(expected), sorted(actual)
    return None if expected == actual else f"{query}: expected {expected}, found {actual}"


def _ask(sessions: DataFrame, look: Look) -> DataFrame:
    query = look.query
    keys = {
        name: None if query.get(name) is None else bytearray(_key(query[name], look.hex_keys))
        for name in ("key", "key_from", "key_to")
    }
    found = find_sessions(
        sessions,
        ["key"],
        **keys,
        earliest_end=query.get("earliest_end"),
        latest_start=query.get("latest_start"),
        latest_end=query.get("latest_end"),
        backward=query.get("direction") == "backward",
    )
    return found.select("look", C.SESSION_ID)  # the times are beyond Python's


def _expected(row: Case, look: Look) -> Session:
    return _key(row["key"], look.hex_keys), row["start"], row["end"], row.get("value")


def _key(text: str, is_hex: bool) -> bytes:
    if text.startswith("ser("):  # Kafka's serializer of integers
        return int(text[4:-1]).to_bytes(4, "big", signed=True)
    return bytes.fromhex(text) if is_hex else text.encode()


def _sessions_before(case: Case, query: Case) -> list[Session]:
    """The sessions that a store holds when it is queried."""
    if (last := query.get("after_record")) is None:
        return [(_key(s["key"], False), s["start"], s["end"], s.get("value")) for s in case["expected_sessions"]]
    times: dict[str, list[int]] = defaultdict(list)
    for record in case["records"][: last + 1]:
        times[record["key"]].append(record["ts"])
    return [(_key(key, False), *session) for key in sorted(times) for session in _cut(times[key], case)]


def _cut(times: list[int], case: Case) -> Iterator[tuple[int, int, int]]:
    """Start, end and number of records of one key's sessions, in order: cut where more than a gap lies between."""
    times = sorted(times)
    cuts = [i for i in range(1, len(times)) if times[i] - times[i - 1] > case["config"]["gap_ms"]]
    for first, end in pairwise([0, *cuts, len(times)]):
        yield times[first], times[end - 1], end - first


__all__ = ["FAILED", "NOT_APPLICABLE", "PASSED", "run_cases"]
