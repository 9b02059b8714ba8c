"""`source`: the table of events; and what each of several has alike."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self, TypeGuard

from pydantic import ConfigDict, Discriminator, Field, Tag, field_validator

from sessionizer.lib import columns as C
from sessionizer.lib.config.key import KeyEntry, MadeKey, key_of, name_of, of_source
from sessionizer.lib.config.stitch import Stitch
from sessionizer.lib.config.types import Gap, Location, Section, Start, Text, broken_rule, first_repeated, plain_name

Per = Literal["table", "key"] | tuple[str, ...]
NullKeys = Literal["reject", "group"]
ABOUT_NULL_KEYS = "reject: a null in a key column makes the event invalid; group: nulls are equal"
ABOUT_DEDUPE = "Reject copies of accepted events"
_RENAME = "or give it a name here: {name: …, expr: …}"


class Dedupe(Section):
    """Which events are copies of an accepted one."""

    by: tuple[Text, ...] = Field(min_length=1, description="Columns that, with the key, identify an event")
    within: Gap = Field(description="How far apart in event time copies may lie, inclusive")


class Arrival(Section):
    """The time of an event is when it came: for rows that have none."""

    arrival: Text = Field(description="Column that `ingest` adds: when it has read the row")

    @field_validator("arrival")
    @classmethod
    def _is_a_plain_name(cls, name: str) -> str:
        return plain_name(name, "the name of a column, ", "arrived_at")


EventTime = Annotated[
    Annotated[Text, Tag("(expression)")] | Annotated[Arrival, Tag("(arrival)")],
    Discriminator(lambda value: "(arrival)" if isinstance(value, Mapping | Arrival) else "(expression)"),
]


class EventSource(Section):
    """A table of events: where it lies, how it is read, and what an event of it is."""

    model_config = ConfigDict(serialize_by_alias=True)

    table: Location = Field(description="Path, URL (s3a://…) or catalog name (db.events) of the events table")
    keys: tuple[KeyEntry, ...] = Field(
        alias="key",
        description="Key columns, each a column, a field within one (user.id, called by its last part) or "
        "{name, expr}, SQL over one event; [] makes one stream of sessions of the whole table",
    )
    times: EventTime = Field(
        "event_time",
        alias="event_time",
        description="Column or SQL expression: when the event happened; or {arrival: COLUMN}, which `ingest` fills",
    )
    prune_by: Text | None = Field(
        None, description="Column that grows with event_time, for file pruning where event_time is an expression"
    )
    changes: Literal["feed", "appends"] = Field(
        "feed",
        description="feed: from the change data feed, with updates and deletes; appends: added rows alone, of a table "
        "that nobody changes otherwise",
    )
    start: Start = Field(
        "earliest", description="Where the very first run begins: earliest, latest, {version: N} or {timestamp: T}"
    )
    where: Text | None = Field(None, description="SQL filter: only events for which it is true are read")
    order_by: tuple[Text, ...] = Field((), description="Columns that order events of equal time")
    stitch: Stitch | None = Field(
        None, description="A mapping table, such as of devices to users, by which events get a column of their own"
    )

    @field_validator("keys")
    @classmethod
    def _key_columns_differ_from_all_others(cls, keys: tuple[str | MadeKey, ...]) -> tuple[str | MadeKey, ...]:
        names = tuple(map(name_of, keys))
        if repeated := first_repeated(names):
            raise broken_rule("must name each column once", f"Remove the second one, {_RENAME}", repeated)
        if taken := first_repeated((*C.FIXED_SESSION_COLUMNS, *C.FIXED_EVENT_COLUMNS, *names)):
            rule = "must not name a column that the written tables have of their own"
            raise broken_rule(rule, f"Rename it, {_RENAME}", taken)
        if kept := next((key.name for key in map(key_of, keys) if _is_kept(key)), None):
            raise broken_rule("must make no column whose name begins with __", "Choose another name", kept)
        return keys

    @property
    def label(self) -> str:
        """Its name among several; the only one has none."""
        return ""

    @property
    def event_time(self) -> str:
        """The column, or SQL, that says when an event happened."""
        return self.times if isinstance(self.times, str) else self.times.arrival

    @property
    def arrival(self) -> str | None:
        """The column that `ingest` fills with the time of arrival; None: events have a time of their own."""
        return None if isinstance(self.times, str) else self.times.arrival

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key columns, in order."""
        return tuple(map(name_of, self.keys))

    @property
    def made(self) -> tuple[MadeKey, ...]:
        """What makes those that the source has not."""
        return tuple(key for key in map(key_of, self.keys) if isinstance(key, MadeKey))

    @property
    def own_key(self) -> tuple[str, ...]:
        """The names of those that the source's table has itself."""
        lent = "" if self.stitch is None else self.stitch.column.lower()
        return tuple(key for key in map(key_of, self.keys) if isinstance(key, str) and key.lower() != lent)

    def scope(self, per: Per) -> Per:
        """What a watermark belongs to, by the names of key columns; a field within a column may be written as there."""
        if isinstance(per, str):
            return per
        written = {entry.lower(): name_of(entry) for entry in self.keys if isinstance(entry, str)}
        there = {name.lower() for name in self.key}
        return tuple(name if name.lower() in there else written.get(name.lower(), name) for name in per)

    def over(self, columns: Sequence[str]) -> Self:
        """The same of a table with these columns: one that is called `user.id` as a whole comes before a field."""
        return self.model_copy(update={"keys": tuple(of_source(entry, columns) for entry in self.keys)})


class Source(EventSource):
    """The table of events."""

    null_keys: NullKeys = Field("reject", description=ABOUT_NULL_KEYS)
    dedupe: Dedupe | None = Field(None, description=ABOUT_DEDUPE)


def _is_kept(key: str | MadeKey) -> TypeGuard[MadeKey]:
    return isinstance(key, MadeKey) and key.name.startswith("__")
