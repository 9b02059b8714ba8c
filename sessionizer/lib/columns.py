"""Every column name of the tables and of the frames in flight, spelled once."""

import re

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

# The windows table, after the key columns.
WINDOW_START = "window_start"
WINDOW_END = "window_end"
LAST_EVENT_TIME = "last_event_time"

BEFORE_WINDOW_AGGREGATES = (WINDOW_START, WINDOW_END, LAST_EVENT_TIME, EVENT_COUNT)

# The change feed of Delta, as the source hands it over.
CHANGE_TYPE = "_change_type"
COMMIT_VERSION = "_commit_version"
COMMIT_TIMESTAMP = "_commit_timestamp"
COMMIT_METADATA = "_commit_metadata"  # userMetadata of the commit: ours, beside Delta's

# Which of several sources a row is of; of one alone there is no such column.
SOURCE = "source"

# Side tables.
EVENT_TIME = "event_time"
REASON = "reason"
WATERMARK = "watermark"
HORIZON = "horizon"
EVENT = "event"
EVENT_HASH = "event_hash"
LENGTH = "__CHAR_VARCHAR_TYPE_STRING"  # in which columns say that they are CHAR(n), a STRING for all else
ORDINAL = "ordinal"
KEPT = "kept"
SOURCE_VERSION = "source_version"
RUN_SEQ = "run_seq"

# What tables have of their own. Of events: the rejected ones and the change feed, which have the key columns, too.
OF_MEMBERS = (EVENT_TIME, SESSION_ID, RUN_ID)  # what event_sessions has, beside key and order
OF_UPDATES = (*OF_MEMBERS, "n")  # and session_updates, beside key and aggregates
FIXED_SESSION_COLUMNS = (*BEFORE_AGGREGATES, *AFTER_AGGREGATES, RUN_ID, STATE)
FIXED_WINDOW_COLUMNS = (*BEFORE_WINDOW_AGGREGATES, IS_FINAL, RUN_ID, STATE)
FIXED_EVENT_COLUMNS = (
    *(EVENT_TIME, REASON, WATERMARK, KEPT, HORIZON, EVENT, EVENT_HASH, ORDINAL),
    *(SOURCE_VERSION, RUN_SEQ, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP),
)

# In flight only: times are BIGINT microseconds since the epoch, UTC.
US = "__us"
GAP = "__gap"
VERDICT = "__verdict"
EFFECT = "__effect"
POPULATION = "__population"
RAW_US = "__raw_us"
JSON = "__json"
HASH = "__hash"
TAKEN = "__taken"
FREED = "__freed"
AGE = "__age"  # of an event that was rejected before, among equal ones
ENTERS = "__enters"
SESSION = "__session"
BUCKET = "__bucket"
START = "__start"
END = "__end"
REACH = "__reach"
COUNT = "__count"
ISLAND = "__island"
LIVE = "__live"
ABSORBED = "__absorbed"
BEYOND = "__beyond"
FRESH = "__fresh"
CHANGE = "__change"
CHANGED = "__changed"
LAST = "__last"
VIRTUAL = "__virtual"
ARRIVED = "__arrived"
LAST_ARRIVAL = "__last_arrival"
SALT = "__salt"
BUCKETS = "__buckets"
WAS_FINAL = "__was_final"
OLD_START = "__old_start"
INTO = "__into"
ABSORBED_ROWS = "__absorbed_rows"
STATUS_BEFORE = "__status_before"
IS_PART = "__is_part"
EDGE = "__edge_"  # before the number of a source: the event time that its watermark follows
MADE = "__made_"  # before the name of a key column that the source has not: tells it from the source's own
RANGE = "__range"
SEQ = "__seq"
WHY = "__why"
AHEAD = "__ahead"
FIRST_IDS = "__first_ids"
LOW = "__low"
HIGH = "__high"

# Time on a row, as its scope has it; and the scopes themselves.
W = "__watermark"
H = "__horizon"
FLUSHED = "__flushed_from"
MARK = "__flush_mark"
SCOPE_WATERMARK = "__scope_watermark"
SCOPE_FLUSH_MARK = "__scope_flush_mark"
SCOPE_FLUSHED_FROM = "__scope_flushed_from"

# In `_state`, beside the parts of aggregates.
STATE_BOUNDARIES = "_boundaries"
STATE_ARRIVED = "_arrived"
STATE_LAST_ARRIVAL = "_last_arrival"
STATE_WATERMARK = "_watermark"
STATE_FLUSH_MARK = "_flush_mark"


def col(name: str) -> Column:
    """The column of exactly this name: dots, spaces and backticks in it mean nothing special."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """The same in SQL."""
    return "`" + name.replace("`", "``") + "`"


def sketch_of(data_type: str) -> str:
    """The part of a state that has seen hashes of values of this type."""
    return "sketch_of_" + re.sub(r"\W+", "_", data_type).strip("_")


def literal(text: str) -> str:
    """A text as a literal of SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def cols(names: tuple[str, ...]) -> list[Column]:
    """`col` for each name."""
    return [col(name) for name in names]


def run_number() -> Column:
    """The number of the run that has written a row, as its id has it. BIGINT; null where no run has."""
    return F.try_element_at(F.split(col(RUN_ID), "-"), F.lit(2)).try_cast("bigint")
