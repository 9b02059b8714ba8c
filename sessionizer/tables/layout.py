"""How a table of sessions or windows lies: its columns of use, its partitions, its files, the way it is written."""

from dataclasses import dataclass
from typing import Literal

from sessionizer.lib import columns as C
from sessionizer.lib.config import Config

ROWS_PER_FILE = 250_000  # of sessions: so few that a look at one day of a year opens little else
REMEDY_OF_SESSIONS = (
    "a source column has changed its type, or the aggregates or the idle timeout have: undo it, make sessions that are "
    "there anew by `sessionizer rebuild`, or name new tables, those of `outputs`, too, and run `sessionizer init`"
)
REMEDY_OF_WINDOWS = (
    "a source column has changed its type, or sliding.aggregates have: undo it, make windows that are there anew by "
    "`sessionizer rebuild --windows`, or name new tables, those of `sliding`, and run `sessionizer init`"
)


@dataclass(frozen=True)
class Layout:
    """How a table of windows lies.

    name: what it is called. identity: the columns that tell its rows apart; start, end: when a row begins and is over;
    order: how those of a key are shown. filtered_by: the columns that files are left closed by, after the key columns.
    """

    name: str
    identity: tuple[str, ...]
    start: str
    end: str
    order: tuple[str, ...]
    filtered_by: tuple[str, ...]
    partition_by: tuple[str, ...]
    change_feed: bool
    rows_per_file: int
    deletion_vectors: bool = False
    commit: Literal["auto", "merge", "replace"] = "merge"
    remedy: str = ""

    def replaces(self, live: int, changed: int) -> bool:
        """Whether writing all live rows anew takes less than a MERGE, which joins them with the changes twice.

        One that changes most of them, or rows of one file, writes as many.
        """
        if self.commit != "auto":
            return self.commit == "replace"
        few = live + changed <= self.rows_per_file
        return few or (2 * changed >= live and not self.deletion_vectors)


def layout_of_sessions(config: Config) -> Layout:
    """Of the sessions table."""
    of = config.sessions
    return Layout(
        name="sessions",
        identity=(C.SESSION_ID,),
        start=C.SESSION_START,
        end=C.EXPIRES_AT,
        order=(C.SESSION_END, C.SESSION_START, C.SESSION_ID),
        filtered_by=(C.SESSION_START, C.SESSION_END, C.EXPIRES_AT, C.SESSION_ID),
        partition_by=tuple(of.partition_by),
        change_feed=of.change_feed,
        rows_per_file=ROWS_PER_FILE,
        deletion_vectors=of.deletion_vectors,
        commit=of.commit,
        remedy=REMEDY_OF_SESSIONS,
    )


def layout_of_windows(config: Config) -> Layout:
    """Of the windows table."""
    return Layout(
        name="windows",
        identity=(*config.source.key, C.WINDOW_START),
        start=C.WINDOW_START,
        end=C.WINDOW_END,
        order=(C.WINDOW_START,),
        filtered_by=(C.WINDOW_START, C.WINDOW_END),
        partition_by=(C.IS_FINAL,),
        change_feed=True,  # it is the one that tells every change
        rows_per_file=2_000_000,
        remedy=REMEDY_OF_WINDOWS,
    )
