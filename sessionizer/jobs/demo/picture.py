"""The demo's picture: a few users' events and sessions over a day, drawn in text."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from rich.text import Text

from sessionizer.jobs.console import short

HOUR_US = 3_600_000_000
NAME_WIDTH = 6
MARGIN = 12  # to the right of the last hour, for the name of a mark there
# Glyphs tell the states apart without colours; the colours read on dark and on light ground.
BARS = {"open": ("░", "#37b24d"), "closed": ("▒", "#e8872b"), "final": ("█", "#4a7fd8")}
NEW, OLD, LATE = ("●", "bold"), ("·", ""), ("✗", "bold #e03131")
Cell = tuple[str, str]  # a character and its style


@dataclass(frozen=True)
class Bar:
    """One row of the sessions table. Times: microseconds since the epoch."""

    session_id: str
    user: str
    start: int
    end: int
    events: int
    status: str
    supersedes: Sequence[str] = ()


@dataclass(frozen=True)
class Scene:
    """What the tables say after a run. Times: microseconds since the epoch; `new` is part of `events`."""

    users: tuple[str, ...]
    bars: tuple[Bar, ...] = ()
    events: Mapping[str, Sequence[int]] = field(default_factory=dict)
    new: Mapping[str, Sequence[int]] = field(default_factory=dict)
    late: Mapping[str, Sequence[int]] = field(default_factory=dict)
    watermark: int | None = None
    horizon: int | None = None


@dataclass(frozen=True)
class Window:
    """The hours drawn, from `first` (inclusive, microseconds), each so many cells wide."""

    first: int
    hours: int
    cells: int

    @property
    def width(self) -> int:
        """Cells in all."""
        return self.hours * self.cells

    def cell(self, us: int) -> int:
        """The cell of an instant; outside of the window below 0 or from `width` on."""
        return (us - self.first) * self.cells // HOUR_US


def timeline(scene: Scene, window: Window) -> Text:
    """An axis, and for each user a line of events above a line of sessions."""
    lines = [_marks(scene, window), _axis(window)]
    for user in scene.users:
        lines += [_line("", _ticks(scene, user, window)), _line(user, _sessions(scene, user, window))]
    return Text("\n").join(lines)


def legend() -> Text:
    """What the glyphs mean."""
    bars = [((glyph * 3, style), status) for status, (glyph, style) in BARS.items()]
    events = [(NEW, "event of this run"), (OLD, "earlier event"), (LATE, "too late")]
    parts = [Text.assemble(glyph, f" {meaning}") for glyph, meaning in bars + events]
    return Text("   ").join([Text(" " * (NAME_WIDTH - 3)), *parts])


def told(before: Scene, after: Scene) -> Iterator[str]:
    """What happened to each user's sessions between two runs, in words."""
    known = {bar.session_id: bar for bar in before.bars}
    for user in after.users:
        for bar in (b for b in after.bars if b.user == user):
            was = known.get(bar.session_id)
            taken = [i for i in bar.supersedes if was is None or i not in was.supersedes]
            if was is not None and taken:
                vanished = ", ".join(_brief(i) for i in taken)
                span = f"{_brief(bar.session_id)}, {_time(bar.start)}-{_time(bar.end)}"
                yield f"{user}: a delayed event bridges two sessions: {span}, supersedes {vanished}, which is gone"
            elif was is not None and bar.events > was.events:
                grown = f"grows from {was.events:,} to {bar.events:,} events"
                yield f"{user}: the session of {_time(bar.start, bar.end)} {grown}, and is {bar.status}"
        for at in after.late.get(user, ()):
            if at not in before.late.get(user, ()):
                horizon = _time(before.horizon) if before.horizon is not None else "-"
                older = f"older than the horizon of the run before, {horizon}"
                yield f"{user}: the event of {_time(at)} is too late: {older}; see rejected_events"


def _marks(scene: Scene, window: Window) -> Text:
    """Where horizon and watermark are, each with its name to the right of the place."""
    cells: list[Cell] = [(" ", "")] * (window.width + MARGIN)
    for name, us in (("horizon", scene.horizon), ("watermark", scene.watermark)):
        if us is not None and 0 <= (at := window.cell(us)) < window.width:
            cells[at : at + 2 + len(name)] = [("▼", "bold"), (" ", ""), *((c, "") for c in name)]
    return _line("", cells)


def _axis(window: Window) -> Text:
    hours = [f"{(window.first // HOUR_US + hour) % 24:02}:00" for hour in range(window.hours + 1)]
    return _line("", [(char, "dim") for hour in hours for char in f"{hour:<{window.cells}}"])


def _ticks(scene: Scene, user: str, window: Window) -> list[Cell]:
    cells: list[Cell] = [(" ", "")] * window.width
    for times, mark in ((scene.events, OLD), (scene.new, NEW), (scene.late, LATE)):
        for us in times.get(user, ()):
            if 0 <= (at := window.cell(us)) < window.width:
                cells[at] = mark
    return cells


def _sessions(scene: Scene, user: str, window: Window) -> list[Cell]:
    cells: list[Cell] = [(" ", "")] * window.width
    for bar in (b for b in scene.bars if b.user == user):
        for at in range(max(window.cell(bar.start), 0), min(window.cell(bar.end) + 1, window.width)):
            cells[at] = BARS[bar.status]
    return cells


def _line(name: str, cells: Sequence[Cell]) -> Text:
    line = Text().append(f"{name:<{NAME_WIDTH}}", "bold")
    for style, run in groupby(cells, key=lambda cell: cell[1]):
        line.append("".join(char for char, _ in run), style)
    line.rstrip()
    return line


def _time(us: int, seen_from: int | None = None) -> str:
    """Hours and minutes; with the day where that is another than the day it is seen from."""
    day, time = short(us).split(" ")
    return time[:5] if seen_from is None or short(seen_from).startswith(day) else f"{day} {time[:5]}"


def _brief(session_id: str) -> str:
    return session_id[:8]
