"""What passes between the halves: signed changes of the accepted bag, and nothing about why they came (SEMANTICS §3).

Admission decides which events count and makes these changes. Windows makes sessions, or sliding windows, of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sessionizer.lib.joins import joined
from sessionizer.lib.time.spans import Spans
from sessionizer.lib.time.watermarks import WatermarkState

# `__effect` of a row, or of a partial of rows; null: it is no event of the accepted bag.
JOINS = "joins"  # enters, and touches nothing that is final
ADDS = "adds"  # enters, wherever it lies
LEAVES = "leaves"  # is gone
PENDING = "pending"  # enters if it touches what may still change; windows say so


@dataclass(frozen=True)
class Again:
    """Windows to make again though no event has come or gone: those that touch `[low, high)`, of these keys.

    keys: rows of the key columns; None: all.
    """

    low: int
    high: int
    keys: DataFrame | None = None

    def of_keys(self, frame: DataFrame, key: tuple[str, ...]) -> DataFrame:
        """The rows of these keys."""
        return frame if self.keys is None else joined(frame, F.broadcast(self.keys), key, "left_semi")


@dataclass(frozen=True)
class AcceptedChanges:
    """Signed changes of the accepted bag.

    partials: what the windows' own `fold` has made of the rows, with `__effect`; `__population`, where some events
    are apart from the others: windows are made of one population at a time (null: the main one).
    accepted: makes the rows of the bag after the changes that lie in spans of time: the source's columns, `__us`,
    `__gap`, `__population`.
    before: the watermarks that the events were judged by. earliest: of all valid events. first, last: between which all
    events lie that change anything. low, high: the least start and the greatest reach of what
    adds or leaves; None where nothing does. leaves: whether anything does. populations: those apart that lose events.
    again: what is to be made again besides. looks_back: rows that nothing has touched stay as they are. amid: where the
    table has no rows, between which times partials lie that are several windows; None: none is.
    """

    partials: DataFrame
    accepted: Callable[[Spans], DataFrame]
    before: WatermarkState
    earliest: int | None = None
    first: int | None = None
    last: int | None = None
    low: int | None = None
    high: int | None = None
    leaves: bool = False
    populations: tuple[int, ...] = ()
    again: Again | None = None
    looks_back: bool = False
    amid: tuple[int, int] | None = None
