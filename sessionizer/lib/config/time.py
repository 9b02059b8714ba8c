"""`time`: when sessions are complete, and which events are late."""

from typing import Literal, Self

from pydantic import Field, StrictBool, model_validator

from sessionizer.lib.config.types import Gap, Scope, Section, Wait, broken_rule


class Watermark(Section):
    """How the watermark follows the events."""

    from_: Literal["max_event_time", "min_event_time"] = Field(
        "max_event_time", alias="from", description="Event time of a run that the watermark follows"
    )
    per: Scope = Field("table", description="Scope of a watermark: table, key, or a list of some of the key columns")
    delay: Wait = Field("0s", validate_default=True, description="How far the watermark stays behind that event time")
    idle_after: Gap | None = Field(
        None, description="Where no event has come for longer, the watermark is the run's clock less the delay"
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
        "24h0m0s", validate_default=True, description="How far behind the watermark an event is still accepted"
    )
    lateness: Literal["event", "session"] = Field(
        "event", description="What is judged late: each event by its own time, or the session it would be part of"
    )
    revive: StrictBool = Field(False, description="With lateness: session, events may also extend final sessions")
    max_future_skew: Wait = Field(
        "1h0m0s", validate_default=True, description="Events further ahead of the run's clock are rejected"
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
