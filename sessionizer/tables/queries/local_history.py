"""A table of sessions or windows as it was, and its changes since, without Spark: as `History` has them."""

from typing import Any

from sessionizer.lib import columns as C
from sessionizer.tables.delta import BYTES_WRITTEN, CHANGE_FEED
from sessionizer.tables.position import position_of
from sessionizer.tables.queries.history import BEFORE_ALL_RUNS, RunCommit, check_records_changes, no_such_run, run_in
from sessionizer.tables.queries.local import LocalTable, NeedsSpark

MOST_BYTES = 128 << 20  # of files of changes, which are held in memory


class LocalHistory:
    """What a table was, and how it came to be what it is. name: what it is called; runs: its ledger.

    Errors: as of `History`; NeedsSpark for what only Spark reads, or names better what it is that stands in the way.
    """

    def __init__(self, table: LocalTable, runs: LocalTable, name: str) -> None:
        self.table = table
        self.runs = runs
        self.name = name

    def read(self, version: int) -> Any:
        """All rows as of a version, as a dataset."""
        return self.table.at(version).dataset()

    def changes(self, first: int, last: int, columns: tuple[str, ...]) -> Any:
        """The change feed from version `first` to `last`, inclusive: these columns, what became of them, and when."""
        check_records_changes(self.name, self.table.setting(CHANGE_FEED))
        if first > last:
            return self.changes(last, last, columns).slice(0, 0)
        later = list(self.table.history(max(self.table.version - first + 1, 0)))
        size = sum(entry.metric(BYTES_WRITTEN) for entry in later)
        if any(entry.operation in ("DELETE", "RESTORE") for entry in later):  # which do not say how much
            size += self.table.bytes
        if size > MOST_BYTES:
            raise NeedsSpark("so many changes are quicker by it")
        return self.table.changes(first, last, (*columns, C.CHANGE_TYPE, C.COMMIT_VERSION))

    def now(self) -> tuple[int, RunCommit]:
        """The latest version, and the run in force there."""
        position = position_of(self.table)
        run = BEFORE_ALL_RUNS if position.manifest is None else self.run(position.manifest.run_id)
        return position.version, run

    def run(self, name: str) -> RunCommit:
        """The run of this run_id or run_seq; 0 is the time before all runs."""
        if (found := run_in(self.table, name)) is not None:
            return found
        known = self._ledger() if self.runs.exists() else []
        for run_id, run_seq in known:
            if name in (run_id, str(run_seq)):
                return RunCommit(run_id, run_seq, None)
        raise no_such_run(name)

    def _ledger(self) -> list[tuple[str, int]]:
        """The id and the number of each run."""
        read = [file.read([C.RUN_ID, C.RUN_SEQ]) for file in self.runs.files()]
        return [pair for rows in read for pair in zip(*(rows[n].to_pylist() for n in rows.column_names), strict=True)]
