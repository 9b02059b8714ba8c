"""`source`: the table of events."""

from typing import Literal

from pydantic import Field, field_validator

from sessionizer.lib import columns as C
from sessionizer.lib.config.types import Gap, Location, Section, Start, Text, broken_rule, first_repeated


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
    null_keys: Literal["reject", "group"] = Field(
        "reject", description="reject: a null in a key column makes the event invalid; group: nulls are equal"
    )
    dedupe: Dedupe | None = Field(None, description="Reject copies of accepted events")

    @field_validator("key")
    @classmethod
    def _key_columns_differ_from_all_others(cls, key: tuple[str, ...]) -> tuple[str, ...]:
        if repeated := first_repeated(key):
            raise broken_rule("must name each column once", "Remove the second one", repeated)
        if taken := first_repeated((*C.FIXED_SESSION_COLUMNS, *C.FIXED_EVENT_COLUMNS, *key)):
            raise broken_rule("must not name a column that the written tables have of their own", "Rename it", taken)
        return key
