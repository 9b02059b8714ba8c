"""What the oracle keeps: accepted and rejected rows, where time stands, and the rows of sessions."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

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


@dataclass(frozen=True, eq=False)
class Rejected:
    """A row by which the sessions differ from the source. `run`: that of its session, where it is `apart`.

    version: of a correction, that of the source which made it.
    """

    row: Row
    reason: str
    kept: str
    run: int
    version: int | None = None


@dataclass(frozen=True)
class End:
    """What ended sessions by hand, or for want of events: those that reach at least `since`, and not `until`.

    Those that reach less than `surely` were final before, unless they have been made anew.
    """

    reason: str
    since: int
    until: int
    run: int
    surely: int


@dataclass
class Scope:
    """Where time stands."""

    watermark: int | None = None
    mark: int | None = None
    ends: list[End] = field(default_factory=list)

    def horizon(self, allowed: int) -> int | None:
        known = [t for t in (None if self.watermark is None else self.watermark - allowed, self.mark) if t is not None]
        return max(known, default=None)

    @property
    def begins(self) -> int:
        """From where on what is ended now is open."""
        return -ABOVE_ALL if self.watermark is None else self.watermark

    @property
    def ended(self) -> int:
        """The same where older ends count, too: those of a key whose watermark has been forgotten."""
        return max((t for t in (self.watermark, self.mark) if t is not None), default=-ABOVE_ALL)

    def reach(self, time: int) -> None:
        self.watermark = time if self.watermark is None else max(self.watermark, time)


@dataclass(eq=False)
class Session:
    """A row of sessions. States: those that the rules leave open, mostly one.

    ahead: how many events of the time of its first one belong to the sessions before it. why: what has ended it, but
    for the clocks.
    """

    key: Key
    events: list[Event]
    start: int
    end: int
    expires: int
    late: bool = False
    ahead: int = 0
    why: str = "gap"
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


class OfRow(Protocol):
    """What belongs to a row of the source."""

    @property
    def row(self) -> Row:
        """It."""


Item = TypeVar("Item", bound=OfRow)


class Bag(Generic[Item]):
    """Events, or rejected rows, found by their row, and by what `alike` says of it."""

    def __init__(self, alike: Callable[[Row], Any] = lambda row: None) -> None:
        self.alike = alike
        self.by_row: dict[Row, list[Item]] = defaultdict(list)
        self.by_likeness: dict[Any, list[Item]] = defaultdict(list)

    def __iter__(self) -> Iterator[Item]:
        return (item for items in self.by_row.values() for item in items)

    def __len__(self) -> int:
        return sum(map(len, self.by_row.values()))

    def add(self, item: Item) -> None:
        self.by_row[item.row].append(item)
        self.by_likeness[self.alike(item.row)].append(item)

    def extend(self, items: Iterable[Item]) -> None:
        for item in items:
            self.add(item)

    def remove(self, item: Item) -> None:
        same = self.by_row[item.row]
        same.remove(item)
        if not same:
            del self.by_row[item.row]
        self.by_likeness[self.alike(item.row)].remove(item)

    def of(self, row: Row) -> list[Item]:
        return self.by_row.get(row, [])

    def like(self, row: Row) -> list[Item]:
        return self.by_likeness.get(self.alike(row), [])
