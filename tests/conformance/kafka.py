"""Kafka Streams' session windows (KIP-94): aggregation with updates, tombstones, final results, drops, look-ups.

Window [first, last event], merged at a distance of exactly the gap, whatever is stored ("merge whatever is stored":
`lateness: session`, `revive: true`). Stream time includes the record that is judged, so each record is a run of its
own whose clock stands at it; dropped iff the merged end < stream time - grace - gap, which is our expires_at < H.

What is compared: windows, tombstones, drops and emissions record by record. Of the values what does not depend on
the order of arrival, since ours never do: counts, sums, and the parts of appended texts as a bag (Kafka's
initializer leaks one part in for each record, so these are counted too).
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.conformance import configs, not_applicable
from tests.conformance.cases import Case, NotApplicable, UnknownShape
from tests.conformance.plans import Plan
from tests.conformance.plays import Event, Play, Ran, Rules, Run, Session
from tests.conformance.units import MS
from tests.conformance.values import differences

CONFIG = (
    *("gap_ms", "grace_ms", "aggregator", "retention_ms", "retention_is_default", "emit", "cache", "stores"),
    "suppress",
)
BODY = (
    *("records", "store_queries", "expected_sessions", "expected_sessions_basis"),
    *("expected_forwarded", "expected_forwarded_order", "expected_forwarded_fields", "expected_forwarded_count"),
    *("expected_forwarded_basis", "expected_last_forwarded", "expected_suppressed", "expected_suppressed_order"),
    *("expected_dropped", "expected_dropped_complete", "expected_dropped_basis", "expected_dropped_count"),
)
RULES = Rules("joins", "session", revive=True, null_keys="reject")
Row = Mapping[str, Any]


def adapt(case: Case) -> Plan:
    match case.kind:
        case "session":
            return _Sessions(case).plan()
        case "window":
            return _overlaps(case)
        case "config":
            return configs.checked(case)
    raise UnknownShape(f"kind {case.kind!r}")


@dataclass(frozen=True)
class _Value:
    """How a value of Kafka's and the records of a session of ours are brought to one form."""

    ours: Callable[[list[Any]], Any]
    theirs: Callable[[Any], Any] = lambda value: value


def _value(aggregator: Mapping[str, Any]) -> _Value:
    """The form for an aggregator; a list of values is a bag."""
    kind, init = aggregator.get("type"), aggregator.get("init")
    stated = [aggregator.get("sep"), aggregator.get("merge_sep")]
    seps = [s for sep in stated for s in (sep.values() if isinstance(sep, dict) else [sep]) if s]
    parts = re.compile("|".join(map(re.escape, seps)) or r"\Z.")
    match kind:
        case "count":
            return _Value(len)
        case "append" | "append_by_topic" | "reduce_append":
            leaked = [] if init is None else [str(init)]
            return _Value(lambda v: sorted([*map(_text, v), *leaked * len(v)]), lambda text: sorted(parts.split(text)))
        case "sum_of_value_lengths":
            return _Value(lambda v: (init or 0) + sum(len(x or "") for x in v))
        case "sorted_chars":
            return _Value(lambda v: sorted("".join(x or "" for x in v)), sorted)
        case "collect":
            return _Value(lambda v: sorted(map(_text, v)), lambda v: sorted(map(_text, v)))
    raise UnknownShape(f"aggregator {kind!r}")


def _text(value: Any) -> str:
    return "null" if value is None else str(value)


