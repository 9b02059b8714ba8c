"""How a table of sessions or windows lies: its columns of use, its partitions, its files, the way it is written."""

from dataclasses import dataclass
from typing import Literal


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
