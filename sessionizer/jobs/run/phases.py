"""What a run reports: its manifest, and the seconds that its phases took."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pyspark.sql import DataFrame

from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables.delta import BYTES_WRITTEN, FILES_WRITTEN, Entry
from sessionizer.tables.event_tables import Events
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.runs import Timing

Say = Callable[[str], None]


@dataclass(frozen=True)
class RunOptions:
    """What the command line asks of a run. Times: microseconds since the epoch."""

    once: bool = False
    to_version: int | None = None
    override: WatermarkOverride = field(default_factory=WatermarkOverride)
    dry_run: bool = False
    now: int | None = None


@dataclass(frozen=True)
class RunReport:
    """One increment, done or (dry run) only computed. of: `sessions` or `windows`."""

    manifest: Manifest
    timing: Timing
    of: str = "sessions"
    dry_run: bool = False
    changes: DataFrame | None = field(default=None, repr=False)


class Beginning:
    """When a command began, and what the sources had by then: its increments end there.

    done: the last run until then. now: microseconds since the epoch; None is the clock.
    """

    def __init__(self, done: Manifest | None, events: Events, now: int | None) -> None:
        self._is_given, self._runs = now is not None, 0 if done is None else done.run_seq
        self.now = wall_clock() if now is None else now
        self.until = events.ends

    def clock(self, done: Manifest | None) -> int:
        """The time of its increments: as it began, or a younger command that has committed since. None goes back."""
        if self._is_given or done is None or done.run_seq <= self._runs:
            return self.now
        return not_before(self.now, done)


class Phases:
    """Seconds by phase of one run."""

    def __init__(self) -> None:
        self.started = wall_clock()
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Time what happens inside."""
        begun = time.monotonic()
        yield
        self.seconds[phase] = round(time.monotonic() - begun, 3)

    def timing(self, commit: Entry | None = None) -> Timing:
        """What was timed so far, and what the commit has written."""
        seconds = {**self.seconds, "total": round((wall_clock() - self.started) / 1e6, 3)}
        if commit is None:
            return Timing(wall_clock(), seconds)
        return Timing(wall_clock(), seconds, commit.metric(FILES_WRITTEN), commit.metric(BYTES_WRITTEN))


def not_before(now: int, done: Manifest) -> int:
    """The time, or that of the last run where it began later, and that is not still to come: no clock goes back."""
    return max(now, min(done.now, wall_clock()))


def wall_clock() -> int:
    """Now, in microseconds."""
    return time.time_ns() // 1000
