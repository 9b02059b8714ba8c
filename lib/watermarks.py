"""Watermark, horizon and flush mark: what time it is for the events (SEMANTICS §4)."""

from dataclasses import dataclass, replace

from lib.rule import Rule


@dataclass(frozen=True)
class Clock:
    """Where time stands. Everything is microseconds since the epoch, UTC; None = not known yet.

    now: the run's wall clock, for events from the future alone.
    watermark: older events are no longer expected.
    flush_mark: a lower bound of the horizon that a flush has set.
    flushed_from: the watermark just before a flush of this very run, which names what the flush ended.
    """

    now: int
    watermark: int | None = None
    flush_mark: int | None = None
    flushed_from: int | None = None

    def horizon(self, rule: Rule) -> int | None:
        """Events strictly older than this are late: max(watermark - allowed lateness, flush mark)."""
        by_watermark = None if self.watermark is None else self.watermark - rule.allowed_lateness
        return latest(by_watermark, self.flush_mark)


def advance(clock: Clock, earliest_event: int | None, latest_event: int | None, rule: Rule) -> Clock:
    """The clock after a run that saw valid events between these two times (both inclusive, late ones too).

    >>> rule = Rule(key=(), gap=1, watermark_delay=5)
    >>> advance(Clock(now=0, watermark=10), 3, 20, rule).watermark
    15
    >>> advance(Clock(now=0, watermark=10), 3, 4, rule).watermark
    10
    """
    candidate = earliest_event if rule.watermark_from == "min_event_time" else latest_event
    return advance_to(clock, None if candidate is None else candidate - rule.watermark_delay)


def advance_to(clock: Clock, watermark: int | None) -> Clock:
    """The clock with at least this watermark; it never goes back."""
    return replace(clock, watermark=latest(clock.watermark, watermark))


def flush(clock: Clock, latest_reach: int | None) -> Clock:
    """The clock 1 µs past every reach, so that every session ends and is final; no session, no change."""
    if latest_reach is None:
        return clock
    mark = latest(clock.flush_mark, latest_reach + 1)
    return replace(advance_to(clock, mark), flush_mark=mark, flushed_from=clock.watermark)


def latest(*times: int | None) -> int | None:
    """The latest of the times that are known."""
    return max((t for t in times if t is not None), default=None)
