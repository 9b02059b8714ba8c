"""`sources`: several tables of events, whose events make sessions together; `events`: what these have alike."""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any

from pydantic import Field, TypeAdapter, ValidationError, field_validator

from sessionizer.lib import columns as C
from sessionizer.lib.config.key import key_summary, parts_of
from sessionizer.lib.config.source import ABOUT_DEDUPE, ABOUT_NULL_KEYS, Dedupe, EventSource, NullKeys, Source
from sessionizer.lib.config.types import Section, Text, broken_rule, first_repeated, plain_name

TRUE = "true"
_CAST = re.compile(
    r"\(*\s*(?:(?:try_)?cast\s*\(\s*(`[^`]+`|\w+)\s+as\s+timestamp(?:_ltz)?\s*\)"
    r"|(?:timestamp|(?:try_)?to_timestamp(?:_ltz)?)\s*\(\s*(`[^`]+`|\w+)\s*\)|(`[^`]+`|\w+)\s*::\s*timestamp(?:_ltz)?)\s*\)*",
    re.IGNORECASE,
)
WITHOUT_DATE = r"^\s*[Tt]?\d{1,2}:"  # such a text Spark reads as a time of today


class NamedSource(EventSource):
    """One of several tables of events."""

    name: Text = Field(description="What its events say in the column `source`, and what errors and options call it")

    @field_validator("name")
    @classmethod
    def _is_a_plain_name(cls, name: str) -> str:
        return plain_name(name, "", "a name such as clicks")

    @property
    def label(self) -> str:
        """Its name."""
        return self.name


_SOURCES = TypeAdapter(tuple[NamedSource, ...])


class Events(Section):
    """What the events of several sources have alike."""

    null_keys: NullKeys = Field("reject", description=ABOUT_NULL_KEYS)
    dedupe: Dedupe | None = Field(None, description=f"{ABOUT_DEDUPE} of the same source")


def check_together(sources: Sequence[NamedSource]) -> None:
    """Raise unless these go together, as far as the file tells."""
    if repeated := first_repeated(source.name for source in sources):
        raise broken_rule("must each have a name of its own", "Rename one of them", repeated)
    first, *others = sources
    if other := next((source for source in others if source.key != first.key), None):
        raise broken_rule(
            f"must give the same key columns, in the same order: {first.name} has [{', '.join(first.key)}]",
            f"Give the columns of {other.name} these names, as in {{name: {(*first.key, 'user_id')[0]}, expr: …}}",
            f"{other.name}: [{', '.join(other.key)}]",
        )
    if taken := next((name for name in first.key if name.lower() == C.SOURCE), None):
        raise broken_rule(
            "must have no key column of this name: it is what says which source an event is of",
            "Rename it: {name: …, expr: …}",
            taken,
        )


def as_one(given: dict[Any, Any], context: Any) -> dict[Any, Any]:
    """What a file says of several sources, and in `source` what these are together.

    What is wrong with one of them is said where it is read for itself.
    """
    if given.get("source") is not None:
        rule, remedy = "source and sources must not both be there", "Make the one of source one of sources"
        raise broken_rule(rule, remedy, "both")
    sources, events = tuple[NamedSource, ...](), Events()
    with suppress(ValidationError):
        sources = _SOURCES.validate_python(given["sources"], context=context)
    with suppress(ValidationError):
        events = Events.model_validate(given.get("events", events))
    return {**given, "source": together(sources, events)}