class _Sessions:
    """A case of kind `session`."""

    def __init__(self, case: Case) -> None:
        case.only(*CONFIG)
        case.expects(*BODY)
        self.body, config = case.body, case.config
        self.records: Sequence[Row] = case.body["records"]
        self.gap = _number(config["gap_ms"], "gap")
        grace = config.get("grace_ms", 0)
        self.grace = None if _never_late(grace) else _number(grace, "grace")
        self.value = _value(config["aggregator"])
        emit = config.get("emit", "on_update")
        self.emits = [emit] if isinstance(emit, str) else list(emit)
        self.cache = str(config.get("cache", "none" if self.emits == ["on_close"] else "unknown"))
        self.retention = config.get("retention_ms")
        for stated, known in ((set(self.emits), {"on_update", "on_close"}), ({config.get("suppress")}, SUPPRESS)):
            if unknown := stated - known:
                raise UnknownShape(f"emission {unknown.pop()!r}")

    def plan(self) -> Plan:
        return Plan(
            (Play(RULES, tuple(self._runs())),),
            lambda played: self._differences(played[0]),
            lambda played: self._queries(played[0]),
        )

    def _runs(self) -> list[Run]:
        runs, stream_time = [], -MS
        for number, record in enumerate(self.records):
            at = None if record["ts"] is None else record["ts"] * MS
            key = None if record["key"] is None else json.dumps(record["key"])
            if at is not None and key is not None:
                stream_time = max(stream_time, at)
            horizon = None if self.grace is None else stream_time - self.grace * MS
            event = Event(number, key, at, f"{self.gap} milliseconds", record)
            runs.append(Run((event,), stream_time, horizon))
        return runs

    def _differences(self, runs: list[Ran]) -> list[str]:
        body, found = self.body, self._dropped(runs)
        table = runs[-1].table if runs else ()
        if "expected_sessions" in body:
            stored = self._retained(table) if self.emits == ["on_close"] else table
            found += self._same("sessions", body["expected_sessions"], stored)
        for emit in self.emits:
            found += self._forwarded(emit, runs)
        if "expected_last_forwarded" in body:
            found += self._same("last of each window", body["expected_last_forwarded"], table)
        if "expected_suppressed" in body:
            found += differences(
                "suppressed", [self._theirs(row) for row in body["expected_suppressed"]], self._suppressed(runs)
            )
        return found

    def _queries(self, runs: list[Ran]) -> list[dict[str, Any]]:
        """Each store query, as a case of the look-ups: our sessions are put, then it is asked.

        What is in a cache is found however old it is.
        """
        found = []
        kept = {} if self.retention is None or self._cached() else {"retention_ms": self.retention}
        for number, query in enumerate(self.body.get("store_queries", [])):
            after = runs[query.get("after_record", len(runs) - 1)].table
            stored = [self._ours(s) for s in after]
            puts = [{"op": "put"} | {n: row[n] for n in ("key", "start", "end", "value")} for row in stored]
            asked = {n: self._answer(v) if n.startswith("expect") else v for n, v in query.items()}
            found.append({"name": f"query {number}", "kind": "store", "config": kept, "ops": [*puts, asked]})
        return found

    def _answer(self, expected: Any) -> Any:
        """An expected answer with its values in our form."""
        if isinstance(expected, list):
            return [self._answer(row) for row in expected]
        return self._theirs(expected) if isinstance(expected, dict) else expected

    def _same(self, what: str, expected: Sequence[Row], sessions: Sequence[Session]) -> list[str]:
        return differences(what, [self._theirs(row) for row in expected], [self._ours(s) for s in sessions])

    def _forwarded(self, emit: str, runs: list[Ran]) -> list[str]:
        """Updates and tombstones of each record, or what each record closed, in the order of the records."""
        body, found = self.body, []
        by_record = [self._closed(ran) if emit == "on_close" else self._updates(ran) for ran in runs]
        if self.cache == "flush_at_end" and emit == "on_update":
            by_record = [[self._ours(s) for s in runs[-1].table]]
        if "expected_forwarded_count" in body:
            counted, expected = sum(map(len, by_record)), body["expected_forwarded_count"]
            found += [] if counted == expected else [f"forwarded: expected {expected} updates, got {counted}"]
        if "expected_forwarded" not in body:
            return found
        rows = [self._theirs(row) for row in body["expected_forwarded"]]
        if body.get("expected_forwarded_order", "exact") != "exact":
            return found + differences("forwarded", rows, [row for of in by_record for row in of])
        for number, got in enumerate(by_record):
            found += differences(f"forwarded after record {number}", rows[: len(got)], got)
            rows = rows[len(got) :]
        return found + differences("forwarded after all", rows, [])

    def _updates(self, ran: Ran) -> list[Row]:
        """Tombstones of the windows that the new one replaces, then the new one.

        A window of no length replaces only itself, without a tombstone; a cache takes one out that is at once
        overwritten.
        """
        rows: list[Row] = []
        for new in ran.grown:
            gone = [s for s in ran.removed if s.key == new.key and new.start <= s.start and s.end <= new.end]
            if new.start == new.end:
                gone = []
            if self.cache == "flush_each_record":
                gone = [s for s in gone if (s.start, s.end) != (new.start, new.end)]
            rows += [{**self._ours(s), "value": None} for s in gone]
            rows.append(self._ours(new))
        return rows

    def _closed(self, ran: Ran) -> list[Row]:
        """Sessions that turned final."""
        known = {key for key in _keys(ran.removed) if key[-1] == "final"}
        written = zip(ran.written, _keys(ran.written), strict=True)
        final = [s for s, key in written if s.status == "final" and key not in known]
        return [self._ours(s) for s in final]

    def _suppressed(self, runs: list[Ran]) -> list[Row]:
        """What a reader sees who takes a row, once per change, when it has ended a grace ago or just then."""
        seen: set[Any] = set()
        rows: list[Row] = []
        for number, ran in enumerate(runs):
            stream_time = max((s.end for r in runs[: number + 1] for s in r.written), default=-MS)
            for session, key in zip(ran.table, _keys(ran.table), strict=True):
                if self.grace is not None and session.reach + self.grace * MS <= stream_time and key[:-1] not in seen:
                    seen.add(key[:-1])
                    rows.append({**self._ours(session), "after_record": number})
        return rows

    def _dropped(self, runs: list[Ran]) -> list[str]:
        body = self.body
        got = [{"record": n, "reason": reason} for ran in runs for n, reason in ran.rejected]
        expected = [
            {"record": row["record"], "reason": row["reason"] if row.get("reason") == "null_key" else "late"}
            for row in body.get("expected_dropped", [])
        ]
        found = []
        if "expected_dropped" in body:
            found = differences("dropped", expected, got)
            if not body.get("expected_dropped_complete"):
                found = [line for line in found if ": expected" in line]
        counted = body.get("expected_dropped_count", len(got))
        return found + ([] if counted == len(got) else [f"dropped: expected {counted}, got {len(got)}"])

    def _cached(self) -> bool:
        return not self.cache.startswith("none") or "or" in self.cache

    def _retained(self, table: Sequence[Session]) -> Sequence[Session]:
        """What a store without a cache still shows: sessions whose end lies within the retention of the latest."""
        if self.retention is None:
            return table
        latest = max((s.end for s in table), default=0)
        return [s for s in table if s.end >= latest - (self.retention - 1) * MS]

    def _ours(self, session: Session) -> Row:
        values = self.value.ours([self.records[m].get("value") for m in session.members])
        window = {"key": json.loads(session.key or "null"), "start": session.start // MS, "end": session.end // MS}
        return window | {"value": values, "values": values, "ts": session.end // MS}

    def _theirs(self, row: Row) -> Row:
        known = {"key", "start", "end", "value", "values", "ts", "after_record"}
        if unknown := set(row) - known:
            raise UnknownShape(f"session with {', '.join(sorted(unknown))}")
        return {
            name: self.value.theirs(value) if name in ("value", "values") and value is not None else value
            for name, value in row.items()
        }


SUPPRESS = {None, "until_window_closes"}


def _keys(sessions: Sequence[Session]) -> list[tuple[Any, ...]]:
    return [(s.key, s.start, s.end, s.count, s.status) for s in sessions]


def _never_late(grace: Any) -> bool:
    return isinstance(grace, str) and "nothing is late" in grace


def _number(value: Any, name: str) -> int:
    if not isinstance(value, int):
        raise UnknownShape(f"{name} {value!r}")
    return value


def _overlaps(case: Case) -> Plan:
    """Two windows overlap iff they would merge.

    A closed window [a, b] of whole milliseconds holds the same instants as [a, b + 1), and half-open windows
    overlap iff they merge where touching splits.
    """
    closed = {"session": 1, "time": 0}
    if case.config["window"] not in closed:
        raise NotApplicable(not_applicable.NO_SESSIONS)
    case.only("window", "start", "end")
    case.expects("checks")
    further = closed[case.config["window"]]
    plays, expected = [], []
    for check in case.body["checks"]:
        others = check["others"] if "others" in check else [check["other"]]
        told = check["overlap"] if isinstance(check["overlap"], list) else [check["overlap"]] * len(others)
        if unknown := set(check) - {"other", "others", "overlap"}:
            raise UnknownShape(f"window check of {', '.join(sorted(unknown))}")
        for other, overlap in zip(others, told, strict=True):
            windows = ((case.config["start"], case.config["end"]), other)
            events = tuple(
                Event(n, '["k"]', start * MS, f"{end + further - start} milliseconds")
                for n, (start, end) in enumerate(windows)
            )
            plays.append(Play(Rules("splits"), (Run(events),)))
            expected.append(overlap)

    def compare(played: Sequence[list[Ran]]) -> list[str]:
        got = [len(runs[-1].table) == 1 for runs in played]
        checks = enumerate(zip(expected, got, strict=True))
        return [f"check {n}: expected {e}, got {g}" for n, (e, g) in checks if e != g]

    return Plan(tuple(plays), compare)
