"""Configurations: every pair of values of two options, in few of them."""

from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

from tests.machine.rule import FIRST, MINUTE, Laid, Rule

Options = dict[str, Any]
FAR = 100_000  # minutes
# When histories begin: half an hour before 1970, on the first day that there is but one, in the last month of all.
EPOCH, YEAR_1, YEAR_9999 = -30 * MINUTE, -62_135_510_400_000_000, 253_399_622_400_000_000

MADE = {"name": "k1", "expr": "coalesce(k1_told, k1_told)"}

# What each option may be, as fields of a Rule.
VALUES: dict[str, list[dict[str, Any]]] = {
    "key": [
        *({"key": ("k1",), "type_of_key": t} for t in ("STRING", "BIGINT", "DECIMAL(12,2)", "TIMESTAMP", "BINARY")),
        {"key": ("k1", "k2")},
        {"key": ()},
    ],
    "nulls": [{"groups_nulls": False}, {"groups_nulls": True}],
    "gap": [{"gap": 1}, {"gap": 2}, {"gap": 3}, {"gap": 10}, {"gap": 20}, {"gap": None}, {"gap": None, "at_least": 4}],
    "boundary": [{"splits": False}, {"splits": True}],
    "longest": [{"longest": None}, {"longest": 2}, {"longest": 12}],
    "content": [
        {},
        {},
        {"starts": 3},
        {"ends": 3},
        {"changes": True},
        {"most": 2},
        {"midnight": True, "zone": "Africa/Monrovia"},
        {"starts": 1, "ends": 2, "most": 3, "midnight": True},
        {"ends": 4, "changes": True, "most": 4},
    ],
    "lateness": [{"lateness": "event"}, {"lateness": "session"}, {"lateness": "session", "revive": True}],
    "late": [{"late": "quarantine"}, {"late": "drop"}, {"late": "amend"}, {"late": "separate"}],
    "corrections": [{"corrections": "apply"}, {"corrections": "quarantine"}, {"corrections": "ignore"}],
    "invalid": [{"invalid": "quarantine"}, {"invalid": "drop"}],
    "dedupe": [{"within": None}, {"within": 2}, {"within": 1440}],
    "follows": [{"earliest": False}, {"earliest": True}],
    "per": [{"per": "table"}, {"per": "column"}, {"per": "key"}],
    "delay": [{"delay": 0}, {"delay": 5}],
    "allowed": [{"allowed": 0}, {"allowed": 5}, {"allowed": 30}],
    "skew": [{"skew": FAR}, {"skew": 5}],
    "idle": [{"idle_after": None}, {"idle_after": 7}, {"idle_after": 60, "idle_by_arrival": True}],
    "order": [{"ordered": False}, {"ordered": True}],
    "aggregates": [{"aggregates": name} for name in ("ints", "doubles", "kinds", "near", "none")],
    "commit": [{"commit": "merge"}, {"commit": "replace"}],
    "traced": [{"traced": False}, {"traced": True}],
    "versions": [{"one_by_one": False}, {"one_by_one": True}],
    "start": [{"from_version": None}, {"from_version": 1}],
    "era": [{"earlier": FIRST - start} for start in (FIRST, EPOCH, YEAR_1, YEAR_9999)],
}
Choice = dict[str, int]


def rule_of(choice: Choice) -> Rule:
    """The rule of these values; those that cannot go with others give way."""
    options: Options = {}
    for name, values in VALUES.items():
        options |= values[choice[name]]
    key = options["key"]
    per = {"table": (), "column": key[:1], "key": key}[options["per"]]
    per_key = options["per"] == "key" and bool(key)
    if per_key:
        options |= {"idle_after": 60, "idle_by_arrival": True}
    if options["lateness"] == "session" and not options.get("revive") and options["late"] != "amend":
        options |= dict.fromkeys(("starts", "ends", "most")) | {"changes": False, "midnight": False}
    return Rule(**options | {"per": per, "per_key": per_key})


def covering(random: Random) -> Iterator[Choice]:
    """Choices that hold every pair of values: each the best of some random ones."""
    missing = {
        ((a, i), (b, j))
        for a, b in combinations(VALUES, 2)
        for i in range(len(VALUES[a]))
        for j in range(len(VALUES[b]))
    }
    while missing:
        tries = [{name: random.randrange(len(values)) for name, values in VALUES.items()} for _ in range(60)]
        best = max(tries, key=lambda choice: len(missing & _pairs(choice)))
        missing -= _pairs(best)
        yield best


def _pairs(choice: Choice) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    return set(combinations(choice.items(), 2))


