"""What the tables promise, as expectations that Great Expectations can check: plain data, no library needed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from sessionizer.jobs.config_file import plain_yaml
from sessionizer.lib import columns as C
from sessionizer.lib.admission.verdicts import LATE, REASONS
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError

UNEXPECTED_ROWS = "unexpected_rows_expectation"
MOSTLY = 0.95  # share of source rows that must have a key and a time: single ones that have not are rejected events


@dataclass(frozen=True)
class Expectation:
    """One of GE's expectations, by its snake_case type, and why it must hold."""

    type: str
    kwargs: Mapping[str, Any]
    why: str


Suite = Sequence[Expectation]


def sessions_suite(config: Config) -> Suite:
    """Of the sessions table."""
    keys = () if config.source.null_keys == "group" else config.source.key
    longest = config.session.max_duration
    between = {} if longest is None else {"max_value": longest / 1e6}
    why = "session.max_duration" if between else "no session ends before it starts"
    named = (*keys, C.SESSION_ID, C.SESSION_START, C.EXPIRES_AT)
    return [
        *[_not_null(name, "whose session it is") for name in named],
        _values("be_unique", C.SESSION_ID, "a session is one row"),
        _at_least(C.SESSION_END, C.SESSION_START, "no session ends before it starts"),
        _at_least(C.EXPIRES_AT, C.SESSION_END, "a session reaches as far as its last event at least"),
        _values("be_between", C.DURATION_SECONDS, why, min_value=0, **between),
        _values("be_between", C.EVENT_COUNT, "no session without events", min_value=1),
        _values("be_in_set", C.STATUS, "the states of a session", value_set=["open", "closed", "final"]),
        _no_rows(f"{C.IS_FINAL} <> ({C.STATUS} = 'final')", "final rows, and no others, lie in the final partition"),
        _no_rows(f"({C.END_REASON} IS NULL) <> ({C.STATUS} = 'open')", "a session that has ended says why"),
        _all_there(C.SESSION_END, C.DURATION_SECONDS, C.EVENT_COUNT, C.STATUS, C.IS_FINAL, C.IS_LATE, C.SESSION_DATE),
    ]


def windows_suite(config: Config) -> Suite:
    """Of the windows table."""
    sliding = config.sliding
    assert sliding is not None
    start, end, last = (f"unix_micros({name})" for name in (C.WINDOW_START, C.WINDOW_END, C.LAST_EVENT_TIME))
    keys = () if config.source.null_keys == "group" else config.source.key
    identity = ", ".join(C.quoted(name) for name in (*config.source.key, C.WINDOW_START))
    return [
        *[_not_null(name, "whose window it is") for name in (*keys, C.WINDOW_START, C.WINDOW_END)],
        _not_all(f"{identity}, count(*) AS rows", "count(*) > 1", "a window is one row", by=identity),
        _no_rows(f"{end} - {start} <> {sliding.time_difference}", "sliding.time_difference"),
        _no_rows(f"{start} % {sliding.time_unit} <> 0", "windows start at whole time units"),
        _no_rows(f"{last} NOT BETWEEN {start} AND {end}", "the last event of a window lies in it"),
        _values("be_between", C.EVENT_COUNT, "no window without events", min_value=1),
        _all_there(C.LAST_EVENT_TIME, C.EVENT_COUNT, C.IS_FINAL),
    ]


def rejected_events_suite(time_unit: int) -> Suite:
    """Of rejected events; the rule truncates times to this unit before it judges them."""
    time = f"unix_micros({C.EVENT_TIME})"
    judged = f"{time} - pmod({time}, {time_unit})"
    return [
        *[_values("not_be_null", name, "what was rejected, when") for name in (C.EVENT_HASH, C.REASON)],
        _values("be_in_set", C.REASON, "the reasons there are", value_set=[*REASONS]),
        _no_rows(
            f"{C.REASON} = '{LATE}' AND {judged} >= unix_micros({C.HORIZON})",
            "only what is older than the horizon is late",
        ),
    ]


