"""Every column name of the tables and of the frames in flight, spelled once."""

from pyspark.sql import Column
from pyspark.sql import functions as F

# The sessions table, after the key columns.
SESSION_ID = "session_id"
SESSION_START = "session_start"
SESSION_END = "session_end"
EXPIRES_AT = "expires_at"
DURATION_SECONDS = "duration_seconds"
EVENT_COUNT = "event_count"
STATUS = "status"
END_REASON = "end_reason"
IS_FINAL = "is_final"
IS_LATE = "is_late"
SUPERSEDES = "supersedes"
SESSION_DATE = "session_date"
RUN_ID = "run_id"
STATE = "_state"

BEFORE_AGGREGATES = (SESSION_ID, SESSION_START, SESSION_END, EXPIRES_AT, DURATION_SECONDS, EVENT_COUNT)
AFTER_AGGREGATES = (STATUS, END_REASON, IS_FINAL, IS_LATE, SUPERSEDES, SESSION_DATE)

# The change feed of Delta, as the source hands it over.
CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"

# Side tables.
EVENT_TIME = "event_time"
REASON = "reason"
WATERMARK = "watermark"
HORIZON = "horizon"
EVENT = "event"
EVENT_HASH = "event_hash"
ORDINAL = "ordinal"
SOURCE_VERSION = "source_version"
RUN_SEQ = "run_seq"

# In flight only: times are BIGINT microseconds since the epoch, UTC.
US = "__us"
VERDICT = "__verdict"
BUCKET = "__bucket"
START = "__start"
END = "__end"
REACH = "__reach"
COUNT = "__count"
ISLAND = "__island"
LIVE = "__live"
ABSORBED = "__absorbed"
FRESH = "__fresh"
CHANGE = "__change"


def col(name: str) -> Column:
    """The column of exactly this name: dots, spaces and backticks in it mean nothing special."""
    return F.col("`" + name.replace("`", "``") + "`")


def cols(names: tuple[str, ...]) -> list[Column]:
    """`col` for each name."""
    return [col(name) for name in names]
