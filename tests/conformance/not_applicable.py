"""All that other systems mean otherwise, each with its reason: no case is refused for any other."""

from collections.abc import Callable
from typing import Any

from tests.conformance.cases import Case

Applies = Callable[[Case], bool]


def _kind(system: str, *kinds: str) -> Applies:
    return lambda case: case.system == system and case.kind in kinds


def _config(system: str, field: str, holds: Callable[[Any], bool] = lambda value: True) -> Applies:
    return lambda case: case.system == system and field in case.config and holds(case.config[field])


def _error(system: str, holds: Callable[[Case], bool]) -> Applies:
    return lambda case: case.system == system and "expected_error" in case.body and holds(case)


def _streams_without_key(case: Case) -> bool:
    return "batches" in case.body and case.config.get("group_by") == ["session"]


def _assigner(case: Case) -> bool:
    return "session" not in str(case.config.get("assigner", "session")).lower()


def _no_data(case: Case) -> bool:
    """Whether a case says how records are made up, and names none."""
    data = ("records", "batches", "rows", "ranges", "steps", "checks", "ops")
    made_up = "generator" in case.config or case.kind == "property"
    return made_up and not any(isinstance(case.body.get(name), list) for name in data)


def _early(trigger: Any) -> bool:
    """Whether a Flink trigger fires before the session ends."""
    return not str(trigger).startswith(("event time", "processing time"))


def _other_zone(zone: Any) -> bool:
    return zone not in ("UTC", "Etc/UTC", "Z")


def _checks(kind: str, field: str) -> Applies:
    return lambda case: case.kind == kind and any(field in check for check in case.body.get("checks", []))


# What an adapter finds out on its way.
RANDOM = "no data: what holds for any events is in tests/properties and tests/machine"
NO_SESSIONS = "windows that are no sessions, nor sliding ones of KIP-450"
NO_AGGREGATE = "an aggregate that sessions do not have by itself; `fn: custom` makes others"
NO_SKETCHES = "a percentile, whose sketch Spark 4.0 does not have"
OWN_RANGE = "lateness by the record's own range, and a gap per record: here by the event's time, or by its session"
ONLY_WAITS = "allowed lateness that delays the end and lets no late record in"
BACKWARD = "a range that ends before it starts: no event reaches back"
VALID_HERE = "an error there for what is valid here"
PURGES = "a trigger that purges: a late event emits its whole session again, not the new part"
FAR_TIMES = "times thousands of years from now, which no TIMESTAMP holds"
NULL_KEY = "an error there: a null key is an open bound in look-ups"
NOT_ASKED = "nothing is looked up"
ITERATOR = "the life of an iterator over a store in memory: a table is read at one version"
DROPS = "the store's own retention: a table drops nothing that is written to it, look-ups leave it out"
WINDOWS_THERE = "sliding windows are a table of windows, not of sessions"
LOST_UNEMITTED = "windows that Kafka's store has forgotten before it could emit them: a table keeps them"

TABLE: tuple[tuple[Applies, str], ...] = (
    # Emission that depends on how often somebody looks, not on events and watermark.
    (_config("flink", "trigger", _early), "early results by a trigger: a session is emitted when it has ended"),
    (_kind("beam", "trigger_java"), "panes by a trigger that the test moves by hand"),
    (_kind("beam", "transcript"), "panes by triggers, early and late: a session is emitted when it has ended"),
    (
        _config("beam", "trigger", lambda trigger: not str(trigger).startswith("default")),
        "panes by triggers, early and late: a session is emitted when it has ended",
    ),
    (
        lambda case: case.kind == "trigger" and str(case.config.get("accumulation", "")).startswith("discard"),
        "discarding panes: each result holds the whole session",
    ),
    (_kind("kafka", "suppress"), "a buffer behind any table of windows: here rows turn final by the watermark alone"),
    # Other meanings.
    (_config("flink", "input"), "retraction: a delete recomputes its session here, in Flink it keeps its extent"),
    (_checks("config", "retention_ms"), "a least retention: here it only hides, whatever is computed"),
    (_checks("window", "other_type"), "windows of different types: there are no types of windows"),
    (lambda case: case.kind == "config" and "upstream" in case.config, "a wait over several aggregations"),
    (lambda case: _other_zone(case.config.get("time_zone", "UTC")), "days of another time zone: all times are UTC"),
    (lambda case: case.kind == "window" and case.config.get("window") == "hopping", "hopping windows"),
    (_assigner, NO_SESSIONS),
    (_no_data, RANDOM),
    (_config("spark", "nested"), "a session window over another window function in one query"),
    # Errors that are limits of the other system.
    (_error("spark", lambda case: case.config.get("mode") == "update"), "an error there: updates are a read here"),
    (_error("spark", _streams_without_key), "an error there: sessions without a key (`key: []`) are allowed here"),
    (
        _error("spark", lambda case: "precondition" in case.config),
        "an error there: the order of rows means nothing here",
    ),
    # Insides of the other system.
    (_kind("spark", "merge_sort"), "the order in which an iterator reads state and input: order means nothing here"),
    (_kind("spark", "schema"), "the schema of a window column: sessions have columns of their own"),
)


REASONS = {why for _, why in TABLE} | {
    text for name, text in globals().items() if name.isupper() and isinstance(text, str)
}


def reason(case: Case) -> str | None:
    """Why a case is not applicable; None: it is."""
    return next((why for applies, why in TABLE if applies(case)), None)