def events_suite(config: Config) -> Suite:
    """Of the source, by its keys and event_time: almost every event has a key and a time."""
    keys = () if config.source.null_keys == "group" else config.source.key
    return [_values("not_be_null", name, "or no session takes it", mostly=MOSTLY) for name in (*keys, C.EVENT_TIME)]


def runs_suite(most_late: float, oldest_watermark: int | None) -> Suite:
    """Of the ledger. most_late: share of all events; oldest_watermark: microseconds, None: however old."""
    late = f"sum(late) > {most_late} * sum(events_read)"
    suite = [
        _values("not_be_null", C.RUN_ID, "which run it was"),
        _values("be_unique", C.RUN_SEQ, "a run is one row"),
        _no_rows("events_read <> accepted + late + invalid + duplicates", "every event read is accounted for"),
        _not_all("sum(late) AS late, sum(events_read) AS events_read", late, f"at most {most_late:.1%} of events late"),
    ]
    if oldest_watermark is not None:
        last = "max_by(watermark_after, run_seq)"  # a rebuild may have set it back
        stale = f"count(*) > 0 AND ({last} IS NULL OR unix_micros({last}) < {oldest_watermark})"
        suite.append(_not_all(f"{last} AS watermark", stale, "the watermark is fresh"))
    return suite


def read_suite(file: Path) -> Suite:
    """A suite of one's own: JSON as Great Expectations writes it, or the same as YAML.

    Errors: ConfigError where there is no such file, or something else in it.
    """
    form = "write it as {expectations: [{type: expect_column_values_to_not_be_null, kwargs: {column: user_id}}]}"
    try:
        found = plain_yaml(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            "the file of expectations cannot be read", value=str(file), remedy=str(error.strerror)
        ) from error
    except (yaml.YAMLError, ValueError) as error:
        raise ConfigError(f"{file} is neither JSON nor YAML", remedy=form) from error
    listed = found.get("expectations") if isinstance(found, dict) else None
    if not isinstance(listed, list) or not listed:
        raise ConfigError(f"{file} must hold a list of expectations", remedy=form)
    return [_expectation(item, file, form) for item in listed]


def _expectation(item: object, file: Path, form: str) -> Expectation:
    if not (isinstance(item, dict) and isinstance(item.get("type"), str) and isinstance(item.get("kwargs", {}), dict)):
        raise ConfigError(f"{file}: each expectation has a type and kwargs", value=item, remedy=form)
    notes = (item.get("meta") or {}).get("notes", "")
    return Expectation(item["type"], item.get("kwargs", {}), str(notes))


def _values(must: str, column: str, why: str, **limits: Any) -> Expectation:
    return Expectation(f"expect_column_values_to_{must}", {"column": column, **limits}, why)


def _not_null(name: str, why: str) -> Expectation:
    """GE finds a column by a name with dots or spaces only where nothing tells its rows apart."""
    return _values("not_be_null", name, why) if name.isidentifier() else _no_rows(f"{C.quoted(name)} IS NULL", why)


def _at_least(name: str, other: str, why: str) -> Expectation:
    kwargs = {"column_A": name, "column_B": other, "or_equal": True}
    return Expectation("expect_column_pair_values_a_to_be_greater_than_b", kwargs, why)


def _no_rows(condition: str, why: str) -> Expectation:
    return Expectation(UNEXPECTED_ROWS, {"unexpected_rows_query": f"SELECT * FROM {{batch}} WHERE {condition}"}, why)


def _all_there(*names: str) -> Expectation:
    """Of columns that other expectations pass over where they are null, as comparisons and GE do."""
    return _no_rows(" OR ".join(f"{name} IS NULL" for name in names), "no row lacks what the product gives to each")


def _not_all(figures: str, condition: str, why: str, by: str = "") -> Expectation:
    query = f"SELECT {figures} FROM {{batch}}{f' GROUP BY {by}' if by else ''} HAVING {condition}"
    return Expectation(UNEXPECTED_ROWS, {"unexpected_rows_query": query}, why)
