"""`sessions` and `session`: the table of sessions, and what ends one."""

from typing import Literal

from pydantic import Field, StrictBool, field_validator

from sessionizer.lib.config.types import Gap, Location, Section, SessionGap, broken_rule


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
