"""Kafka's session-store tests, run against `find_sessions`: all queries of all cases in one Spark job.

A put is a row of the sessions table, a remove takes it away, each query sees the table as it is at that point. Cases
of kind `session` that query their store see the sessions of their records: those the case expects at its end, and
before that the records so far, cut where they lie more than a gap apart. A millisecond of Kafka is a microsecond
here: a look-up only compares, and the store tests use times that no TIMESTAMP holds. Keys are bytes, as there. What
a store has forgotten by its retention, a look-up with that retention leaves out.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.reading.lookups import find_sessions, retained
from tests.conformance import not_applicable as reasons
from tests.conformance.cases import UnknownShape

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not_applicable"
Case = Mapping[str, Any]
Session = tuple[bytes, int, int, Any]  # key, start, end, value
QUERIES = {"find", "fetch", "all", "find_by_end_range", "fetch_session", "get"}
EXACT = {"fetch_session", "get"}  # one session, by its key, start and end
SCHEMA = "look INT, key BINARY, start BIGINT, end BIGINT, n INT"
REASONS = {
    "fetch_windows": reasons.WINDOWS_THERE,
    "open_iterator": reasons.ITERATOR,
    "dropped_count": reasons.DROPS,
}
EXPECTED = {
    *("expect", "expect_order", "expect_values", "expect_non_empty", "expect_empty", "expect_count", "expect_first"),
    *("expect_windows", "expect_windows_order", "expect_value"),
}
ASKED = {
    *("op", "key", "key_from", "key_to", "earliest_end", "latest_start", "latest_end", "start", "end", "direction"),
    *("after_record", "backward"),
}


@dataclass(frozen=True)
class Look:
    """One query, and the sessions that it sees."""

    case: str
    query: Case
    sessions: Sequence[Session]
    retention: int | None = None


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
    """What the case means otherwise, or None."""
    steps = [*case.get("ops", ()), *case.get("store_queries", ())]
    operations = {step["op"] for step in steps}
    for name, reason in REASONS.items():
        if name in operations:
            return reason
    if unknown := operations - QUERIES - {"put", "remove"}:
        raise UnknownShape(f"store operation {', '.join(sorted(unknown))}")
    if any("expect_error" in step for step in steps):
        return reasons.NULL_KEY
    return None if operations & QUERIES else reasons.NOT_ASKED


def looks_of(case: Case) -> Iterator[Look]:
    """The queries of a case in order, each with what it sees."""
    look = partial(Look, case["name"], retention=_retention(case))
    stored: dict[tuple[bytes, int, int], Any] = {}
    for step in case.get("ops", ()):
        if step["op"] in QUERIES:
            yield look(query=step, sessions=[(*bounds, value) for bounds, value in stored.items()])
            continue
        bounds = _key(step["key"]), step["start"], step["end"]
        if step["op"] == "put" and step["value"] is not None:
            stored[bounds] = step["value"]
        else:  # a put of nothing removes, too
            stored.pop(bounds, None)
    for query in case.get("store_queries", ()):
        yield look(query=query, sessions=_sessions_before(case, query))


def _retention(case: Case) -> int | None:
    """How far behind the latest a session may have ended that is found; there it must be less, by a millisecond."""
    kept = case["config"].get("retention_ms")
    is_cached = case["kind"] != "store" and case["config"].get("emit") != "on_close"
    return None if kept is None or (is_cached and case["config"].get("cache", "none") != "none") else kept - 1


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
    if unknown := set(query) - EXPECTED - ASKED:
        raise UnknownShape(f"a look-up with {', '.join(sorted(unknown))}")
    told = [_compared(name, query[name], look, found) for name in query if name in EXPECTED - {"expect_order"}]
    if not told:
        raise UnknownShape("a look-up that expects nothing")
    wrong = [f"expected {expected}, found {actual}" for expected, actual in told if expected != actual]
    return f"{query}: {'; '.join(wrong)}" if wrong else None


def _compared(name: str, expected: Any, look: Look, found: Sequence[Session]) -> tuple[Any, Any]:
    """What is expected and what was found, in one form."""
    bounds = [[start, end] for _, start, end, _ in found]
    match name:
        case "expect_windows_order":
            return [list(pair) for pair in expected], bounds
        case "expect_windows":
            return sorted(map(list, expected)), sorted(bounds)
        case "expect_values":
            return sorted(expected), sorted(value for *_, value in found)
        case "expect_non_empty" | "expect_empty":
            return expected, bool(found) == (name == "expect_non_empty")
        case "expect_count":
            return expected, len(found)
        case "expect_value":
            return expected, found[0][-1] if found else None
        case "expect_first":
            return [_expected(expected)], list(found[:1])
    if not isinstance(expected, list):  # one session, or what it holds, or nothing
        one = found[0] if found else None
        return (_expected(expected), one) if isinstance(expected, dict) else (expected, one and one[-1])
    rows, actual = [_expected(row) for row in expected], list(found)
    if any(value is None for *_, value in rows):  # a case that says nothing of values
        actual = [(key, start, end, None) for key, start, end, _ in found]
    return (rows, actual) if look.query.get("expect_order") == "exact" else (_sorted(rows), _sorted(actual))


def _sorted(rows: Sequence[Session]) -> list[Session]:
    return sorted(rows, key=repr)


def _ask(sessions: DataFrame, look: Look) -> DataFrame:
    query = look.query

    def key(name: str) -> bytearray | None:
        return None if query.get(name) is None else bytearray(_key(query[name]))

    if look.retention is not None:
        sessions = retained(sessions, C.SESSION_END, look.retention)
    if query["op"] in EXACT:
        at = (F.unix_micros(C.SESSION_START) == query["start"]) & (F.unix_micros(C.SESSION_END) == query["end"])
        sessions = sessions.where(at)
    found = find_sessions(
        sessions,
        ["key"],
        key=key("key"),
        key_from=key("key_from"),
        key_to=key("key_to"),
        earliest_end=query.get("earliest_end"),
        latest_start=query.get("latest_start"),
        latest_end=query.get("latest_end"),
        backward=query.get("direction") == "backward" or bool(query.get("backward")),
    )
    return found.select("look", C.SESSION_ID)  # the times are beyond Python's


def _expected(row: Case) -> Session:
    return _key(row["key"]), row["start"], row["end"], row.get("value")


def _key(text: str) -> bytes:
    """As bytes; keys that are written in hexadecimal have the same order and the same prefixes as they are."""
    if text.startswith("ser("):  # Kafka's serializer of integers
        return int(text[4:-1]).to_bytes(4, "big", signed=True)
    return text.encode()


def _sessions_before(case: Case, query: Case) -> list[Session]:
    """The sessions that a store holds when it is queried."""
    if (last := query.get("after_record")) is None:
        return [(_key(s["key"]), s["start"], s["end"], s.get("value")) for s in case["expected_sessions"]]
    times: dict[str, list[int]] = defaultdict(list)
    for record in (r for r in case["records"][: last + 1] if r["key"] is not None):
        times[record["key"]].append(record["ts"])
    return [(_key(key), *session) for key in sorted(times) for session in _cut(times[key], case)]


def _cut(times: list[int], case: Case) -> Iterator[tuple[int, int, int]]:
    """Start, end and number of records of one key's sessions, in order: cut where more than a gap lies between."""
    times = sorted(times)
    cuts = [i for i in range(1, len(times)) if times[i] - times[i - 1] > case["config"]["gap_ms"]]
    for first, end in pairwise([0, *cuts, len(times)]):
        yield times[first], times[end - 1], end - first


__all__ = ["FAILED", "NOT_APPLICABLE", "PASSED", "run_cases"]
