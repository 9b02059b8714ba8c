"""What one run reads of the sources, by version."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from sessionizer.tables.delta import Table
from sessionizer.tables.manifest import Consumed, Read


@dataclass(frozen=True)
class Increment:
    """Source versions that one run reads: `first` to `last`, both inclusive; `first` None: all rows at `last`.

    mapping: the same of the mapping table; None: the source has none, or nothing of it has been read. adds: whether the
    log says that these versions do no more than add rows.
    """

    first: int | None
    last: int
    files: int = 0
    bytes: int = 0
    mapping: "Increment | None" = None
    adds: bool = False

    @property
    def only_adds(self) -> bool:
        """Whether all of it are rows that are new, as far as it is known."""
        return (self.first is None or self.is_passed or self.adds) and not self.stitches

    @property
    def is_passed(self) -> bool:
        """Whether no rows of the table are read."""
        return self.first is not None and self.first > self.last

    @property
    def stitches(self) -> bool:
        """Whether changes of the mapping table are read."""
        return self.mapping is not None and self.mapping.first is not None and not self.mapping.is_passed

    def to_its_end(self) -> "Increment":
        """Nothing behind it."""
        return Increment(self.last + 1, self.last)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read, only a position to take."""
        return self.is_passed and not self.stitches

    def is_before(self, end: "Increment") -> bool:
        """Whether the table, or its mapping table, goes on behind it, up to that end."""
        if self.mapping is not None and end.mapping is not None and self.mapping.is_before(end.mapping):
            return True
        return self.last < end.last


NOTHING = Increment(0, -1)  # of a source that no run has begun to read


def passed(done: Read | None) -> Increment:
    """Nothing behind the version that has been consumed."""
    if done is None or done.to_version is None:
        return NOTHING
    stitch = done.stitch if isinstance(done, Consumed) else None
    return Increment(done.version + 1, done.version, mapping=None if stitch is None else passed(stitch))


def behind_upkeep(table: Table, done: Read | None, last: int) -> Increment:
    """The same behind the commits up to a version that have moved rows at most, whose files may be all there are."""
    stays = passed(done)
    if stays == NOTHING:
        return stays
    first = next((v for v in range(stays.last + 1, last + 1) if not table.keeps_rows(v)), last + 1)
    return replace(stays, first=first, last=first - 1)


def as_read(done: Read) -> Increment:
    """What a run has read."""
    stitch = done.stitch if isinstance(done, Consumed) else None
    return Increment(done.from_version, done.version, mapping=None if stitch is None else as_read(stitch))


@dataclass(frozen=True)
class Increments:
    """What one run reads of each source, by its name; of the only one by "". more: those with more to read."""

    of: Mapping[str, Increment]
    more: Collection[str] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to read, only positions to take."""
        return all(one.is_empty for one in self.of.values())

    @property
    def begun(self) -> set[str]:
        """The sources that have been begun, if only by a position."""
        return {name for name, one in self.of.items() if one != NOTHING}

    @property
    def is_whole(self) -> bool:
        """Whether all rows of all sources are read that have been begun."""
        return all(one.first is None or one == NOTHING for one in self.of.values()) and not self.is_empty

    @property
    def only_adds(self) -> bool:
        """Whether all rows that it reads are new, as far as it is known."""
        return all(one.only_adds for one in self.of.values())

    @property
    def bytes(self) -> int:
        """How large the files are that it reads, as far as it is known."""
        return sum(one.bytes for one in self.of.values())

    @property
    def files(self) -> int:
        """How many they are."""
        return sum(one.files for one in self.of.values())

    def awaiting(self, ends: "Increments") -> "Increments":
        """The same, with more to read of those that go on behind it, up to these ends."""
        return replace(self, more={*self.more, *[n for n in self.begun if self.of[n].is_before(ends.of[n])]})

    def of_those(self, names: Collection[str]) -> "Increments":
        """The same without what is read of other sources."""
        return Increments({name: one if name in names else NOTHING for name, one in self.of.items()})

    @property
    def lasts(self) -> dict[str, int]:
        """Up to which version each source is read; -1: none of it yet."""
        return {name: one.last for name, one in self.of.items()}

    @property
    def first(self) -> int | None:
        """The first version that is read of the only source."""
        return self.of[""].first

    @property
    def last(self) -> int:
        """The last one of the only source."""
        return self.of[""].last

    def as_of(self) -> str:
        """Up to which versions it reads, for people."""
        return ", ".join(f"{name} {one.last}".strip() for name, one in self.of.items())

    def told(self) -> str:
        """The versions that it reads, for people: `1 to 2`, of several `clicks 1 to 2, calls 5 to 5`."""
        read = [(name, one, "") for name, one in self.of.items() if not one.is_passed]
        stitched = [(name, one.mapping) for name, one in self.of.items() if one.stitches]
        read += [(name, one, " of the mapping table") for name, one in stitched if one is not None]
        told = ((name, "all" if one.first is None else one.first, one.last, whose) for name, one, whose in read)
        return ", ".join(f"{name} {first} to {last}{whose}".strip() for name, first, last, whose in told)
