"""The config: what a sessions table is made from, and by which rule. Checked when built, then frozen."""

import hashlib
import json
from collections.abc import Iterable
from itertools import combinations
from typing import Any, Literal, Self

from pydantic import Field, StrictBool, ValidationInfo, field_validator, model_validator

from lib import columns as C
from lib.config.types import (
    Count,
    DynamicGap,
    File,
    Gap,
    Length,
    Location,
    Scope,
    Section,
    SessionGap,
    SparkValue,
    Start,
    StartTimestamp,
    StartVersion,
    Text,
    Wait,
    beside,
    broken_rule,
    default_as_text,
    location_kind,
    no_default,
    overlap,
)
from lib.time import durations

__all__ = [
    "Aggregate",
    "Config",
    "Dedupe",
    "DynamicGap",
    "IdleTimeout",
    "Limits",
    "Outputs",
    "SessionRule",
    "Sessions",
    "Sliding",
    "Source",
    "StartTimestamp",
    "StartVersion",
    "Time",
    "Watermark",
    "json_schema",
    "location_kind",
]

FIXED_SESSION_COLUMNS = (*C.BEFORE_AGGREGATES, *C.AFTER_AGGREGATES, C.RUN_ID, C.STATE)
FIXED_WINDOW_COLUMNS = (*C.BEFORE_WINDOW_AGGREGATES, C.IS_FINAL, C.RUN_ID, C.STATE)
# Of the rejected events and of the change feed: tables that have the key columns, but no aggregates.
FIXED_EVENT_COLUMNS = (
    *(C.EVENT_TIME, C.REASON, C.WATERMARK, C.HORIZON, C.EVENT, C.EVENT_HASH, C.ORDINAL),
    *(C.SOURCE_VERSION, C.RUN_SEQ, C.CHANGE_TYPE, C.COMMIT_VERSION, C.COMMIT_TIMESTAMP),
)


class Dedupe(Section):
    """Which events are copies of an accepted one."""

    by: tuple[Text, ...] = Field(min_length=1, description="Columns that, with the key, identify an event")
    within: Gap = Field(description="How far apart in event time copies may lie, inclusive")


