"""What one pass over the events has counted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import Column
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import PENDING
from sessionizer.lib.admission.verdicts import (
    AMENDED,
    APART,
    BEFORE_START,
    CORRECTED,
    CORRECTION,
    DUPLICATE,
    FORGOTTEN,
    IGNORED_DELETE,
    IN_REACH,
    INVALID,
    LATE,
    MOVED,
    READMITTED,
    REASONS,
    WITHDRAWN,
)
from sessionizer.lib.compute import Figures
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import latest_edges

VERDICTS = (*REASONS, AMENDED, IN_REACH, APART, CORRECTED, READMITTED, WITHDRAWN, MOVED, FORGOTTEN, PENDING)
TIMES = ("earliest", "latest", "first", "last", "low", "high", "old_low", "old_high")
# What the watermark follows, besides events without a verdict; and what touches final windows, too.
VALID = (LATE, APART, PENDING, AMENDED, IN_REACH, CORRECTED, READMITTED)
NOT_READ = (CORRECTION, IGNORED_DELETE, BEFORE_START)  # reasons that tell of no event that has come
ANYWHERE = (AMENDED, IN_REACH, CORRECTED, READMITTED, WITHDRAWN, MOVED)


@dataclass(frozen=True)
class EventCounts:
    """Counts of events; read = accepted + the rejected, without changes of rows and what lies before the start.

    Times: microseconds.

    accepted: with the amended and the corrected ones. apart: of the late ones those in sessions of their own.
    withdrawn: rows that the source no longer has; forgotten: those of them that were in no session. readmitted:
    rejected ones of earlier runs that are accepted now; moved: from a population to another. earliest, latest: of
    valid events, late ones too. first, last: of events that change the accepted bag. low, high: the least start and
    the greatest reach of what is added or taken away wherever it lies. old_low, old_high: of pending ones. None where
    there are none. partials: what the fold has left to merge. edges: how far each of several sources has come.
    """

    accepted: int
    rejected: Mapping[str, int]
    earliest: int | None = None
    latest: int | None = None
    amended: int = 0
    apart: int = 0
    corrected: int = 0
    withdrawn: int = 0
    forgotten: int = 0
    moved: int = 0
    readmitted: int = 0
    pending: int = 0
    first: int | None = None
    last: int | None = None
    low: int | None = None
    high: int | None = None
    old_low: int | None = None
    old_high: int | None = None
    partials: int = 0
    edges: Mapping[str, int | None] = field(default_factory=dict)

    @classmethod
    def of(cls, seen: Figures, sources: Sequence[str] = ()) -> "EventCounts":
        """What `count_columns` has observed."""
        n = {verdict: seen.get(verdict) or 0 for verdict in VERDICTS}
        late = {LATE: n[LATE] + n[APART]}
        return cls(
            accepted=(seen.get("accepted") or 0) + n[AMENDED] + n[IN_REACH] + n[CORRECTED],
            rejected={reason: rows for reason in REASONS if (rows := (n | late)[reason])},
            partials=seen.get("partials") or 0,
            **{name: seen.get(name) for name in TIMES},  # type: ignore[arg-type]
            edges={name: seen.get(f"{C.EDGE}{n}") for n, name in enumerate(sources)},
            **{v: n[v] for v in (AMENDED, APART, CORRECTED, WITHDRAWN, FORGOTTEN, MOVED, READMITTED, PENDING)},
        )

    @property
    def read(self) -> int:
        """All events that `where` let through."""
        return self.accepted + sum(n for reason, n in self.rejected.items() if reason not in NOT_READ)

    @property
    def late(self) -> int:
        """Events too old to be accepted."""
        return self.rejected.get(LATE, 0)

    @property
    def invalid(self) -> int:
        """Events that could be part of no session."""
        return sum(self.rejected.get(reason, 0) for reason in INVALID)

    @property
    def duplicates(self) -> int:
        """Copies of accepted events."""
        return self.rejected.get(DUPLICATE, 0)

    @property
    def leaves(self) -> int:
        """Events that the accepted bag, or a population of it, loses."""
        return self.withdrawn + self.moved

    @property
    def needs_the_bag(self) -> bool:
        """Whether rows have left the source, so that what was rejected, or accepted, must be looked up."""
        return bool(self.withdrawn or self.forgotten or self.corrected or self.rejected.get(IGNORED_DELETE))

    @property
    def takes_rejects(self) -> bool:
        """Whether rows of rejected_events may leave."""
        return bool(self.withdrawn or self.forgotten or self.readmitted or self.moved)


def count_columns(rule: Rule) -> dict[str, Column]:
    """Aggregate columns for `EventCounts.of`, over partials: `__verdict`, `__count`, `__start`, `__end`, `__reach`."""
    verdict, n = C.col(C.VERDICT), C.col(C.COUNT)
    valid = is_valid()
    start, end = C.col(C.START), C.col(C.END)
    changing = F.coalesce(verdict.isin(APART, *ANYWHERE), verdict.isNull())
    dirty = verdict.isin(*ANYWHERE)
    return {
        "partials": F.count_if(changing),
        "accepted": F.sum(F.when(verdict.isNull(), n)),
        **{v: F.sum(F.when(verdict == v, n)) for v in VERDICTS},
        "earliest": F.min(F.when(valid, start)),
        "latest": F.max(F.when(valid, end)),
        "first": F.min(F.when(changing, start)),
        "last": F.max(F.when(changing, end)),
        "low": F.min(F.when(dirty, start)),
        "high": F.max(F.when(dirty, C.col(C.REACH))),
        "old_low": F.min(F.when(verdict == PENDING, start)),
        "old_high": F.max(F.when(verdict == PENDING, end)),
        **latest_edges(rule, valid),
    }


def is_valid() -> Column:
    """Whether the watermark follows a partial with this `__verdict`."""
    return F.coalesce(C.col(C.VERDICT).isin(*VALID), F.lit(True))
