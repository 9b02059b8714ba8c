"""`sessions` and `session`: the table of sessions, and what ends one."""

from typing import Literal, Self
from zoneinfo import available_timezones

from pydantic import Field, StrictBool, field_validator, model_validator

from sessionizer.lib.config.types import Count, Gap, Location, Section, SessionGap, Text, broken_rule, first_repeated


class Sessions(Section):
    """The table of sessions."""

    table: Location = Field(description="Path, URL or catalog name of the sessions table")
    partition_by: tuple[Literal["is_final", "session_date"], ...] = Field(
        ("is_final",), description="[is_final], or [is_final, session_date] for tables of terabytes"
    )
    deletion_vectors: StrictBool = Field(False, description="Write fewer bytes, which some readers cannot open")
    change_feed: StrictBool = Field(True, description="Record row changes; consumers of `changes` need it")
    commit: Literal["auto", "merge", "replace"] = Field(
        "auto",
        description="How a run writes: MERGE what changes, or replace all live rows; auto: whichever writes sooner",
    )
    retention: Gap | None = Field(
        None, description="How far behind the latest session_end a session may have ended that look-ups still find"
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
        "30m0s",
        validate_default=True,
        description="Inactivity that ends a session: a duration, or {expr: SQL interval of each event, at_least: …}",
    )
    gap_boundary: Literal["joins", "splits"] = Field(
        "joins", description="What an event exactly one gap after the one before does: join it, or start anew"
    )
    max_duration: Gap | None = Field(
        None, description="The longest a session lasts, inclusive: an event later than that starts the next one"
    )
    starts_when: Text | None = Field(
        None, description="SQL condition on an event: where it is true, the event begins a session"
    )
    ends_when: Text | None = Field(
        None, description="SQL condition on an event: where it is true, the event is the last of its session"
    )
    changes_of: tuple[Text, ...] | None = Field(
        None,
        min_length=1,
        description="Columns or SQL expressions: a value other than the last one in the session begins a new one; "
        "nulls change nothing",
    )
    max_events: Count | None = Field(None, description="The most events of a session: the next one begins another")
    cut_at: Literal["midnight"] | None = Field(None, description="No session lasts over midnight in time_zone")
    time_zone: str | None = Field(
        None, description="The zone of session_date, and of cut_at: midnight, such as Europe/Berlin; UTC without it"
    )

    @field_validator("time_zone")
    @classmethod
    def _zone_is_known(cls, zone: str | None) -> str | None:
        if zone is not None and zone not in available_timezones():
            raise broken_rule("must be the name of a time zone", "Write it like Europe/Berlin or UTC", zone)
        return zone

    @model_validator(mode="after")
    def _changes_of_are_named_once(self) -> Self:
        if repeated := first_repeated(self.changes_of or ()):
            raise broken_rule("changes_of must name each column once", "Remove the second", repeated)
        return self

    @property
    def by_content(self) -> bool:
        """Whether more than time ends a session."""
        return any((self.starts_when, self.ends_when, self.changes_of, self.max_events, self.cut_at))
