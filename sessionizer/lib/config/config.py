"""The whole config: how its parts go together. Checked when built, then frozen."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Literal, Self

from pydantic import (
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)
from pydantic_core import PydanticCustomError

from sessionizer.lib import columns as C
from sessionizer.lib.config.aggregate import Aggregate
from sessionizer.lib.config.corrections import Corrections
from sessionizer.lib.config.outputs import Limits, Outputs
from sessionizer.lib.config.sessions import SessionRule, Sessions
from sessionizer.lib.config.sliding import BESIDE, Sliding
from sessionizer.lib.config.source import EventSource, Source
from sessionizer.lib.config.sources import (
    Events,
    NamedSource,
    as_one,
    check_together,
    field_of,
    locations_of,
    mappings_of,
    source_or_sources,
    together,
    told_of,
)
from sessionizer.lib.config.time import Time
from sessionizer.lib.config.types import File, Section, SparkValue, beside, broken_rule, first_repeated, overlap


class Config(Section):
    """Config of one sessions table."""

    model_config = ConfigDict(json_schema_extra=source_or_sources)

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
    corrections: Corrections = Field(
        "apply",
        description="Updates and deletes in the source: apply recomputes the sessions they touch; quarantine records "
        "them in rejected_events; fail stops the run; or {deletes, updates, erase_when}, each by itself",
    )
    aggregates: tuple[Aggregate, ...] = Field((), description="Columns computed over the events of a session")
    outputs: Outputs = Field(
        default_factory=Outputs, validate_default=True, description="The tables written beside the sessions"
    )
    limits: Limits = Field(default=Limits(), description="How much one run takes")
    sliding: Sliding | None = Field(None, description="Sliding windows of the same events, for `slide`")
    expectations: File | None = Field(
        None, description="A Great Expectations suite, JSON or YAML, that sessions must meet before a run writes them"
    )
    spark: dict[str, SparkValue] = Field({}, description="Settings passed to the SparkSession as they are")
    sources: tuple[NamedSource, ...] = Field(
        (), description="In place of source: several tables of events, whose events make one session together"
    )
    events: Events = Field(default=Events(), description="What the events of several sources have alike")

    @field_validator("aggregates")
    @classmethod
    def _columns_differ(cls, aggregates: tuple[Aggregate, ...], info: ValidationInfo) -> tuple[Aggregate, ...]:
        source = info.data.get("source")
        taken = (*C.FIXED_SESSION_COLUMNS, *(source.key if source else ()))
        if repeated := first_repeated((*taken, *(name for a in aggregates for name in a.result_columns))):
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

    @field_validator("sources")
    @classmethod
    def _sources_go_together(cls, sources: tuple[NamedSource, ...]) -> tuple[NamedSource, ...]:
        if sources:
            check_together(sources)
        return sources

    @model_validator(mode="before")
    @classmethod
    def _several_are_as_one(cls, given: object, info: ValidationInfo) -> object:
        """Of several sources, `source` is what an event of any of them is."""
        return as_one(given, info.context) if isinstance(given, dict) and given.get("sources") else given

    @model_serializer(mode="wrap")
    def _as_in_the_file(self, dumped: SerializerFunctionWrapHandler) -> dict[str, Any]:
        told: dict[str, Any] = dumped(self)
        return {name: value for name, value in told.items() if name != "source"} if self.sources else told

    @model_validator(mode="after")
    def _what_several_have_alike_is_of_several(self) -> Self:
        if not self.sources and self.events != Events():
            rule = "events says what several sources have alike, and there is one"
            raise broken_rule(rule, "Write it into source", sorted(self.events.model_fields_set))
        return self

    @property
    def each(self) -> tuple[EventSource, ...]:
        """The sources, in the order of their names, or the only one."""
        return tuple(sorted(self.sources, key=lambda of: of.label)) if self.sources else (self.source,)

    def of(self, name: str) -> EventSource:
        """The source of this name; "": the only one."""
        return next(source for source in self.each if source.label == name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of several sources, in order; of one alone, none."""
        return tuple(source.label for source in self.each if source.label)

    @property
    def tables(self) -> dict[str, str]:
        """Where its tables lie, by the keys that name them."""
        sources = {field_of(source): source.table for source in self.each} | mappings_of(self.each)
        outputs = {f"outputs.{name}": location for name, location in self.outputs if location is not None}
        tables = sources | {"sessions.table": self.sessions.table} | outputs
        if self.sliding is not None:
            tables |= {f"sliding.{name}": getattr(self.sliding, name) for name in ("table", *BESIDE)}
        return tables

    @model_validator(mode="after")
    def _tables_lie_apart(self) -> Self:
        for (one, here), (other, there) in combinations(self.tables.items(), 2):
            is_shared = here == there and {one, other} <= mappings_of(self.each).keys()
            if overlap(here, there) and not is_shared:
                raise broken_rule(
                    f"{one} and {other} must not be the same place, nor one inside the other",
                    f"Set {other} to a folder or name of its own",
                    here if here == there else (here, there),
                )
        return self

    @model_validator(mode="after")
    def _scope_is_part_of_the_key(self) -> Self:
        per, key = self.source.scope(self.time.watermark.per), {name.lower() for name in self.source.key}
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
    def _what_is_of_one_source_names_it(self) -> Self:
        aggregates = (*self.aggregates, *(self.sliding.aggregates if self.sliding else ()))
        if unknown := next((a for a in aggregates if a.source is not None and a.source not in self.names), None):
            known = f"Use one of: {', '.join(self.names)}" if self.names else "Remove it: there is one source alone"
            rule = f"the aggregate {unknown.name} must have the source of a name that stands in sources"
            raise broken_rule(rule, known, unknown.source)
        if not self.sources:
            return self
        key = self.sources[0].key
        results = (name for a in self.aggregates for name in a.result_columns)
        if repeated := first_repeated((*C.FIXED_SESSION_COLUMNS, *key, *results)):
            rule = "aggregates must have names that nothing else in the sessions table has"
            raise broken_rule(rule, "Choose another name", repeated)
        if self.time.watermark.per != "table":
            raise broken_rule(
                "time.watermark.per must be table where there are several sources: which of them a key has events of, "
                "and so which of them holds its watermark, nobody can tell before they come",
                "Write per: table, or sessionize each source by itself",
                self.time.watermark.per,
            )
        return self

    @model_validator(mode="after")
    def _what_is_final_may_be_cut(self) -> Self:
        time = self.time
        if self.session.by_content and time.lateness == "session" and not time.revive and self.late_events != "amend":
            raise broken_rule(
                "time.lateness: session goes with boundaries by content only where events may join final sessions: "
                "a late event could else not begin or end a session amid one that stays as it is",
                "Use lateness: event, or revive: true, or late_events: amend",
            )
        return self

    @model_validator(mode="after")
    def _columns_of_the_optional_tables_differ(self) -> Self:
        key = self.source.key
        there = {name.lower() for name in key} | ({C.EVENT_TIME} & {self.source.event_time.lower()})
        results = (name for a in self.aggregates for name in a.result_columns)
        order = (name for name in self.source.order_by if name.lower() not in there)
        of_events = (*C.OF_MEMBERS, *((C.SOURCE,) if self.sources else ()), *order)
        tables = {"session_updates": (*C.OF_UPDATES, *key, *results), "event_sessions": of_events}
        for name, columns in tables.items():
            if getattr(self.outputs, name) is not None and (repeated := first_repeated(columns)):
                raise broken_rule(
                    f"outputs.{name} must not have two columns of one name", "Choose another name", repeated
                )
        return self

    @model_validator(mode="after")
    def _windows_go_with_the_rest(self) -> Self:
        if self.sliding is None:
            return self
        results = (name for a in self.sliding.aggregates for name in a.result_columns)
        if repeated := first_repeated((*C.FIXED_WINDOW_COLUMNS, *self.source.key, *results)):
            raise broken_rule(
                "sliding.aggregates must have names that nothing else in the windows table has, and source.key names "
                "that it has not",
                "Choose another name",
                repeated,
            )
        if self.late_events == "separate":
            why = "an event that is too late for its windows has none of its own"
            raise _not_with_sliding("late_events: separate", why, "Use quarantine, drop, amend or fail")
        if self.time.watermark.per == "key":
            why = "windows do not idle, so that those of a key that never returns would stay open forever"
            raise _not_with_sliding("time.watermark.per: key", why, "Use table, or a list of key columns")
        return self

    def locations(self) -> dict[str, str]:
        """Where each table lies, by the name that `show` has for it, and each mapping table."""
        tables = {**locations_of(self.each), "sessions": self.sessions.table, **dict(self.outputs)}
        if self.sliding is not None:
            others = {name: getattr(self.sliding, field) for field, name in BESIDE.items()}
            tables |= {"windows": self.sliding.table, **others}
        return {name: location for name, location in tables.items() if location is not None}

    def over(self, columns: Sequence[str]) -> Self:
        """The config of a source with these columns: one that is called `user.id` as a whole comes before a field."""
        return self.over_each({"": columns})

    def over_each(self, columns: Mapping[str, Sequence[str]]) -> Self:
        """The same of several, as long as their keys are called alike; columns: of those that are there, by name."""
        if not self.sources:
            return self.model_copy(update={"source": self.source.over(columns.get("", ()))})
        over = tuple(s.over(columns.get(s.name, ())) for s in self.sources)
        sources = over if len({s.key for s in over}) == 1 else self.sources
        return self.model_copy(update={"source": together(sources, self.events, columns), "sources": sources})

    def rule_summary(self) -> dict[str, object]:
        """The fields that decide what a session row is; values as in the file, unset options absent."""
        aggregates = sorted(self.aggregates, key=lambda aggregate: aggregate.name)
        per = self.source.scope(self.time.watermark.per)
        return {
            **self.source_summary(),
            **self.session.model_dump(mode="json", exclude_none=True),
            **({"dedupe": self.source.dedupe.model_dump(mode="json")} if self.source.dedupe else {}),
            **({} if per == "table" else {"watermark_per": per if isinstance(per, str) else list(per)}),
            "aggregates": [a.model_dump(mode="json", exclude_defaults=True) for a in aggregates],
        }

    def source_summary(self) -> dict[str, object]:
        """Those of them that say which events there are, and what they are."""
        return told_of(self.source, self.sources)

    def fingerprint(self) -> str:
        """SHA-256 of `rule_summary`: sessions of different fingerprints do not belong in one table."""
        canonical = json.dumps(self.rule_summary(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()


def _not_with_sliding(what: str, why: str, remedy: str) -> PydanticCustomError:
    rule = f"{what} does not go with sliding: {why}"
    return broken_rule(rule, f"{remedy}, or write a config of its own for `slide`", "sliding")


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the config file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}
