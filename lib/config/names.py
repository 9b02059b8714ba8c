"""Column names that the written tables have of their own."""

from collections.abc import Iterable

from lib import columns as C

FIXED_SESSION_COLUMNS = (*C.BEFORE_AGGREGATES, *C.AFTER_AGGREGATES, C.RUN_ID, C.STATE)
FIXED_WINDOW_COLUMNS = (*C.BEFORE_WINDOW_AGGREGATES, C.IS_FINAL, C.RUN_ID, C.STATE)
# Of the rejected events and of the change feed: tables that have the key columns, but no aggregates.
FIXED_EVENT_COLUMNS = (
    *(C.EVENT_TIME, C.REASON, C.WATERMARK, C.KEPT, C.HORIZON, C.EVENT, C.EVENT_HASH, C.ORDINAL),
    *(C.SOURCE_VERSION, C.RUN_SEQ, C.CHANGE_TYPE, C.COMMIT_VERSION, C.COMMIT_TIMESTAMP),
)


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that stands there a second time, in whatever case."""
    seen: set[str] = set()
    for name in names:
        if name.lower() in seen:
            return name
        seen.add(name.lower())
    return None