def sections(rule: Rule, folder: Path) -> dict[str, Any]:
    """The sections of the config file."""
    gap: Any = f"{rule.gap}m"
    if rule.gap is None:
        least = {"at_least": f"{rule.at_least}m"} if rule.at_least else {}
        gap = {"expr": "make_dt_interval(0, 0, g, 0)", **least}
    source: dict[str, Any] = {
        "key": [MADE if rule.is_made and name == "k1" else name for name in rule.key],
        "event_time": "at",
        "null_keys": "group" if rule.groups_nulls else "reject",
        "order_by": ["o"] if rule.ordered else [],
    }
    if rule.filters:
        source["where"] = "x <> 5"
    if rule.from_version is not None:
        source["start"] = {"version": rule.from_version}
    if rule.within is not None:
        source["dedupe"] = {"by": ["id"], "within": f"{rule.within}m"}
    time: dict[str, Any] = {
        "watermark": {
            "from": "min_event_time" if rule.earliest else "max_event_time",
            "per": "key" if rule.per_key else list(rule.per) or "table",
            "delay": f"{rule.delay}m",
        },
        "allowed_lateness": f"{rule.allowed}m",
        "lateness": rule.lateness,
        "revive": rule.revive,
        "max_future_skew": f"{rule.skew}m",
    }
    erasing = {} if rule.erases is None else {"erase_when": f"x = {rule.erases}"}
    if rule.idle_after is not None:
        clock = "processing_time" if rule.idle_by_arrival else "event_time"
        time["idle_timeout"] = {"after": f"{rule.idle_after}m", "clock": clock}
    return {
        "source": source,
        "sessions": {"commit": rule.commit} | LAID[rule.laid],
        "session": {"gap": gap, "gap_boundary": "splits" if rule.splits else "joins"}
        | ({} if rule.longest is None else {"max_duration": f"{rule.longest}m"})
        | content(rule),
        "time": time,
        "late_events": rule.late,
        "invalid_events": rule.invalid,
        "corrections": {"deletes": "ignore"} | erasing if rule.corrections == "ignore" else rule.corrections,
        "aggregates": aggregates(rule) + (LATER if rule.gains else []) + ([FAILING] if rule.fails else []),
        "outputs": {name: str(folder / name) for name in TRACES} if rule.traced else {},
        "limits": {"max_versions_per_run": 1} if rule.one_by_one else {},
    }


def content(rule: Rule) -> dict[str, Any]:
    told: dict[str, Any] = {
        "starts_when": f"x = {rule.starts}" if rule.starts else None,
        "ends_when": f"x = {rule.ends}" if rule.ends else None,
        "changes_of": ["x"] if rule.changes else None,
        "max_events": rule.most,
        "cut_at": "midnight" if rule.midnight else None,
        "time_zone": rule.zone,
    }
    return {name: value for name, value in told.items() if value is not None}


LAID: dict[Laid, dict[str, Any]] = {
    "plain": {},
    "by date": {"partition_by": ["is_final", "session_date"]},
    "with vectors": {"deletion_vectors": True},
}
FAILING = {"name": "odd", "fn": "max", "of": "CASE WHEN x = 4 THEN 1 DIV (x - 4) ELSE x END"}
LATER = [{"name": "later_kinds", "fn": "count_distinct", "of": "x"}, {"name": "later_exit", "fn": "last", "of": "x"}]
TRACES = ("event_sessions", "session_updates")


def aggregates(rule: Rule) -> list[dict[str, Any]]:
    match rule.aggregates:
        case "none":
            return []
        case "kinds":
            return [{"name": "kinds", "fn": "count_distinct", "of": "x"}]
        case "near":
            return [
                {"name": "exact", "fn": "sum", "of": "CAST(x AS DECIMAL(9,2))"},
                {"name": "spread", "fn": "stddev", "of": "x"},
                {"name": "about", "fn": "approx_count_distinct", "of": "x"},
                {"name": "middle", "fn": "approx_percentile", "of": "x", "percentile": 0.5},
            ]
    of = "x" if rule.aggregates == "ints" else "v"
    functions = {
        "filled": "count",
        "total": "sum",
        "least": "min",
        "most": "max",
        "mean": "avg",
        "entry": "first",
        "exit": "last",
        "kinds": "count_distinct",
        "which": "set",
    }
    return [
        *({"name": name, "fn": fn, "of": of} for name, fn in functions.items()),
        {"name": "entered", "fn": "first", "of": of, "ignore_nulls": True},
        {"name": "path", "fn": "list", "of": "x", "at_most": 3},
    ]
