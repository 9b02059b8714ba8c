"""What one pass over the events has counted."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from lib import columns as C
from lib.admission.events import AMENDED, CORRECTED, DUPLICATE, INVALID, LATE, REASONS, WITHDRAWN


@dataclass(frozen=True)
class Tally:
    """Counts of events; read = accepted + the rejected of every reason. Times: microseconds.

    accepted: with the amended and the corrected ones. withdrawn: rows that the source no longer has, which count as
    read in the run that read them. readmitted: rejected ones of earlier runs that are accepted now. earliest, latest:
    of valid events, late ones too. low, high: the least start and the greatest reach of what has sessions recomputed;
    None where nothing has.
    """

    accepted: int
    rejected: Mapping[str, int]
    earliest: int | None
    latest: int | None
    amended: int = 0
    corrected: int = 0
    withdrawn: int = 0
    readmitted: int = 0
    low: int | None = None
    high: int | None = None

    @classmethod
    def of(cls, seen: Mapping[str, int | None]) -> "Tally":
        """The tally that `tally_columns` has observed."""
        reasons = {reason: seen.get(reason) or 0 for reason in REASONS}
        amended, corrected = seen.get(AMENDED) or 0, seen.get(CORRECTED) or 0
        return cls(
            accepted=(seen.get("accepted") or 0) + amended + corrected,
            rejected={reason: n for reason, n in reasons.items() if n},
            earliest=seen.get("earliest"),
            latest=seen.get("latest"),
            amended=amended,
            corrected=corrected,
            withdrawn=seen.get(WITHDRAWN) or 0,
            low=seen.get("low"),
            high=seen.get("high"),
        )

    @property
    def read(self) -> int:
        """All events that `where` let through."""
        return self.accepted + sum(self.rejected.values())

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


def tally_columns() -> dict[str, Column]:
    """Aggregate columns over folded partials for `Tally.of`."""
    verdict, n = C.col(C.VERDICT), C.col(C.COUNT)
    valid = verdict.isNull() | verdict.isin(LATE, AMENDED, CORRECTED)
    dirty = verdict.isin(AMENDED, CORRECTED, WITHDRAWN)
    return {
        "accepted": F.sum(F.when(verdict.isNull(), n)),
        **{v: F.sum(F.when(verdict == v, n)) for v in (*REASONS, AMENDED, CORRECTED, WITHDRAWN)},
        "earliest": F.min(F.when(valid, C.col(C.START))),
        "latest": F.max(F.when(valid, C.col(C.END))),
        "low": F.min(F.when(dirty, C.col(C.START))),
        "high": F.max(F.when(dirty, C.col(C.REACH))),
    }
