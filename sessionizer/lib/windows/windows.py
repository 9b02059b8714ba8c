"""Windows: what the accepted events make. Sessions and sliding windows are two of a kind, done by one driver."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame

from sessionizer.lib import columns as C
from sessionizer.lib.accepted import AcceptedChanges
from sessionizer.lib.compute import Compute
from sessionizer.lib.joins import joined
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.spans import Spans
from sessionizer.lib.time.watermarks import WatermarkState

# `__change` of a row that differs from what the table holds.
INSERT, UPDATE, DELETE = "insert", "update", "delete"


@dataclass(frozen=True)
class Stored:
    """The rows of the table as they were before a run. None: there are none.

    live: those that may still change. final: the others, of which little is read. lacks_state: live rows do not
    remember all that goes on with the next event, so that they are made again from their events.
    """

    live: DataFrame | None = None
    final: DataFrame | None = None
    lacks_state: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether nothing is there."""
        return self.live is None and self.final is None

    def all(self) -> DataFrame | None:
        """Both."""
        if self.live is None or self.final is None:
            return self.final if self.live is None else self.live
        return self.live.unionByName(self.final)


@dataclass(frozen=True)
class Merged:
    """Windows of the accepted events that a run may have changed; as `merge` makes them, then as `settle` does.

    windows: merged by what the table holds of them. recomputed: made from events instead; the islands that they lie in
    are `ranges`, the events in these `inside`, in these spans of time.
    """

    windows: DataFrame
    recomputed: DataFrame | None = None
    ranges: DataFrame | None = None
    inside: DataFrame | None = None
    spans: Spans = ()

    def each(self) -> list[DataFrame]:
        """Both kinds, where they are there."""
        return [self.windows, *([] if self.recomputed is None else [self.recomputed])]


def apply(table: DataFrame | None, changed: DataFrame, identity: tuple[str, ...] = (C.SESSION_ID,)) -> DataFrame:
    """The table after the changes of a run: for whoever keeps it as a frame.

    In: rows of the table, or None where there are none; changes with `__change`. Out: rows of the table.
    """
    columns = C.cols(tuple(n for n in changed.columns if not n.startswith("__")))
    written = changed.where(C.col(C.CHANGE) != DELETE).select(*columns)
    if table is None:
        return written
    return joined(table, changed, identity, "left_anti").select(*columns).unionByName(written)


@dataclass(frozen=True)
class Around:
    """Where pending events lie: between these times (inclusive). known: makes the accepted rows there, as they were."""

    low: int
    high: int
    known: Callable[[Spans], DataFrame]


class Windows(Protocol):
    """One kind of windows. Every step is a function of frames; none asks why an event came or went."""

    @property
    def rule(self) -> Rule:
        """What admission judges events by."""

    def columns(self) -> tuple[str, ...]:
        """The columns of the table in order, but run_id, which comes before the last."""

    def bucket(self) -> Column:
        """Which partial an event belongs to, besides key, verdict and population: its `__bucket`."""

    def fold(self, judged: DataFrame) -> DataFrame:
        """Partials of judged rows, apart by `__verdict`: `__bucket`, `__start`, `__end`, `__reach`, `__count`."""

    def cut_amid(self) -> Column | None:
        """Whether a partial, where there are no others than new ones, is several windows; None: it never is."""

    def judge_places(self, folded: DataFrame, around: Around, stored: Stored, clock: WatermarkState) -> DataFrame:
        """The partials with `__enters`: whether a `pending` one touches what may still change."""

    def merge(self, changes: AcceptedChanges, stored: Stored, compute: Compute) -> Merged:
        """The windows that the changes may have changed."""

    def settle(self, windows: DataFrame, before: WatermarkState, after: WatermarkState) -> DataFrame:
        """Windows as rows of the table, in the state that the watermarks after the run give them."""

    def reaches(self, merged: Merged, stored: Stored, changes: AcceptedChanges) -> DataFrame:
        """The key columns and `__reach` of all that a flush ends."""

    def diff(self, settled: Merged, stored: Stored, changes: AcceptedChanges, after: WatermarkState) -> DataFrame:
        """The rows that differ from the table, each with `__change`."""

    def counts(self) -> Mapping[str, Column]:
        """Aggregate columns over `diff` for the ledger."""