def together(
    sources: Sequence[NamedSource], events: Events, columns: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Source:
    """What an event of any of these is, by the columns of all and `source`: as if they were one table.

    What a source says of its events is asked of these alone, so that each has its own columns. columns: of those that
    are there, by name; a text that is the name of one is no SQL.
    """

    def as_sql(source: NamedSource, text: str) -> str:
        known = (name.lower() for name in columns.get(source.name, ()))
        return C.quoted(text) if text.lower() in known else text

    values: dict[str, Any] = {"table": "", "keys": ()}
    if not sources:
        return Source.model_construct(**values)
    sources = sorted(sources, key=lambda source: source.name)  # whatever their order in the file
    texts = {source.name: source.event_time for source in sources}
    times = {source.name: _dated(as_sql(source, source.event_time)) for source in sources}
    filters = {source.name: as_sql(source, source.where) for source in sources if source.where is not None}
    order = dict.fromkeys(name for source in sources for name in source.order_by)
    dedupe = events.dedupe
    values |= {
        "keys": tuple(C.quoted(name) if parts_of(name) or name.startswith("`") else name for name in sources[0].key),
        "times": texts[sources[0].name] if len(set(texts.values())) == 1 else of_each(times),
        "where": of_each(filters, TRUE) if filters else None,
        "order_by": tuple(order),
        "null_keys": events.null_keys,
        "dedupe": None if dedupe is None else dedupe.model_copy(update={"by": (C.SOURCE, *dedupe.by)}),
    }
    return Source.model_construct(**values)


def cast_column(expression: str) -> str | None:
    """The column that an expression makes times of, and does no more."""
    found = _CAST.fullmatch(expression.strip())
    return None if found is None else next(part for part in found.groups() if part).strip("`")


def _dated(expression: str) -> str:
    """SQL for an event time, null where it is no more than a time of day."""
    if (column := cast_column(expression)) is None:
        return expression
    return f"CASE WHEN NOT ({C.quoted(column)} RLIKE r'{WITHOUT_DATE}') THEN {expression} END"


def of_each(texts: Mapping[str, str], otherwise: str | None = None) -> str:
    """SQL for the rows of each of these sources; otherwise: for those of others."""
    cases = " ".join(f"WHEN {C.literal(name)} THEN ({text}\n)" for name, text in texts.items())
    return f"CASE {C.SOURCE} {cases}{'' if otherwise is None else f' ELSE {otherwise}'} END"


def told_of(source: Source, sources: Sequence[NamedSource]) -> dict[str, object]:
    """What decides which events there are, as a rule tells it; values as in the file. source: the only one, or all."""
    if not sources:
        told = source.model_dump(mode="json", include={"where", "order_by", "null_keys"})
        return {
            "key": key_summary(source.key, source.made),
            "event_time": source.event_time,
            **told,
            **_stitched(source),
        }
    each = {
        of.name: {
            "key": key_summary(of.key, of.made),
            "event_time": of.event_time,
            **of.model_dump(mode="json", include={"where", "order_by"}),
            **_stitched(of),
        }
        for of in sources
    }
    return {"key": list(source.key), "sources": each, "null_keys": source.null_keys}


def filters_of(told: Mapping[str, Any]) -> dict[str, str | None]:
    """What each source leaves out, by its name. In: what `told_of` tells, among others."""
    sources: Mapping[str, Mapping[str, Any]] = told.get("sources", {"": told})
    return {name: of.get("where") for name, of in sources.items()}


def times_of(told: Mapping[str, Any]) -> dict[str, str | None]:
    """What the time of an event is of each source, by its name. In: the same."""
    sources: Mapping[str, Mapping[str, Any]] = told.get("sources", {"": told})
    return {name: of.get("event_time") for name, of in sources.items()}


def made_columns_of(told: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What makes columns that are part of the rows of a source, and not of its table, by its name.

    That is its mapping table and, of several sources, its keys by SQL.
    """
    several: Mapping[str, Mapping[str, Any]] = told.get("sources", {})
    if not several:
        return {"": [told.get("stitch")]}
    return {
        name: [of.get("stitch"), *[key for key in of["key"] if not isinstance(key, str)]]
        for name, of in several.items()
    }


def _stitched(source: EventSource) -> dict[str, object]:
    return {} if source.stitch is None else {"stitch": source.stitch.summary()}


def field_of(source: EventSource, key: str = "table") -> str:
    """What errors call a key of a source."""
    return f"sources.{source.label}.{key}" if source.label else f"source.{key}"


def events_of(source: EventSource) -> str:
    """What queries call its table."""
    return f"events_{source.label}" if source.label else "events"


def mappings_of(sources: Sequence[EventSource]) -> dict[str, str]:
    """Where the mapping tables of these lie, by the keys that name them; several may have the same."""
    stitched = {field_of(source, "stitch.table"): source.stitch for source in sources}
    return {name: stitch.table for name, stitch in stitched.items() if stitch is not None}


def locations_of(sources: Sequence[EventSource]) -> dict[str, str]:
    """Where these lie, by what queries call them, and their mapping tables: `mapping`, or `mapping_clicks`."""
    found = {events_of(source): source.table for source in sources}
    mapped = {source.label: source.stitch.table for source in sources if source.stitch is not None}
    return found | {f"mapping_{label}" if label else "mapping": table for label, table in mapped.items()}


def source_or_sources(schema: dict[str, Any]) -> None:
    """Of a JSON Schema: one of the two has to be there."""
    schema["required"].remove("source")
    schema["oneOf"] = [{"required": ["source"]}, {"required": ["sources"]}]
