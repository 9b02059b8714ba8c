"""The few Delta primitives; nothing else in the project reads or writes a table."""

from sessionizer.tables.delta.appends import Unreadable, appended
from sessionizer.tables.delta.changes import Shape, as_typed, changed, parts, places
from sessionizer.tables.delta.commits import (
    BYTES_WRITTEN,
    CUT_OFF,
    FILES_WRITTEN,
    GONE,
    NO_CHANGES,
    Commit,
    Entry,
    Superseded,
    told,
)
from sessionizer.tables.delta.settings import (
    A_MONTH,
    CHANGE_FEED,
    LOG_KEPT,
    REMOVED_FILES_KEPT,
    STATISTICS,
    arrow_schema,
    cores_of,
    is_on,
    read_any_version,
)
from sessionizer.tables.delta.table import Table

__all__ = [
    "A_MONTH",
    "BYTES_WRITTEN",
    "CHANGE_FEED",
    "CUT_OFF",
    "FILES_WRITTEN",
    "GONE",
    "LOG_KEPT",
    "NO_CHANGES",
    "REMOVED_FILES_KEPT",
    "STATISTICS",
    "Commit",
    "Entry",
    "Shape",
    "Superseded",
    "Table",
    "Unreadable",
    "appended",
    "arrow_schema",
    "as_typed",
    "changed",
    "cores_of",
    "is_on",
    "parts",
    "places",
    "read_any_version",
    "told",
]
