"""Small tables on a path, opened and written without Spark: its jobs around one row take a second."""

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
from deltalake.exceptions import DeltaError

from tables.delta.commits import Commit
from tables.delta.settings import FENCES_KEPT

if TYPE_CHECKING:
    import pyarrow as pa

# What writing without Spark knows: the first features of Delta, and paths that are URLs as they stand.
PLAIN = 2
UNUSUAL_IN_PLAIN_PATHS = set("%[]^|")


def open_plainly(location: str) -> deltalake.DeltaTable | None:
    """The latest version; None where Spark alone knows how to open or write it."""
    folder = Path(location).absolute()
    if UNUSUAL_IN_PLAIN_PATHS & set(str(folder)):
        return None
    try:
        table = deltalake.DeltaTable(folder)
    except (DeltaError, OSError):  # Spark tells better what is wrong
        return None
    forgets = FENCES_KEPT in table.metadata().configuration
    return None if forgets or table.protocol().min_writer_version > PLAIN else table


def append_plainly(table: deltalake.DeltaTable, rows: "pa.Table", commit: Commit) -> bool:
    """Whether it could be done. Whatever stops it, Spark may try: the fence is the same."""
    fence = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(commit.app_id, commit.txn)])
    no_more = deltalake.PostCommitHookProperties(create_checkpoint=False, cleanup_expired_logs=False)
    try:
        deltalake.write_deltalake(
            table, rows, mode="append", commit_properties=fence, post_commithook_properties=no_more
        )
    except Exception:  # it raises whatever its own libraries do
        return False
    return True


def is_in(table: deltalake.DeltaTable, commit: Commit) -> bool:
    """Whether this transaction of the application, or a later one, is in the table."""
    last = table.transaction_version(commit.app_id)
    return last is not None and last >= commit.txn
