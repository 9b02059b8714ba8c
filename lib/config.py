"""The config: what a sessions table is made from, and by which rule. Checked when built, then frozen."""

import hashlib
import json
from collections.abc import Iterable
from itertools import combinations
from typing import Any, Literal, Self

from pydantic import Field, StrictBool, ValidationInfo, field_validator, model_validator

from lib import columns as C
from lib import durations
from lib.config_types import (
    Count,
    Gap,
    Location,
    Section,
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

__all__ = [
    "Aggregate",
    "Config",
    "Limits",
    "Outputs",
    "SessionRule",
    "Sessions",
    "Source",
    "StartTimestamp",
    "StartVersion",
    "Time",
    "Watermark",
    "json_schema",
    "location_kind",
]

FIXED_SESSION_COLUMNS = (*C.BEFORE_AGGREGATES, *C.AFTER_AGGREGATES, C.RUN_ID, C.STATE)
# Of the rejected events and of the change feed: tables that have the key columns, but no aggregates.
FIXED_EVENT_COLUMNS = (
    *(C.EVENT_TIME, C.REASON, C.WATERMARK, C.HORIZON, C.EVENT, C.EVENT_HASH, C.ORDINAL),
    *(C.SOURCE_VERSION, C.RUN_SEQ, C.CHANGE_TYPE, C.COMMIT_VERSION, C.COMMIT_TIMESTAMP),
)


class Source(Section):
    """The table of events."""

    table: Location = Field(description="Path, URL (s3a://…) or catalog name (db.events) of the events table")
    key: tuple[Text, ...] = Field(description="Key columns; [] makes one stream of sessions of the whole table")
    event_time: Text = Field("event_time", description="Column or SQL expression: when the event happened")
    start: Start = Field(
        "earliest",
        description="Where the very first run begins: earliest, latest, {version: N} or {timestamp: T}",
    )
    where: Text | None = Field(None, description="SQL filter: only events for which it is true are read")
    order_by: tuple[Text, ...] = Field((), description="Columns that order events of equal time")
    null_keys: Literal["reject", "group"] = Field(
        "reject", description="reject: a null in a key column makes the event invalid; group: nulls are equal"
    )

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

    @field_validator("partition_by")
    @classmethod
    def _final_rows_lie_apart(cls, columns: tuple[str, ...]) -> tuple[str, ...]:
        if columns not in (("is_final",), ("is_final", "session_date")):
            raise broken_rule("must be [is_final] or [is_final, session_date]", "Use one of these two")
        return columns


class SessionRule(Section):
    """What ends a session."""

    gap: Gap = Field(
        30 * durations.MINUTE,
        description="Inactivity that ends a session",
        json_schema_extra=default_as_text,
    )
    gap_boundary: Literal["joins", "splits"] = Field(
        "joins", description="What an event exactly one gap after the one before does: join it, or start anew"
    )


class Watermark(Section):
    """How the watermark follows the events."""

    from_: Literal["max_event_time", "min_event_time"] = Field(
        "max_event_time", alias="from", description="Event time of a run that the watermark follows"
    )
    per: Literal["table"] = Field("table", description="Scope of a watermark: one for the whole table")
    delay: Wait = Field(
        0,
        description="How far the watermark stays behind that event time",
        json_schema_extra=default_as_text,
    )


class Time(Section):
    """When sessions are complete, and which events are late."""

    watermark: Watermark = Field(default=Watermark(), description="How the watermark follows the events")
    allowed_lateness: Wait = Field(
        24 * durations.HOUR,
        description="How far behind the watermark an event is still accepted",
        json_schema_extra=default_as_text,
    )
    lateness: Literal["event"] = Field("event", description="What is judged late: each event by its own time")
    max_future_skew: Wait = Field(
        durations.HOUR,
        description="Events further ahead of the run's clock are rejected",
        json_schema_extra=default_as_text,
    )


class Aggregate(Section):
    """A column computed over the events of a session."""

    name: Text = Field(description="Name of the column in the sessions table")
    fn: Literal["count", "sum", "min", "max", "avg", "first", "last", "count_distinct", "set"] = Field(
        description="Function; count without `of` counts events, set holds the distinct values"
    )
    of: Text | None = Field(None, description="Column or SQL expression; needed for all functions but count")
    at_most: Count | None = Field(None, description="set only: the largest number of values kept")
    ignore_nulls: StrictBool = Field(False, description="first and last only: skip nulls")

    @model_validator(mode="after")
    def _options_fit_function(self) -> Self:
        if self.name.startswith("_"):
            raise broken_rule("must not have a name that starts with _", "Choose another name", self.name)
        if self.of is None and self.fn != "count":
            raise broken_rule("must say of what", f"Add `of: ` and a column or SQL expression to {self.name}", self.fn)
        if self.at_most is not None and self.fn != "set":
            raise broken_rule("can have at_most only with fn: set", f"Remove it from {self.name}", self.fn)
        if self.ignore_nulls and self.fn not in ("first", "last"):
            raise broken_rule("can have ignore_nulls only with first and last", f"Remove it from {self.name}", self.fn)
        return self

    @property
    def result_columns(self) -> tuple[str, ...]:
        """Columns of the sessions table: a capped set also tells whether it was cut."""
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
    late_events: Literal["quarantine"] = Field("quarantine", description="Late events go to rejected_events")
    invalid_events: Literal["quarantine"] = Field("quarantine", description="Invalid events go to rejected_events")
    corrections: Literal["fail"] = Field("fail", description="Updates and deletes in the source stop the run")
    aggregates: tuple[Aggregate, ...] = Field((), description="Columns computed over the events of a session")
    outputs: Outputs = Field(
        default=Outputs(),
        description="The tables written beside the sessions",
        validate_default=True,
        json_schema_extra=no_default,
    )
    limits: Limits = Field(default=Limits(), description="How much one run takes")
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
        defaults = {name: beside(table, name) for name in Outputs.model_fields}
        return defaults | {name: location for name, location in given.items() if location}

    @model_validator(mode="after")
    def _tables_lie_apart(self) -> Self:
        tables = {"source.table": self.source.table, "sessions.table": self.sessions.table} | {
            f"outputs.{name}": location for name, location in self.outputs
        }
        for (one, here), (other, there) in combinations(tables.items(), 2):
            if overlap(here, there):
                raise broken_rule(
                    f"{one} and {other} must not be the same place, nor one inside the other",
                    f"Set {other} to a folder or name of its own",
                    here if here == there else (here, there),
                )
        return self

    def rule_summary(self) -> dict[str, object]:
        """The fields that decide what a session row is; values as in the file, unset options absent."""
        aggregates = sorted(self.aggregates, key=lambda aggregate: aggregate.name)
        return {
            **self.source.model_dump(mode="json", include={"key", "event_time", "where", "order_by", "null_keys"}),
            **self.session.model_dump(mode="json", include={"gap", "gap_boundary"}),
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
