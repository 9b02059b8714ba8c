"""Cases that only merge ranges: a range is an event at its start whose gap reaches to its end."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from tests.conformance.cases import Case, UnknownShape
from tests.conformance.pipelines import Dialect
from tests.conformance.plans import Columns, Plan
from tests.conformance.plays import Event, Play, Ran, Run
from tests.conformance.values import canonical, differences

PAIR = 2
CONFIG = (
    *("time_unit", "time", "gap", "boundary", "precondition", "aggregates", "output", "mode", "group_by", "order_by"),
    *("key_columns", "key_shape", "time_type", "time_zone"),
)


def adapt(case: Case, dialect: Dialect) -> Plan:
    """A plan for the kinds of range cases that several systems share."""
    kinds = {
        "assign": _assign,
        "ranges": _merged,
        "ranges_update": _updated,
        "merge_ranges": _merges,
        "merge_incremental": _incremental,
        "group_ranges": _groups,
        "overlap": _overlap,
        "find_overlap": _find_overlap,
    }
    if case.kind not in kinds:
        raise UnknownShape(f"kind {case.kind!r}")
    case.only(*CONFIG)
    return kinds[case.kind](case, dialect)


def _assign(case: Case, dialect: Dialect) -> Plan:
    """One range per record: each is a key of its own, so that nothing merges."""
    case.expects("records", "expected", "expected_dropped")
    columns = Columns(case, case.body["records"])
    events = tuple(
        Event(e.record, str(e.record), e.at, e.gap, e.fields) for e in columns.events(range(len(columns.records)))
    )
    expected = columns.expected_members(case.body["expected"])

    def compare(played: Sequence[list[Ran]]) -> list[str]:
        found = differences("ranges", expected, columns.members(played[0][-1].table))
        if "expected_dropped" in case.body:
            found += differences("dropped", case.body["expected_dropped"], columns.rejected(played[0]))
        return found

    return Plan((Play(dialect.rules_of(case), (Run(events),)),), compare)


def _merged(case: Case, dialect: Dialect) -> Plan:
    case.expects("rows", "ranges", "state", "initial", "expected")
    columns = Columns(case, [*_stored(case), *_rows(case)])
    expected = columns.expected(case.body["expected"])

    def compare(ran: Ran) -> list[str]:
        return differences("ranges", expected, columns.sessions(ran.table, expected))

    return _at_once(case, dialect, columns, compare)


def _updated(case: Case, dialect: Dialect) -> Plan:
    case.expects("rows", "ranges", "expected")
    columns = Columns(case, _rows(case))
    expected = columns.expected_members(case.body["expected"])
    return _at_once(case, dialect, columns, lambda ran: differences("rows", expected, columns.members(ran.table)))


def _merges(case: Case, dialect: Dialect) -> Plan:
    """Only merges of several different ranges are told; each entry names its result, its ranges, or both."""
    case.expects("rows", "ranges", "expected_merges", "expected")
    columns = Columns(case, _rows(case))
    expected = [_merge(entry, columns) for entry in case.body["expected_merges"]]

    def compare(ran: Ran) -> list[str]:
        got = []
        for session in ran.table:
            parts = sorted({canonical(r) for r in columns.ranges(columns.records[m] for m in session.members)})
            if len(parts) > 1:
                got.append({"result": columns.range_of(session), "ranges": parts})
        return differences("merges", expected, got)

    return _at_once(case, dialect, columns, compare)


def _merge(entry: Any, columns: Columns) -> Mapping[str, Any]:
    if isinstance(entry, list):
        entry = {"ranges": entry}
    if "start" in entry:
        entry = {"result": {"start": entry["start"], "end": entry["end"]}} | entry
    found: dict[str, Any] = {}
    for value in entry.values():
        if isinstance(value, list):
            found["ranges"] = sorted({canonical(r) for r in columns.ranges(value)})
        elif isinstance(value, dict):
            found["result"] = columns.ranges([value])[0]
    if not found:
        raise UnknownShape("expected_merges in another shape")
    return found


def _groups(case: Case, dialect: Dialect) -> Plan:
    case.expects("rows", "ranges", "expected_groups")
    columns = Columns(case, _rows(case))

    def group(rows: Sequence[Any]) -> Mapping[str, Any]:
        return {"group": sorted(map(canonical, columns.ranges(rows)))}

    expected = [group(rows) for rows in case.body["expected_groups"]]

    def compare(ran: Ran) -> list[str]:
        return differences("groups", expected, [group([columns.records[m] for m in s.members]) for s in ran.table])

    return _at_once(case, dialect, columns, compare)


def _overlap(case: Case, dialect: Dialect) -> Plan:
    """Of each two of the ranges whether they overlap, or whether any do."""
    case.expects("rows", "ranges", "expected")
    columns = Columns(case, _rows(case))
    told = _pairs(case.body["expected"], columns)
    events = columns.of_ranges()
    plays = tuple(Play(dialect.rules_of(case), (Run((events[i], events[j])),)) for i, j in told)
    together = Play(dialect.rules_of(case), (Run(events),))

    def compare(played: Sequence[list[Ran]]) -> list[str]:
        *each, whole = [len(runs[-1].table) for runs in played]
        if not told:
            expected = case.body["expected"]
            expected = expected if isinstance(expected, dict) else {"overlap": expected}
            return differences("overlap", [expected], [{"overlap": whole < len(events)}])
        pairs = zip(told.items(), each, strict=True)
        return [f"{i} and {j} overlap: expected {e}" for ((i, j), e), n in pairs if (n == 1) != e]

    return Plan((*plays, together), compare)


def _pairs(expected: Any, columns: Columns) -> dict[tuple[int, int], bool]:
    """What is told of pairs of ranges, by their places; none: one answer for all of them.

    A list of answers is of the first range and each other one, or of all pairs in order; or each names its ranges.
    """
    number = len(columns.records)
    if isinstance(expected, dict) and set(expected) != {"overlap"}:
        raise UnknownShape(f"overlap with {', '.join(sorted(expected))}")
    if isinstance(expected, bool) or (isinstance(expected, dict) and isinstance(expected["overlap"], bool)):
        return {}
    answers = expected["overlap"] if isinstance(expected, dict) else expected
    if not isinstance(answers, list) or not answers:
        raise UnknownShape(f"overlap {expected!r}")
    if all(isinstance(answer, bool) for answer in answers):
        first, all_pairs = [(0, n) for n in range(1, number)], list(combinations(range(number), 2))
        return dict(zip(first if len(answers) == len(first) else all_pairs, answers, strict=True))
    places = [canonical(r) for r in columns.ranges(columns.records)]
    found = {}
    for answer in answers:
        named = [value for name, value in answer.items() if name != "overlap"]
        named = named[0] if len(named) == 1 and isinstance(named[0], list) else named
        one, other = [n if isinstance(n, int) else places.index(canonical(columns.ranges([n])[0])) for n in named]
        found[one, other] = answer["overlap"]
    return found


def _find_overlap(case: Case, dialect: Dialect) -> Plan:
    """Which of some ranges overlap another: the one expected is among them, or there is none."""
    given = {name: value for name, value in case.body.items() if not name.startswith("expected")}
    several = [value for value in given.values() if _are_ranges(value)]
    single = [value for value in given.values() if _are_ranges([value])]
    expected = case.body["expected"]
    if len(several) != 1 or len(single) != 1 or not (expected is None or _are_ranges([expected])):
        raise UnknownShape("find_overlap in another shape")
    columns = Columns(case, [*several[0], *single])
    *others, asked = columns.of_ranges()
    plays = tuple(Play(dialect.rules_of(case), (Run((other, asked)),)) for other in others)

    def compare(played: Sequence[list[Ran]]) -> list[str]:
        found = [r for r, runs in zip(columns.ranges(several[0]), played, strict=True) if len(runs[-1].table) == 1]
        right = columns.ranges([expected])[0] in found if expected else not found
        return [] if right else [f"overlap: expected {expected}, got {found}"]

    return Plan(plays, compare)


def _are_ranges(value: Any) -> bool:
    if not isinstance(value, list) or not value:
        return False
    return all(
        {"start", "end"} <= set(row)
        if isinstance(row, dict)
        else isinstance(row, list) and len(row) == PAIR and not isinstance(row[0], dict | list)
        for row in value
    )


def _incremental(case: Case, dialect: Dialect) -> Plan:
    """One range after the other; what each merged with are the rows that its run removed."""
    case.expects("steps", "state", "initial", "expected")
    steps, stored = case.body["steps"], _stored(case)
    for step in steps:
        if unknown := set(step) - {"add", "result", "merged", "merged_from_existing"}:
            raise UnknownShape(f"merge_incremental with step {', '.join(sorted(unknown))}")
    columns = Columns(case, [*stored, *[step["add"] for step in steps]])
    events = columns.of_ranges()
    runs = [Run(events[: len(stored)]), *[Run((event,)) for event in events[len(stored) :]]]
    play = Play(dialect.rules_of(case), tuple(runs))

    def compare(played: Sequence[list[Ran]]) -> list[str]:
        found = []
        for number, (step, ran) in enumerate(zip(steps, played[0][1:], strict=True)):
            result = columns.range_of(ran.grown[0])
            before = _by_start([columns.range_of(s) for s in ran.removed])
            got = {"result": result, "merged": bool(before) and result not in before, "merged_from_existing": before}
            expected: dict[str, Any] = {"result": columns.ranges([step["result"]])[0]}
            if "merged" in step:
                expected["merged"] = step["merged"]
            if "merged_from_existing" in step:
                expected["merged_from_existing"] = _by_start(columns.ranges(step["merged_from_existing"]))
            found += differences(f"step {number}", [expected], [got])
        rows = columns.ranges(case.body.get("expected", []))
        standing = [columns.range_of(s) for s in played[0][-1].table]
        return found + (differences("ranges", rows, standing) if "expected" in case.body else [])

    return Plan((play,), compare)


def _by_start(ranges: list[Any]) -> list[Any]:
    return sorted(ranges, key=lambda r: (r["start"], r["end"]))


def _stored(case: Case) -> list[Any]:
    """The ranges that are there before: each by itself, or the first that its entry names."""
    found = []
    for entry in case.body.get("state", case.body.get("initial", [])):
        named = entry.values() if isinstance(entry, dict) else entry
        found.append(entry if _are_ranges([entry]) else next(value for value in named if _are_ranges([value])))
    return found


def _rows(case: Case) -> list[Any]:
    rows: list[Any] = case.body.get("rows", case.body.get("ranges"))
    return rows


def _at_once(case: Case, dialect: Dialect, columns: Columns, compare: Any) -> Plan:
    """All in one run, behind what the case says to be stored already."""
    events, stored = columns.of_ranges(), len(_stored(case))
    runs = (*([Run(events[:stored])] if stored else []), Run(events[stored:]))
    play = Play(dialect.rules_of(case), runs, columns.aggregates)
    return Plan((play,), lambda played: compare(played[0][-1]))
