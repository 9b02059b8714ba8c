"""What a session is: the part of the configuration that the pure steps need."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sessionizer.lib import columns as C
from sessionizer.lib.config import Aggregate, Config, Dedupe, DynamicGap, EventSource, MadeKey, Policy, policies
from sessionizer.lib.durations import HOUR

NO_CONTENT: dict[str, Any] = {
    **dict.fromkeys(("starts_when", "ends_when", "max_events", "cut_at")),
    "changes_of": (),
}  # of a rule whose windows follow time alone


@dataclass(frozen=True)
class Rule:
    """How events become sessions (SEMANTICS §2, §4 to §8). All durations are microseconds.

    key: the names of the key columns. made: those of them that the source has not. sources: the names of several
    sources, in order; none: there is one, and rows do not say so.
    """

    key: tuple[str, ...]
    gap: int | DynamicGap
    made: tuple[MadeKey, ...] = ()
    event_time: str = "event_time"
    where: str | None = None
    order_by: tuple[str, ...] = ()
    null_keys: Literal["reject", "group"] = "reject"
    dedupe: Dedupe | None = None
    gap_boundary: Literal["joins", "splits"] = "joins"
    max_duration: int | None = None
    starts_when: str | None = None
    ends_when: str | None = None
    changes_of: tuple[str, ...] = ()
    max_events: int | None = None
    cut_at: Literal["midnight"] | None = None
    time_zone: str = "UTC"  # of session_date, and of midnight
    watermark_from: Literal["max_event_time", "min_event_time"] = "max_event_time"
    watermark_per: Literal["table", "key"] | tuple[str, ...] = "table"
    watermark_delay: int = 0
    allowed_lateness: int = 24 * HOUR
    lateness: Literal["event", "session"] = "event"
    revive: bool = False
    watermark_idle_after: int | None = None  # without events for longer, the watermark follows the clock
    max_future_skew: int = HOUR
    idle_after: int | None = None
    idle_clock: Literal["event_time", "processing_time"] = "event_time"
    late_events: Literal["quarantine", "drop", "amend", "separate", "fail"] = "quarantine"
    invalid_events: Literal["quarantine", "drop", "fail"] = "quarantine"
    corrections: Literal["apply", "quarantine", "fail"] = "apply"  # of what changes rows, but for DELETE
    deletes: Policy = "apply"
    erase_when: str | None = None  # which of the deletes that are ignored are made after all
    aggregates: tuple[Aggregate, ...] = ()
    time_unit: int = 1  # event times are truncated to it
    tells_events: bool = False  # whether a run also tells which session each event went into
    reach_back: int = field(default=0, repr=False)  # how far before an event what holds it may begin
    sources: tuple[str, ...] = field(default=(), repr=False)  # apart from `schema_hash` of one source

    @classmethod
    def of(cls, config: Config) -> "Rule":
        """The rule that a configuration file states."""
        source, session, time = config.source, config.session, config.time
        idle, changed = time.idle_timeout, policies(config.corrections)
        return cls(
            key=source.key,
            gap=session.gap,
            made=source.made,
            event_time=source.event_time,
            where=source.where,
            order_by=tuple(source.order_by),
            null_keys=source.null_keys,
            dedupe=source.dedupe,
            gap_boundary=session.gap_boundary,
            max_duration=session.max_duration,
            starts_when=session.starts_when,
            ends_when=session.ends_when,
            changes_of=session.changes_of or (),
            max_events=session.max_events,
            cut_at=session.cut_at,
            time_zone=session.time_zone or "UTC",
            watermark_from=time.watermark.from_,
            watermark_per=source.scope(time.watermark.per),
            watermark_delay=time.watermark.delay,
            watermark_idle_after=time.watermark.idle_after,
            allowed_lateness=time.allowed_lateness,
            lateness=time.lateness,
            revive=time.revive,
            max_future_skew=time.max_future_skew,
            idle_after=idle.after if idle else None,
            idle_clock=idle.clock if idle else "event_time",
            late_events=config.late_events,
            invalid_events=config.invalid_events,
            corrections=changed.updates,
            deletes=changed.deletes,
            erase_when=changed.erase_when,
            aggregates=tuple(config.aggregates),
            tells_events=bool(config.outputs.event_sessions or config.outputs.session_updates),
            sources=config.names,
        )

    def of_source(self, source: EventSource) -> "Rule":
        """The rule as one of several sources states it, of rows of its table alone."""
        return replace(
            self,
            key=source.key,
            made=source.made,
            event_time=source.event_time,
            where=source.where,
            order_by=source.order_by,
            dedupe=None,
            aggregates=(),
            sources=(),
        )

    @property
    def origin(self) -> tuple[str, ...]:
        """The column that says which source a row is of, where there are several."""
        return (C.SOURCE,) if self.sources else ()

    @property
    def own_key(self) -> tuple[str, ...]:
        """The key columns that the source has itself."""
        made = {key.name for key in self.made}
        return tuple(name for name in self.key if name not in made)

    @property
    def scope(self) -> tuple[str, ...]:
        """The key columns that a watermark belongs to; none: one watermark for the table."""
        if self.watermark_per == "table":
            return ()
        return self.key if self.watermark_per == "key" else self.watermark_per

    @property
    def keeps_deleted(self) -> bool:
        """Whether events stay in their sessions that a DELETE has taken out of the source."""
        return self.deletes in ("ignore", "quarantine")

    def of_deletes(self) -> "Rule":
        """The rule that an increment goes by which is a DELETE: those that are ignored are told apart row by row."""
        return replace(self, corrections="apply" if self.deletes == "ignore" else self.deletes)

    @property
    def by_content(self) -> bool:
        """Whether what events hold, how many they are, or midnight ends sessions, too."""
        return any((self.starts_when, self.ends_when, self.changes_of, self.max_events, self.cut_at))

    @property
    def cuts(self) -> bool:
        """Whether sessions may end where the next event is within their reach."""
        return self.max_duration is not None or self.by_content

    @property
    def freezes(self) -> bool:
        """Whether final sessions stay out of what comes within their gap (SEMANTICS §6)."""
        return self.lateness == "session" and not self.revive and self.late_events != "amend"

    @property
    def bucket(self) -> int:
        """Events of a key in one bucket this wide are always less than a gap apart, and within one longest session.

        Where rows remember arrivals, and content may put a session between two events of a bucket, each time is one.
        """
        if self.by_content and self.idle_after is not None and self.idle_clock == "processing_time":
            return 1
        width = self.gap.at_least or 1 if isinstance(self.gap, DynamicGap) else self.gap
        return width if self.max_duration is None else min(width, self.max_duration)
