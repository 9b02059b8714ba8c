"""What one pass over the events has counted."""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from lib import columns as C
from lib.events import CORRECTION, INVALID, LATE


@dataclass(frozen=True)
class Tally:
    """Counts of events; read = accepted + the rejected of every reason. Times: microseconds of valid events."""

    accepted: int
    rejected: Mapping[str, int]
    earliest: int | None
    latest: int | None

    @classmethod
    def of(cls, seen: Mapping[str, int | None]) -> "Tally":
        """The tally that `tally_columns` has observed."""
        reasons = {reason: seen.get(reason) or 0 for reason in (CORRECTION, *INVALID, LATE)}
        return cls(
            accepted=seen.get("accepted") or 0,
            rejected={reason: n for reason, n in reasons.items() if n},
            earliest=seen.get("earliest"),
            latest=seen.get("latest"),
        )

    @property
    def read(self) -> int:
        """All events that `where` let through."""
        return self.accepted + sum(self.rejected.values())

    @property
    def late(self) -> int:
        """Events older than the horizon."""
        return self.rejected.get(LATE, 0)

    @property
    def invalid(self) -> int:
        """Events without a usable key or time."""
        return sum(self.rejected.get(reason, 0) for reason in INVALID)


def tally_columns() -> dict[str, Column]:
    """Aggregate columns over folded partials for `Tally.of`."""
    verdict, n = C.col(C.VERDICT), C.col(C.COUNT)
    valid = verdict.isNull() | (verdict == LATE)
    return {
        "accepted": F.sum(F.when(verdict.isNull(), n)),
        **{reason: F.sum(F.when(verdict == reason, n)) for reason in (CORRECTION, *INVALID, LATE)},
        "earliest": F.min(F.when(valid, C.col(C.START))),
        "latest": F.max(F.when(valid, C.col(C.END))),
    }
