"""What the oracle keeps: accepted and rejected rows, where time stands, and the rows of sessions."""

from dataclasses import dataclass, field

from tests.machine.rule import Key, Row, time_of

ABOVE_ALL = 10**18


@dataclass(eq=False)
class Event:
    """An accepted row. `frozen`: the final session that keeps it, where those stay as they are."""

    row: Row
    arrived: int
    run: int
    frozen: int | None = None

    @property
    def t(self) -> int:
        return time_of(self.row)


@dataclass(frozen=True)
class Rejected:
    """A row by which the sessions differ from the source. `run`: that of its session, where it is `apart`."""

    row: Row
    reason: str
    kept: str
    run: int


@dataclass(frozen=True)
class End:
    """What ended sessions by hand, or for want of events: those that reach at least `since`, and not `until`."""

    reason: str
    since: int
    until: int
    run: int


@dataclass
class Scope:
    """Where time stands."""

    watermark: int | None = None
    mark: int | None = None
    ends: list[End] = field(default_factory=list)

    def horizon(self, allowed: int) -> int | None:
        known = [t for t in (None if self.watermark is None else self.watermark - allowed, self.mark) if t is not None]
        return max(known, default=None)

    def reach(self, time: int) -> None:
        self.watermark = time if self.watermark is None else max(self.watermark, time)


@dataclass(eq=False)
class Session:
    """A row of sessions. States: those that the rules leave open, mostly one."""

    key: Key
    events: list[Event]
    start: int
    end: int
    expires: int
    late: bool = False
    states: set[tuple[str, str | None]] = field(default_factory=set)


@dataclass
class Counts:
    """Of one increment. `plain`: it had insertions alone; `seen`: the rows that the watermark follows."""

    plain: bool
    seen: list[Row] = field(default_factory=list)
    accepted: int = 0
    late: int = 0
    invalid: int = 0
    duplicates: int = 0
    amended: int = 0
    watermark: int | None = None
    horizon: int | None = None
