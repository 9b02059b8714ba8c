"""`outputs` and `limits`: what a run writes beside the sessions, and how much it takes."""

from pydantic import Field

from sessionizer.lib.config.types import Count, Location, Section


class Outputs(Section):
    """The tables written beside the sessions."""

    rejected_events: Location = Field(
        default_factory=str, description="Late and invalid events; default: beside the sessions table"
    )
    runs: Location = Field(default_factory=str, description="One row per run; default: beside the sessions table")
    session_updates: Location | None = Field(
        None, description="One row per event with the running aggregates of its session"
    )
    event_sessions: Location | None = Field(None, description="Every event with its session_id")


class Limits(Section):
    """How much one run takes."""

    max_versions_per_run: Count | None = Field(None, description="Source versions a run reads at most")
    max_events_per_run: Count | None = Field(
        None, description="Events that a run reads at most; of a source version that has more, all"
    )
