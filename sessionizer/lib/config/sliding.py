"""`sliding`: windows of the same events."""

from typing import Literal, Self

from pydantic import Field, ValidationInfo, field_validator, model_validator

from sessionizer.lib.config.aggregate import Aggregate
from sessionizer.lib.config.types import File, Gap, Location, Section, Wait, beside, broken_rule
from sessionizer.lib.durations import format_duration

BESIDE = {"rejected_events": "rejected_window_events", "runs": "window_runs"}  # names of tables beside the windows


class Sliding(Section):
    """Sliding windows of the same events, which `sessionizer slide` makes."""

    table: Location = Field(description="Path, URL or catalog name of the windows table")
    time_difference: Gap = Field(
        "10m0s",
        validate_default=True,
        description="From the start of a window to its end, both inclusive: how far apart its events may lie",
    )
    grace: Wait = Field(
        "1h0m0s",
        validate_default=True,
        description="How far the watermark may be past the end of a window that still takes events",
    )
    time_unit: Gap = Field(
        "1ms",
        validate_default=True,
        description="Event times are truncated to it; the right window of an event starts one unit after it",
    )
    lateness: Literal["event", "session"] = Field(
        "event",
        description="event: an event is late by its own time; session: it enters the windows that are still open, and "
        "is late if there is none (Kafka)",
    )
    aggregates: tuple[Aggregate, ...] = Field((), description="Columns computed over the events of a window")
    retention: Gap | None = Field(
        None, description="How far behind the latest window_end a window may have ended that look-ups still find"
    )
    rejected_events: Location = Field(
        default_factory=str,
        validate_default=True,
        description="Late and invalid events of the windows; default: beside the windows table",
    )
    runs: Location = Field(
        default_factory=str,
        validate_default=True,
        description="One row per run of the windows; default: beside the windows table",
    )
    expectations: File | None = Field(
        None, description="A Great Expectations suite that windows must meet before a run writes them"
    )

    @field_validator("rejected_events", "runs", mode="before")
    @classmethod
    def _default_to_beside_windows(cls, location: object, info: ValidationInfo) -> object:
        table, name = info.data.get("table"), BESIDE[str(info.field_name)]
        return beside(table, name) if table and not location else location

    @model_validator(mode="after")
    def _windows_start_on_whole_units(self) -> Self:
        if self.time_difference % self.time_unit:
            raise broken_rule(
                "must have a time_difference of whole time_units",
                "Choose a time_unit such as 1ms, or 1us for times of microseconds",
                format_duration(self.time_unit),
            )
        return self
