"""Kafka's sliding windows (KIP-450): each record is a run, and all cases of a configuration share its runs.

Every window tells which records it holds; what Kafka's aggregator makes of them, in order of arrival, is the value.
What a run changed are Kafka's updates, what it made final is what Kafka emits on close. Within one run there is no
order, so updates are compared by window.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import SparkSession

from sessionizer.lib import columns as C
from sessionizer.lib.config import Aggregate
from sessionizer.lib.reading.lookups import find_windows, retained
from sessionizer.lib.rule import Rule
from sessionizer.lib.windows.sliding.rule import SlidingRule
from tests import oracle
from tests.conformance import not_applicable
from tests.conformance.cases import NotApplicable, UnknownShape
from tests.few_rows import for_few_rows
from tests.sliding_replay import Replay, in_micros

PASSED, FAILED, NOT_APPLICABLE = "passed", "failed", "not_applicable"
MS = 1000
KEY = ("case", "k")
SCHEMA = "`case` INT, k STRING, value STRING, at TIMESTAMP, n INT"
MEMBERS = Aggregate.model_validate({"name": "members", "fn": "set", "of": "n"})
COLUMNS = (*KEY, C.WINDOW_START, C.WINDOW_END, C.LAST_EVENT_TIME, C.EVENT_COUNT, "members", C.IS_FINAL)
KNOWN = {
    *("name", "source", "system", "file", "kind", "config", "notes", "base_ts", "records", "store_queries"),
    *("expected_windows", "expected_forwarded", "expected_last_forwarded", "expected_suppressed", "expected_dropped"),
    *("expected_dropped_complete", "expected_dropped_count", "expected_forwarded_order", "expected_suppressed_order"),
}
FETCHES = {"fetch_windows", "fetch", "fetch_all", "all"}
QUERY = {
    *("op", "key", "key_from", "key_to", "start_from", "start_to", "backward", "direction", "after_record"),
    *("expect", "expect_order"),
}
Case = Mapping[str, Any]
Window = tuple[str, int]  # key and start in ms
Value = Callable[[list[Mapping[str, Any]]], Any]


@dataclass(frozen=True)
class State:
    """A window as a run left it; times in ms, members by the place of their record."""

    key: str
    start: int
    end: int
    last: int
    count: int
    members: tuple[int, ...]
    final: bool


@dataclass
class Played:
    """What the runs of one case made: after each record the windows that changed, and those that turned final."""

    updates: list[list[State]] = field(default_factory=list)
    finals: list[list[State]] = field(default_factory=list)
    table: dict[Window, State] = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)
    fetched: dict[int, list[State]] = field(default_factory=dict)


def run_cases(spark: SparkSession, cases: Sequence[Case]) -> list[tuple[str, str, str]]:
    """(case, passed | failed | not_applicable, detail) of each case, in their order."""
    results: dict[int, tuple[str, str]] = {}
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for i, case in enumerate(cases):
        try:
            _value(case)
            _check_known(case)
            groups[case["config"]["time_difference_ms"], case["config"]["grace_ms"]].append(i)
        except NotApplicable as why:
            results[i] = (NOT_APPLICABLE, str(why))
    for (difference, grace), members in groups.items():
        with for_few_rows(spark):
            played = play(spark, [cases[i] for i in members], difference, grace)
        for i, of_case in zip(members, played, strict=True):
            wrong = list(_differences(cases[i], of_case))
            results[i] = (FAILED, "\n".join(wrong)) if wrong else (PASSED, f"{len(cases[i]['records'])} runs")
    return [(case["name"], *results[i]) for i, case in enumerate(cases)]


def play(spark: SparkSession, cases: Sequence[Case], difference: int, grace: int) -> list[Played]:
    """One run for the first records of all cases, one for the second ones, …"""
    events = Rule(
        key=KEY,
        gap=difference * MS,
        event_time="at",
        where="value IS NOT NULL",
        watermark_per=("case",),
        allowed_lateness=grace * MS,
        max_future_skew=0,
        time_unit=MS,
        lateness="session",
        aggregates=(MEMBERS,),
    )
    replay = Replay(spark, SlidingRule(events, difference * MS), SCHEMA, now=2**60)
    played = [Played() for _ in cases]
    for step in range(max(len(case["records"]) for case in cases)):
        here = [(c, case["records"][step]) for c, case in enumerate(cases) if step < len(case["records"])]
        outcome = replay.run([(c, r["key"], r["value"], oracle.at((r["ts"] or 0) * MS), step) for c, r in here])
        changed: dict[int, list[State]] = defaultdict(list)
        for case, *row in in_micros(outcome.changes, *COLUMNS).collect():
            changed[case].append(_state(row))
        for c, _ in here:
            _note(played[c], changed[c])
            asked = enumerate(cases[c].get("store_queries", ()))
            now = [(n, q) for n, q in asked if q.get("after_record", len(cases[c]["records"]) - 1) == step]
            played[c].fetched |= {n: _fetched(replay, c, cases[c], query) for n, query in now}
    if replay.rejected is not None:
        for c, n in replay.rejected.selectExpr(
            "get_json_object(event, '$.case')", "get_json_object(event, '$.n')"
        ).collect():
            played[int(c)].rejected.add(int(n))
    return played


def _state(row: Sequence[Any]) -> State:
    key, start, end, last, count, members, final = row
    return State(key, start // MS, end // MS, last // MS, count, tuple(members), final)


def _note(played: Played, changed: list[State]) -> None:
    updates, finals = [], []
    for now in sorted(changed, key=lambda s: (s.start, s.key)):
        before = played.table.get((now.key, now.start))
        if before is None or before.members != now.members:
            updates.append(now)
        if now.final and not (before and before.final):
            finals.append(now)
        played.table[now.key, now.start] = now
    played.updates.append(updates)
    played.finals.append(finals)


def _fetched(replay: Replay, number: int, case: Case, query: Mapping[str, Any]) -> list[State]:
    if unknown := set(query) - QUERY:
        raise UnknownShape(f"a look-up of windows with {', '.join(sorted(unknown))}")
    assert replay.windows is not None
    windows = replay.windows.where(C.col("case") == number)
    if (kept := _retention(case)) is not None:
        windows = retained(windows, C.WINDOW_END, kept * MS)
    start_from, start_to = (query.get(name) for name in ("start_from", "start_to"))
    found = find_windows(
        windows,
        ["k"],
        key=query.get("key"),
        key_from=query.get("key_from"),
        key_to=query.get("key_to"),
        start_from=None if start_from is None else start_from * MS,
        start_to=None if start_to is None else start_to * MS,
        backward=bool(query.get("backward")) or query.get("direction") == "backward",
    )
    return [_state(row[1:]) for row in in_micros(found, *COLUMNS).collect()]


def _retention(case: Case) -> int | None:
    """How far behind the latest a window may have ended that is found, in ms; what is in a cache is, however old."""
    config = case["config"]
    if not str(config.get("cache", "none")).startswith("none") or "retention_ms" not in config:
        return None
    kept = int(config["retention_ms"])
    return kept if config.get("emit") == "on_close" else kept - 1


def _check_known(case: Case) -> None:
    for name in case:
        if name not in KNOWN and not name.endswith("_basis") and not name.startswith(("derived", "permut")):
            raise UnknownShape(f"a case with {name}")
    for query in case.get("store_queries", ()):
        if query["op"] not in FETCHES:
            raise UnknownShape(f"store query {query['op']}")
    config = case["config"]
    if config.get("emit") == "on_close" and "expected_forwarded" in case and _jumps_over_retention(case):
        raise NotApplicable(not_applicable.LOST_UNEMITTED)


def _jumps_over_retention(case: Case) -> bool:
    """Whether stream time moves on by more than the retention in one step, so that windows are lost unemitted."""
    retention, time = case["config"].get("retention_ms"), None
    for record in case["records"]:
        if retention is not None and time is not None and record["ts"] - time > retention:
            return True
        time = max(time if time is not None else record["ts"], record["ts"])
    return False


def _value(case: Case) -> Value:
    """What the aggregator of a case makes of the records of a window."""
    aggregator = case["config"]["aggregator"]
    init = [aggregator["init"]] if "init" in aggregator else []
    match aggregator["type"]:
        case "count":
            return len
        case "append" | "reduce_append":
            separator = aggregator.get("sep", "")
            return lambda records: separator.join([*map(str, init), *[r["value"] for r in records]])
        case "append_by_topic":
            by_topic = aggregator["sep"]
            return lambda records: "".join(
                [*map(str, init), *[by_topic[str(r["topic"])] + r["value"] for r in records]]
            )
        case "sum_of_value_lengths":
            return lambda records: aggregator.get("init", 0) + sum(len(r["value"]) for r in records)
        case "sorted_chars":
            return lambda records: "".join(sorted("".join(r["value"] for r in records)))
        case "collect":
            return lambda records: [r["value"] for r in records]
    raise UnknownShape(f"aggregator {aggregator['type']!r}")


def _differences(case: Case, played: Played) -> Any:
    value = _value(case)

    def shown(state: State) -> dict[str, Any]:
        records = [case["records"][n] for n in state.members]
        return {
            **{"key": state.key, "start": state.start, "end": state.end, "ts": state.last},
            **{"value": value(records), "values": value(records)},
        }

    if any(len(state.members) != state.count for state in played.table.values()):
        yield "event_count is not the number of records"
    if "expected_windows" in case:
        yield from _compared("window", case["expected_windows"], map(shown, played.table.values()))
    if "expected_forwarded" in case:
        yield from _forwarded(case, played, shown)
    if "expected_last_forwarded" in case:
        yield from _compared("last update", case["expected_last_forwarded"], map(shown, played.table.values()))
    if "expected_suppressed" in case:
        suppressed = [shown(s) | {"after_record": i} for i, run in enumerate(played.finals) for s in run]
        yield from _compared("final result", case["expected_suppressed"], suppressed)
    for number, query in enumerate(case.get("store_queries", ())):
        found = played.fetched[number]
        yield from _compared("fetched", query["expect"], map(shown, found))
        if query.get("expect_order") == "exact":
            order = [(e["key"], e["start"]) for e in query["expect"]]
            if order != [(s.key, s.start) for s in found]:
                yield f"fetched in order {[(s.key, s.start) for s in found]}"
    yield from _dropped(case, played)


def _forwarded(case: Case, played: Played, shown: Callable[[State], dict[str, Any]]) -> Any:
    """Updates as a set for each window, since a run has no order inside; what is emitted on close in its order."""
    emits, expected = case["config"].get("emit", "on_update"), case["expected_forwarded"]
    for emit in emits if isinstance(emits, list) else [emits]:
        if emit == "on_update":
            compacted = str(case["config"].get("cache", "")).startswith("flush_at_end")
            states = played.table.values() if compacted else (s for run in played.updates for s in run)
            yield from _compared("update", _distinct(expected), _distinct(map(shown, states)))
            continue
        finals = [shown(s) for run in played.finals for s in run]
        yield from _compared("emitted", expected, finals)
        order, got = [[(row["key"], row["start"]) for row in rows] for rows in (expected, finals)]
        if case.get("expected_forwarded_order") == "exact" and order != got:
            yield f"emitted in order {got}, expected {order}"


def _dropped(case: Case, played: Played) -> Any:
    """A record dropped as a whole is rejected here; one that misses some windows is in others, or rejected too."""
    if "expected_dropped" not in case:
        return
    null_value = {i for i, record in enumerate(case["records"]) if record["value"] is None}
    whole = {d["record"] for d in case["expected_dropped"] if d.get("scope", "record") == "record"} - null_value
    if missing := whole - played.rejected:
        yield f"not rejected: {sorted(missing)}"
    skipped = {d["record"] for d in case["expected_dropped"]}
    if case.get("expected_dropped_complete") and (more := played.rejected - skipped):
        yield f"rejected: {sorted(more)}"


def _compared(what: str, expected: Any, got: Any) -> Any:
    """What is expected and not there, and what is there beside; only the fields that are expected are compared."""
    left = list(got)
    for row in expected:
        if (same := next((g for g in left if all(g.get(f) == v for f, v in row.items() if f in g)), None)) is None:
            yield f"{what}: expected {row}"
        else:
            left.remove(same)
    for row in left:
        yield f"{what}: got {row}"


def _distinct(rows: Any) -> list[Any]:
    kept: list[Any] = []
    for row in rows:
        if row not in kept:
            kept.append(row)
    return kept