class Source(Section):
    """The table of events."""

    table: Location = Field(description="Path, URL (s3a://…) or catalog name (db.events) of the events table")
    key: tuple[Text, ...] = Field(description="Key columns; [] makes one stream of sessions of the whole table")
    event_time: Text = Field("event_time", description="Column or SQL expression: when the event happened")
    prune_by: Text | None = Field(
        None, description="Column that grows with event_time, for file pruning where event_time is an expression"
    )
    start: Start = Field(
        "earliest",
        description="Where the very first run begins: earliest, latest, {version: N} or {timestamp: T}",
    )
    where: Text | None = Field(None, description="SQL filter: only events for which it is true are read")
    order_by: tuple[Text, ...] = Field((), description="Columns that order events of equal time")
    null_keys: Literal["reject", "group"] = Field(
        "reject", description="reject: a null in a key column makes the event invalid; group: nulls are equal"
    )
    dedupe: Dedupe | None = Field(None, description="Reject copies of accepted events")

    @field_validator("key")
    @classmethod
    def _key_columns_differ_from_all_others(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if repeated := _first_repeated(key):
            raise broken_rule("must name each column once", "Remove the second one", repeated)
        if taken := _first_repeated((*FIXED_SESSION_COLUMNS, *FIXED_EVENT_COLUMNS, *key)):
            raise broken_rule("must not name a column that the written tables have of their own", "Rename it", taken)
        return key


class Sessions(Section):
    """The table of sessions."""

    table: Location = Field(description="Path, URL or catalog name of the sessions table")
    partition_by: tuple[Literal["is_final", "session_date"], ...] = Field(
        ("is_final",), description="[is_final], or [is_final, session_date] for tables of terabytes"
    )
    deletion_vectors: StrictBool = Field(False, description="Write fewer bytes, which some readers cannot open")
    change_feed: StrictBool = Field(True, description="Record row changes; consumers of `changes` need it")
    commit: Literal["merge", "replace"] = Field(
        "merge", description="How a run writes: MERGE what changes, or replace all live rows, mostly in less time"
    )

    @field_validator("partition_by")
    @classmethod
    def _final_rows_lie_apart(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        if columns not in (("is_final",), ("is_final", "session_date")):
            raise broken_rule("must be [is_final] or [is_final, session_date]", "Use one of these two")
        return columns


class SessionRule(Section):
    """What ends a session."""

    gap: SessionGap = Field(
        30 * durations.MINUTE,
        description="Inactivity that ends a session: a duration, or {expr: SQL interval of each event, at_least: …}",
        json_schema_extra=default_as_text,
    )
    gap_boundary: Literal["joins", "splits"] = Field(
        "joins", description="What an event exactly one gap after the one before does: join it, or start anew"
    )
    max_duration: Gap | None = Field(
        None, description="The longest a session lasts, inclusive: an event later than that starts the next one"
    )


class Watermark(Section):
    """How the watermark follows the events."""

    from_: Literal["max_event_time", "min_event_time"] = Field(
        "max_event_time", alias="from", description="Event time of a run that the watermark follows"
    )
    per: Scope = Field("table", description="Scope of a watermark: table, key, or a list of some of the key columns")
    delay: Wait = Field(
        0,
        description="How far the watermark stays behind that event time",
        json_schema_extra=default_as_text,
    )


class IdleTimeout(Section):
    """Closes sessions that have had no new event for a while."""

    after: Gap = Field(description="Closes a session with no new event for longer than this")
    clock: Literal["event_time", "processing_time"] = Field(
        "event_time", description="event_time: watermark - session_end; processing_time: since the last arrival"
    )


class Time(Section):
    """When sessions are complete, and which events are late."""

    watermark: Watermark = Field(default=Watermark(), description="How the watermark follows the events")
    allowed_lateness: Wait = Field(
        24 * durations.HOUR,
        description="How far behind the watermark an event is still accepted",
        json_schema_extra=default_as_text,
    )
    lateness: Literal["event", "session"] = Field(
        "event", description="What is judged late: each event by its own time, or the session it would be part of"
    )
    revive: StrictBool = Field(False, description="With lateness: session, events may also extend final sessions")
    max_future_skew: Wait = Field(
        durations.HOUR,
        description="Events further ahead of the run's clock are rejected",
        json_schema_extra=default_as_text,
    )
    idle_timeout: IdleTimeout | None = Field(None, description="Closes sessions that have had no new event for a while")

    @model_validator(mode="after")
    def _scopes_come_to_an_end(self) -> Self:
        if self.revive and self.lateness != "session":
            raise broken_rule("can have revive only with lateness: session", "Remove time.revive")
        idle = self.idle_timeout
        if self.watermark.per == "key" and (idle is None or idle.clock != "processing_time"):
            raise broken_rule(
                "must have an idle_timeout with clock: processing_time where watermark.per is key: "
                "a key that never returns would stay live forever",
                "Add idle_timeout: {after: 7d, clock: processing_time}",
            )
        return self


Fn = Literal[
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "stddev",
    "first",
    "last",
    "count_distinct",
    "set",
    "list",
    "approx_count_distinct",
    "approx_percentile",
    "bool_or",
    "bool_and",
    "custom",
]
FUNCTIONS_WITH = {
    "at_most": ("set", "list"),
    "ignore_nulls": ("first", "last", "custom"),
    "percentile": ("approx_percentile",),
    **dict.fromkeys(("initial", "update", "merge", "finish"), ("custom",)),
}
NEEDED_BY = {"approx_percentile": ("percentile",), "custom": ("initial", "update", "merge")}


class Aggregate(Section):
    """A column computed over the events of a session, or from its other columns."""

    name: Text = Field(description="Name of the column in the sessions table")
    fn: Fn | None = Field(
        None,
        description="Function; count without `of` counts events, set holds the distinct values in ascending order and "
        "list all values in time order (both without nulls), stddev is that of a sample: null for a single value",
    )
    of: Text | None = Field(None, description="Column or SQL expression; needed for all functions but count")
    sql: Text | None = Field(
        None,
        description="Instead of fn: SQL expression over the finished session: key columns, session_start, "
        "session_end, expires_at, duration_seconds, event_count and the other aggregates, those with sql only if "
        "they come before",
    )
    at_most: Length | None = Field(
        None,
        description="set and list only: the largest number of values kept, the smallest of a set and the earliest of "
        "a list; the column <name>_truncated tells whether there were more",
    )
    ignore_nulls: StrictBool = Field(False, description="first, last and custom only: skip nulls")
    percentile: float | None = Field(
        None, ge=0, le=1, description="approx_percentile only, and needed there: 0.5 is the median, 0.95 the 95th"
    )
    initial: Text | None = Field(
        None, description="custom only: SQL of the accumulator before any event; its type is the accumulator's"
    )
    update: Text | None = Field(
        None,
        description="custom only: SQL of the accumulator after an event, from `acc` and `value`; events come in order "
        "of time, order_by and value, nulls included unless ignore_nulls",
    )
    merge: Text | None = Field(
        None,
        description="custom only: SQL that joins two accumulators, `left` and `right`; the first event of left is the "
        "earlier one, but times may overlap. However events are split, merging must give what updating gives",
    )
    finish: Text | None = Field(None, description="custom only: SQL of the result, from `acc`; default: acc")

    @field_validator("percentile", mode="before")
    @classmethod
    def _percentile_is_a_share(cls, value: object) -> object:
        try:
            share = None if isinstance(value, bool) else float(str(value))
        except ValueError:
            share = None
        if value is not None and (share is None or not 0 <= share <= 1):
            raise broken_rule("must be a number from 0 to 1", "Write 0.95 for the 95th percentile", value)
        return share

    @model_validator(mode="after")
    def _options_fit_function(self) -> Self:
        if self.name.startswith("_"):
            raise broken_rule("must not have a name that starts with _", "Choose another name", self.name)
        if self.fn is None and self.sql is None:
            raise broken_rule("must have fn or sql", f"Add `fn: ` and a function to {self.name}", self.name)
        given = {name for name, value in self if value is not None and value is not False}
        if self.sql is not None and (others := sorted(given - {"name", "sql"})):
            raise broken_rule("must have nothing beside name and sql", f"Remove {', '.join(others)}", self.name)
        if self.sql is None and self.of is None and self.fn != "count":
            raise broken_rule("must say of what", f"Add `of: ` and a column or SQL expression to {self.name}", self.fn)
        for option, functions in FUNCTIONS_WITH.items():
            if option in given and self.fn not in functions:
                whose = " and ".join(functions)
                raise broken_rule(f"can have {option} only with {whose}", f"Remove it from {self.name}", self.fn)
        for option in NEEDED_BY.get(self.fn or "", ()):
            if option not in given:
                raise broken_rule(f"must have {option}", f"Add `{option}: ` to {self.name}", self.fn)
        return self

    @property
    def result_columns(self) -> tuple[str, ...]:
        """Columns of the sessions table: a capped set or list also tells whether it was cut."""
        return (self.name,) if self.at_most is None else (self.name, f"{self.name}_truncated")


class Outputs(Section):
    """The tables written beside the sessions."""

    rejected_events: Location = Field(
        "",
        description="Late and invalid events; default: beside the sessions table",
        json_schema_extra=no_default,
    )
    runs: Location = Field(
        "", description="One row per run; default: beside the sessions table", json_schema_extra=no_default
    )
    session_updates: Location | None = Field(
        None, description="One row per event with the running aggregates of its session"
    )
    event_sessions: Location | None = Field(None, description="Every event with its session_id")


class Sliding(Section):
    """Sliding windows of the same events, which `sessionizer slide` makes."""

    table: Location = Field(description="Path, URL or catalog name of the windows table")
    time_difference: Gap = Field(
        10 * durations.MINUTE,
        description="From the start of a window to its end, both inclusive: how far apart its events may lie",
        json_schema_extra=default_as_text,
    )
    grace: Wait = Field(
        durations.HOUR,
        description="How far the watermark may be past the end of a window that still takes events",
        json_schema_extra=default_as_text,
    )
    time_unit: Gap = Field(
        durations.MILLISECOND,
        description="Event times are truncated to it; the right window of an event starts one unit after it",
        json_schema_extra=default_as_text,
    )
    lateness: Literal["event", "session"] = Field(
        "event",
        description="event: an event is late by its own time; session: it enters the windows that are still open, and "
        "is late if there is none (Kafka)",
    )
    aggregates: tuple[Aggregate, ...] = Field((), description="Columns computed over the events of a window")
    rejected_events: Location = Field(
        "",
        description="Late and invalid events of the windows; default: beside the windows table",
        json_schema_extra=no_default,
        validate_default=True,
    )

    @field_validator("rejected_events", mode="before")
    @classmethod
    def _default_to_beside_windows(cls, location: object, info: ValidationInfo) -> object:
        table = info.data.get("table")
        return beside(table, "rejected_window_events") if table and not location else location

    @model_validator(mode="after")
    def _windows_start_on_whole_units(self) -> Self:
        if self.time_difference % self.time_unit:
            raise broken_rule(
                "must have a time_difference of whole time_units",
                "Choose a time_unit such as 1ms, or 1us for times of microseconds",
                durations.format_duration(self.time_unit),
            )
        return self


class Limits(Section):
    """How much one run takes."""

    max_versions_per_run: Count | None = Field(None, description="Source versions a run reads at most")
    max_events_per_run: Count | None = Field(
        None, description="Events after which a run takes no further source version"
    )


class Config(Section):
    """Config of one sessions table."""

    source: Source = Field(description="The table of events")
    sessions: Sessions = Field(description="The table of sessions")
    session: SessionRule = Field(default=SessionRule(), description="What ends a session")
    time: Time = Field(default=Time(), description="When sessions are complete, and which events are late")
    late_events: Literal["quarantine", "drop", "amend", "separate", "fail"] = Field(
        "quarantine",
        description="quarantine: kept in rejected_events; drop: only key, time and hash kept; amend: accepted, final "
        "sessions are recomputed; separate: sessions of their own, flagged is_late; fail: the run stops",
    )
    invalid_events: Literal["quarantine", "drop", "fail"] = Field(
        "quarantine",
        description="quarantine: kept in rejected_events; drop: only key, time and hash kept; fail: the run stops",
    )
    corrections: Literal["apply", "quarantine", "fail"] = Field(
        "apply",
        description="Updates and deletes in the source: apply recomputes the sessions they touch; quarantine records "
        "them in rejected_events; fail stops the run",
    )
    aggregates: tuple[Aggregate, ...] = Field((), description="Columns computed over the events of a session")
    outputs: Outputs = Field(
        default=Outputs(),
        description="The tables written beside the sessions",
        validate_default=True,
        json_schema_extra=no_default,
    )
    limits: Limits = Field(default=Limits(), description="How much one run takes")
    sliding: Sliding | None = Field(None, description="Sliding windows of the same events, for `slide`")
    expectations: File | None = Field(
        None, description="A Great Expectations suite, JSON or YAML, that sessions must meet before a run writes them"
    )
    spark: dict[str, SparkValue] = Field({}, description="Settings passed to the SparkSession as they are")

    @field_validator("aggregates")
    @classmethod
    def _columns_differ(cls, aggregates: tuple[Aggregate, ...], info: ValidationInfo) -> tuple[Aggregate, ...]:
        source = info.data.get("source")
        taken = (*FIXED_SESSION_COLUMNS, *(source.key if source else ()))
        if repeated := _first_repeated((*taken, *(name for a in aggregates for name in a.result_columns))):
            raise broken_rule(
                "must have names that nothing else in the sessions table has", "Choose another name", repeated
            )
        return aggregates

    @field_validator("outputs", mode="before")
    @classmethod
    def _default_to_beside_sessions(cls, outputs: object, info: ValidationInfo) -> object:
        given = outputs.model_dump() if isinstance(outputs, Outputs) else outputs
        if not isinstance(given, dict) or "sessions" not in info.data:
            return outputs
        table = info.data["sessions"].table
        defaults = {name: beside(table, name) for name in ("rejected_events", "runs")}
        return defaults | {name: location for name, location in given.items() if location}

    @model_validator(mode="after")
    def _tables_lie_apart(self) -> Self:
        tables = {"source.table": self.source.table, "sessions.table": self.sessions.table} | {
            f"outputs.{name}": location for name, location in self.outputs if location is not None
        }
        if self.sliding is not None:
            tables |= {f"sliding.{name}": getattr(self.sliding, name) for name in ("table", "rejected_events")}
        for (one, here), (other, there) in combinations(tables.items(), 2):
            if overlap(here, there):
                raise broken_rule(
                    f"{one} and {other} must not be the same place, nor one inside the other",
                    f"Set {other} to a folder or name of its own",
                    here if here == there else (here, there),
                )
        return self

    @model_validator(mode="after")
    def _scope_is_part_of_the_key(self) -> Self:
        per, key = self.time.watermark.per, {name.lower() for name in self.source.key}
        if isinstance(per, str):
            if per == "key" and not key:
                raise broken_rule("time.watermark.per must be table where source.key is []", "Remove it", per)
            return self
        if not per:
            raise broken_rule("time.watermark.per must name a key column, or be table or key", "Write per: table")
        if other := next((name for name in per if name.lower() not in key), None):
            raise broken_rule(
                "time.watermark.per must name columns of source.key: one session could else have two watermarks",
                f"Use some of: {', '.join(self.source.key)}",
                other,
            )
        return self

    @model_validator(mode="after")
    def _windows_go_with_the_rest(self) -> Self:
        if self.sliding is None:
            return self
        results = (name for a in self.sliding.aggregates for name in a.result_columns)
        if repeated := _first_repeated((*FIXED_WINDOW_COLUMNS, *self.source.key, *results)):
            raise broken_rule(
                "sliding.aggregates must have names that nothing else in the windows table has, and source.key names "
                "that it has not",
                "Choose another name",
                repeated,
            )
        for holds, what, why, remedy in (
            (
                self.late_events == "separate",
                "late_events: separate",
                "an event that is too late for its windows has none of its own",
                "Use quarantine, drop, amend or fail",
            ),
            (
                self.corrections == "quarantine",
                "corrections: quarantine",
                "windows are computed from the source as it is",
                "Use apply or fail",
            ),
            (
                self.time.watermark.per == "key",
                "time.watermark.per: key",
                "windows keep the watermarks of up to 1,000 scopes",
                "Use table, or a list of key columns",
            ),
            (
                self.source.dedupe is not None,
                "source.dedupe",
                "windows count every event",
                "Make the source free of copies",
            ),
        ):
            if holds:
                rule = f"{what} does not go with sliding: {why}"
                raise broken_rule(rule, f"{remedy}, or write a config of its own for `slide`", "sliding")
        return self

    def rule_summary(self) -> dict[str, object]:
        """The fields that decide what a session row is; values as in the file, unset options absent."""
        aggregates = sorted(self.aggregates, key=lambda aggregate: aggregate.name)
        return {
            **self.source.model_dump(mode="json", include={"key", "event_time", "where", "order_by", "null_keys"}),
            **self.session.model_dump(mode="json", exclude_none=True),
            **({"dedupe": self.source.dedupe.model_dump(mode="json")} if self.source.dedupe else {}),
            **({} if self.time.watermark.per == "table" else {"watermark_per": self.time.watermark.per}),
            "aggregates": [a.model_dump(mode="json", exclude_defaults=True) for a in aggregates],
        }

    def fingerprint(self) -> str:
        """SHA-256 of `rule_summary`: sessions of different fingerprints do not belong in one table."""
        canonical = json.dumps(self.rule_summary(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def _first_repeated(names: Iterable[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the config file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
