"""What holds a session, or a window: why it has not ended yet, and what would end it."""

from collections.abc import Iterator
from dataclasses import dataclass

from sessionizer.jobs.console import iso
from sessionizer.jobs.run.kinds import Ruled
from sessionizer.lib import columns as C
from sessionizer.lib.durations import format_duration
from sessionizer.lib.errors import counted
from sessionizer.lib.windows.sessions.lifecycle import OPEN
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.queries.oldest import Oldest

WATERMARK, UNREAD, QUIET, IDLE, LATENESS = "watermark", "unread_versions", "quiet_source", "idle_timeout", "lateness"
BEHIND = "source_behind"


@dataclass(frozen=True)
class Held:
    """Why a row has not ended, or may still change. by: a word for machines; says: a sentence."""

    by: str
    says: str


def end_of(oldest: Oldest, of: Ruled) -> tuple[int, str]:
    """When the row ends, at the latest (microseconds), and what that is called: once the watermark has passed it."""
    if of.name == "windows":
        return oldest.times[C.WINDOW_END], "its end"
    rule, ends = of.rule, [(oldest.times[C.EXPIRES_AT], "its expiry")]
    if rule.max_duration is not None:
        ends.append((oldest.times[C.SESSION_START] + rule.max_duration, "its longest duration"))
    if rule.idle_after is not None and rule.idle_clock == "event_time":
        ends.append((oldest.times[C.SESSION_END] + rule.idle_after, "its idle timeout"))
    return min(ends)


def behind(oldest: Oldest, of: Ruled) -> int | None:
    """How far the watermark is behind the end of the row, in microseconds; 0: it has passed it; None: not known."""
    end, _ = end_of(oldest, of)
    return None if oldest.watermark is None else max(end - oldest.watermark, 0)


def held_by(oldest: Oldest, of: Ruled, done: Manifest, status: str, waiting: int) -> list[Held]:
    """Why the row is as it is, the nearest reason first. waiting: versions of the source that no run has read."""
    return [*_of_watermark(oldest, of, status), *_of_source(of, done, waiting), *_of_lateness(oldest, of, status)]


def _of_watermark(oldest: Oldest, of: Ruled, status: str) -> Iterator[Held]:
    end, what = end_of(oldest, of)
    if oldest.watermark is None:
        yield Held(WATERMARK, f"no watermark is known that could pass {what} ({iso(end)})")
    elif status == OPEN and oldest.watermark <= end:
        yield Held(WATERMARK, f"the watermark ({iso(oldest.watermark)}) has not passed {what} ({iso(end)})")
    if of.name == "sessions" and status == OPEN and of.rule.idle_after and of.rule.idle_clock == "processing_time":
        after, whose = format_duration(of.rule.idle_after), "key" if of.rule.watermark_per == "key" else "session"
        yield Held(IDLE, f"time.idle_timeout ends it in a run more than {after} after events of its {whose} came")


def _of_source(of: Ruled, done: Manifest, waiting: int) -> Iterator[Held]:
    if waiting:
        are = "waits" if waiting == 1 else "wait"
        yield Held(UNREAD, f"{counted(waiting, 'version')} of the source {are} for `sessionizer {of.command}`")
        return
    yield from _of_slowest(of, done)
    since, after = done.now if done.events_came_at is None else done.events_came_at, of.rule.watermark_idle_after
    quiet = f"the source is quiet: no event has come since {iso(since)}"
    if of.rule.watermark_per == "key":
        yield Held(QUIET, quiet)
    elif after is None:
        yield Held(QUIET, f"{quiet}; time.watermark.idle_after would have the watermark follow the clock")
    else:
        yield Held(QUIET, f"{quiet}; a run after {iso(since + after)} has the watermark follow the clock")


def _of_slowest(of: Ruled, done: Manifest) -> Iterator[Held]:
    """Which of several sources the watermark waits for."""
    idle, times = of.rule.watermark_idle_after, done.times_of_sources("after")
    if len(times) < 2:
        return
    waited_for = {name: at for name, at in times.items() if idle is None or done.now - at.came_at <= idle}
    slow = [name for name, at in waited_for.items() if at.latest is None]
    latest = {name: at.latest for name, at in waited_for.items() if at.latest is not None}
    if not slow and len(latest) > 1:
        slow = [min(latest, key=lambda name: latest[name])]
    for name in slow:
        us = latest.get(name)
        come = "no event of it has come yet" if us is None else f"its latest event is of {iso(us)}"
        until = "time.watermark.idle_after would leave it out after a while"
        if idle is not None:
            until = f"a run after {iso(times[name].came_at + idle)} leaves it out, unless an event of it comes"
        yield Held(BEHIND, f"the watermark waits for the source {name}: {come}; {until}")


def _of_lateness(oldest: Oldest, of: Ruled, status: str) -> Iterator[Held]:
    rule, reach = of.rule, oldest.times[C.EXPIRES_AT if of.name == "sessions" else C.WINDOW_END]
    if rule.allowed_lateness:
        length, until = format_duration(rule.allowed_lateness), iso(reach + rule.allowed_lateness)
        stays = "open" if of.name == "windows" and status == OPEN else "live"
        yield Held(LATENESS, f"{of.lateness} ({length}) keeps it {stays} until the watermark has passed {until}")
