"""Draws the pictures of docs/concepts.md: `python -m bench.concept_pictures [FOLDER]`, by default docs/pictures.

Sessions are cut here by a plain walk over the events, so that no picture can be wrong about them.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

WIDTH, LEFT, RIGHT = 760, 150, 24
STYLE = """
  text { font: 13px system-ui, sans-serif; fill: #1f2933 }
  .ground { fill: #ffffff } .axis { stroke: #c9d1d9 } .small { font-size: 11.5px; fill: #5f6b76 }
  .event { fill: #1f2933 } .reach { stroke: #8a94a0; stroke-width: 1.5; stroke-dasharray: 2 3 }
  .open { fill: #37b24d } .closed { fill: #e8872b } .final { fill: #4a7fd8 } .gone { fill: #c9d1d9 }
  .apart { fill: #8e5bd0 } .late { stroke: #e03131; stroke-width: 2.5 } .new { fill: #e03131 }
  .mark { stroke: #5f6b76; stroke-width: 1.5 } .before { fill: #4a7fd8; opacity: 0.09 }
  .bar { font-size: 11.5px; fill: #ffffff; text-anchor: middle }
  @media (prefers-color-scheme: dark) {
    text { fill: #dde3e9 } .ground { fill: #14181d } .axis { stroke: #3b444d } .small { fill: #9aa5b0 }
    .event { fill: #dde3e9 } .gone { fill: #4b555f } .mark { stroke: #9aa5b0 } .before { opacity: 0.2 }
    .bar { fill: #ffffff }
  }
"""


@dataclass
class Picture:
    """Lanes under one axis of time; times are minutes past 10:00."""

    first: float
    last: float
    drawn: list[str] = field(default_factory=list)
    y: float = 34
    marks: list[tuple[float, str]] = field(default_factory=list)

    def x(self, minute: float) -> float:
        """Where a time is."""
        return LEFT + (minute - self.first) * (WIDTH - LEFT - RIGHT) / (self.last - self.first)

    def lane(self, label: str, note: str = "") -> None:
        """Go to the next lane."""
        self.text(LEFT - 14, self.y + 15, label, end=True)
        if note:
            self.text(LEFT - 14, self.y + 31, note, "small", end=True)

    def next(self, height: float = 58) -> None:
        """End a lane."""
        self.y += height

    def text(self, x: float, y: float, text: str, style: str = "", *, end: bool = False) -> None:
        """Words, to the right of a place, or ending there."""
        anchor = ' text-anchor="end"' if end else ""
        self.drawn.append(f'<text class="{style}" x="{x:.1f}" y="{y:.1f}"{anchor}>{escape(text)}</text>')

    def events(self, minutes: Sequence[float], style: str = "event") -> None:
        """A dot for each."""
        self.drawn += [f'<circle class="{style}" cx="{self.x(m):.1f}" cy="{self.y + 6:.1f}" r="4.5"/>' for m in minutes]

    def late(self, minute: float) -> None:
        """A cross."""
        x, y = self.x(minute), self.y + 6
        self.drawn.append(f'<path class="late" d="M{x - 4.5:.1f} {y - 4.5} l9 9 m0 -9 l-9 9" fill="none"/>')

    def bar(self, start: float, end: float, status: str, text: str = "", reach: float = 0) -> None:
        """A session, and how far it reaches."""
        low, high, y = self.x(start) - 4.5, self.x(end) + 4.5, self.y + 17
        self.drawn.append(f'<rect class="{status}" x="{low:.1f}" y="{y}" width="{high - low:.1f}" height="18" rx="4"/>')
        if text:
            self.drawn.append(f'<text class="bar" x="{(low + high) / 2:.1f}" y="{y + 13}">{escape(text)}</text>')
        if reach:
            self.drawn.append(
                f'<path class="reach" d="M{high:.1f} {y + 9} H{self.x(end + reach):.1f} m0 -7 v14" fill="none"/>'
            )

    def axis(self, step: int) -> None:
        """Hours and minutes below the lanes."""
        y = self.y + 2
        lines = [f'<path class="axis" d="M{LEFT - 6} {y} H{WIDTH - RIGHT + 6}" fill="none"/>']
        for minute in range(int(self.first), int(self.last) + 1, step):
            lines.append(f'<path class="axis" d="M{self.x(minute):.1f} {y} v5" fill="none"/>')
            label = f"{10 + minute // 60}:{minute % 60:02}"
            lines.append(
                f'<text class="small" x="{self.x(minute):.1f}" y="{y + 19}" text-anchor="middle">{label}</text>'
            )
        self.drawn += lines
        self.y += 28

    def save(self, file: Path, title: str) -> None:
        """Write it."""
        marks = []
        for minute, label in self.marks:
            x = self.x(minute)
            marks.append(f'<path class="mark" d="M{x:.1f} 26 V{self.y - 26}" fill="none"/>')
            marks.append(f'<text x="{x:.1f}" y="18" text-anchor="middle">{escape(label)}</text>')
        body = "\n".join([*marks, *self.drawn])
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {self.y:.0f}" role="img">'
        ground = '<rect class="ground" width="100%" height="100%" rx="8"/>'
        file.write_text(f"{head}\n<title>{escape(title)}</title>\n<style>{STYLE}</style>\n{ground}\n{body}\n</svg>\n")


def sessions(events: Sequence[float], gap: float, longest: float | None = None) -> list[tuple[float, float]]:
    """First and last event of each session."""
    found: list[tuple[float, float]] = []
    for at in sorted(events):
        if found and at <= found[-1][1] + gap and (longest is None or at - found[-1][0] <= longest):
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def count(events: Sequence[float], span: tuple[float, float]) -> str:
    """How many events a session holds, in words."""
    number = sum(span[0] <= at <= span[1] for at in events)
    return "1" if number == 1 else f"{number} events"


def gap() -> Picture:
    picture, events = Picture(0, 150), (2, 12, 30, 41, 88, 100)
    picture.y = 16
    picture.lane("ann", "gap 30m")
    picture.events(events)
    for start, end in sessions(events, 30):
        picture.bar(start, end, "final", count(events, (start, end)), reach=30)
    picture.next(50)
    picture.text(picture.x(2) - 4, picture.y + 8, "session_start", "small")
    picture.text(picture.x(41) - 4, picture.y + 8, "session_end", "small")
    picture.text(picture.x(71) - 4, picture.y + 8, "expires_at", "small")
    picture.next(22)
    picture.axis(30)
    return picture


def bridging() -> Picture:
    picture, known, delayed = Picture(0, 75), (5, 15, 50, 62), 31
    picture.y = 16
    picture.lane("first run", "gap 30m")
    picture.events(known)
    for start, end in sessions(known, 30):
        picture.bar(start, end, "open", "id a" if start < 20 else "id b")
    picture.next()
    picture.lane("second run", "10:31 arrives")
    picture.events(known)
    picture.events([delayed], "new")
    for start, end in sessions((*known, delayed), 30):
        picture.bar(start, end, "open", "id a, supersedes [b]")
    picture.next(48)
    picture.axis(15)
    return picture


def watermark() -> Picture:
    picture = Picture(-120, 190)
    w, h = 150, 30
    picture.marks = [(h, "horizon"), (w, "watermark")]
    edge = picture.x(h)
    picture.drawn.append(f'<rect class="before" x="{LEFT - 6}" y="26" width="{edge - LEFT + 6:.1f}" height="216"/>')
    for name, events, status, note in (
        ("ann", (-100, -90, -62), "final", "reaches 9:28"),
        ("bob", (40, 55, 80), "closed", "reaches 11:50"),
        ("cleo", (110, 125, 150), "open", "reaches 13:00"),
    ):
        picture.lane(name, note)
        picture.events(events)
        (span,) = sessions(events, 30)
        picture.bar(*span, status, status, reach=30)
        picture.next(52)
    picture.lane("next run", "two old events")
    picture.late(-75)
    picture.text(picture.x(-75) + 10, picture.y + 10, "late: rejected_events", "small")
    picture.events([65], "new")
    picture.text(picture.x(65) + 10, picture.y + 10, "delayed, in time", "small")
    picture.next(40)
    picture.text(LEFT, picture.y + 10, "older: late", "small")
    picture.text(picture.x(h) + 8, picture.y + 10, "allowed_lateness: may still change", "small")
    picture.next(18)
    picture.axis(60)
    return picture


def max_duration() -> Picture:
    picture, events = Picture(-30, 150), (0, 20, 40, 60, 80, 100, 120, 140)
    picture.y = 16
    for label, note, found in (
        ("first run", "max_duration 1h", events),
        ("second run", "9:45 arrives", (-15, *events)),
    ):
        picture.lane(label, note)
        picture.events(events)
        picture.events([at for at in found if at not in events], "new")
        for start, end in sessions(found, 30, 60):
            picture.bar(start, end, "open", count(found, (start, end)))
        picture.next(52)
    picture.axis(30)
    return picture


def content() -> Picture:
    picture, pages, logins = Picture(0, 75), (8, 25, 47, 58), (2, 33)
    picture.y = 16
    for label, note, late in (("first run", "starts_when: login", ()), ("second run", "a login of 10:14", (14,))):
        begins = sorted((*logins, *late))
        picture.lane(label, note)
        picture.events(pages)
        picture.events(begins, "new")
        for start, following in zip(begins, (*begins[1:], 75), strict=True):
            own = [at for at in sorted((*pages, *begins)) if start <= at < following]
            picture.bar(start, own[-1], "open", count(own, (start, own[-1])))
        picture.next(52)
    picture.axis(15)
    return picture


def late_events() -> Picture:
    picture, known, late = Picture(-30, 120), (5, 20, 62, 75), 40
    picture.y = 16
    picture.lane("before", "all are final")
    picture.events(known)
    for start, end in sessions(known, 30):
        picture.bar(start, end, "final", count(known, (start, end)))
    picture.next()
    for policy, note in (("quarantine", "the default"), ("amend", ""), ("separate", "")):
        picture.lane(policy, note)
        picture.events(known)
        kept = (*known, late) if policy == "amend" else known
        if policy == "quarantine":
            picture.late(late)
            picture.text(picture.x(late) - 26, picture.y + 30, "kept aside", "small")
        else:
            picture.events([late], "new")
        for start, end in sessions(kept, 30):
            picture.bar(start, end, "final", count(kept, (start, end)))
        if policy == "separate":
            picture.bar(late, late, "apart")
            picture.text(picture.x(late) + 8, picture.y + 30, "is_late", "small")
        picture.next()
    picture.y -= 8
    picture.axis(30)
    return picture


PICTURES = {
    "gap": (gap, "Six events of ann; a pause longer than the gap makes them two sessions"),
    "bridging": (bridging, "A delayed event makes two sessions one; the id of the second is superseded"),
    "watermark": (watermark, "Sessions left of the horizon are final, left of the watermark closed, else open"),
    "max_duration": (max_duration, "A chain of events cut every hour; an earlier event moves all cuts"),
    "content": (content, "Two sessions within a gap, cut by a login; a late login cuts the first one again"),
    "late_events": (late_events, "What quarantine, amend and separate make of an event that is too late"),
}


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/pictures")
    folder.mkdir(parents=True, exist_ok=True)
    for name, (draw, title) in PICTURES.items():
        draw().save(folder / f"{name}.svg", title)


if __name__ == "__main__":
    main()
