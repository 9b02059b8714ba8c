"""The one table of what other systems have and this product does not, each with its reason."""

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


def _early(trigger: Any) -> bool:
    """Whether a Flink trigger fires before the session ends."""
    return not str(trigger).startswith(("event time", "processing time"))


def _other_zone(zone: Any) -> bool:
    return zone not in ("UTC", "Etc/UTC", "Z")


def _checks(kind: str, field: str) -> Applies:
    return lambda case: case.kind == kind and any(field in check for check in case.body.get("checks", []))


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
    (_checks("config", "retention_ms"), "retention of a store: final sessions are kept"),
    (_checks("window", "other_type"), "windows of different types: there are no types of windows"),
    (lambda case: case.kind == "config" and "upstream" in case.config, "a wait over several aggregations"),
    (lambda case: _other_zone(case.config.get("time_zone", "UTC")), "days of another time zone: all times are UTC"),
    (lambda case: case.kind == "window" and case.config.get("window") == "hopping", "hopping windows"),
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


def reason(case: Case) -> str | None:
    """Why a case is not applicable; None: it is."""
    return next((why for applies, why in TABLE if applies(case)), None)
