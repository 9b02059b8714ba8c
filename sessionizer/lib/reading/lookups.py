"""Look-ups: the sessions, or sliding windows, of keys in time order (KIP-94's session store; SEMANTICS §11)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.errors import ConfigError, UsageError
from sessionizer.lib.expressions import nearest
from sessionizer.lib.joins import joined
from sessionizer.lib.time.micros import timestamp
from sessionizer.lib.windows.sessions.lifecycle import OPEN

Instant = datetime | int
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def find_sessions(  # noqa: PLR0913  (what a look-up may ask, each by its name, as in Kafka's findSessions)
    sessions: DataFrame,
    key_columns: Sequence[str],
    *,
    key: Any = None,
    key_from: Any = None,
    key_to: Any = None,
    earliest_end: Instant | None = None,
    latest_start: Instant | None = None,
    latest_end: Instant | None = None,
    only_open: bool = False,
    backward: bool = False,
) -> DataFrame:
    """Sessions with `session_end >= earliest_end`, `session_start <= latest_start` and `session_end <= latest_end`.

    All bounds are inclusive, None leaves one open. With the first two a session is found if it touches the time
    between them; they may be crossed, which asks for sessions that reach from one to the other.

    `key`: one value, or one a key column as a tuple; a None in the tuple finds nulls. `key_from`, `key_to`: a range
    of keys, where a tuple may name the first columns only; nulls sort first, and from above to finds nothing.
    Values are cast to the types of the columns. Times: a datetime, which is UTC where it has no zone, or
    microseconds since the epoch.

    only_open: those that have not ended; the first of a key is its oldest.

    Out: the rows as they are, by session_end, then session_start; a look-up that is not for one key orders by the
    key columns first. `backward` turns the whole order around.
    Errors: UsageError for a key beside a range, and for more or fewer values than key columns.
    """
    found = _of_keys(sessions, key_columns, key, key_from, key_to)
    if earliest_end is not None:
        found = found.where(C.col(C.SESSION_END) >= timestamp(microseconds(earliest_end)))
    if latest_start is not None:
        found = found.where(C.col(C.SESSION_START) <= timestamp(microseconds(latest_start)))
    if latest_end is not None:
        found = found.where(C.col(C.SESSION_END) <= timestamp(microseconds(latest_end)))
    if only_open:
        found = found.where(C.col(C.STATUS) == OPEN)
    by_time = (C.SESSION_END, C.SESSION_START, C.SESSION_ID)
    return in_order(found, (*_unless_one(key, key_columns), *by_time), backward=backward)


def find_windows(  # noqa: PLR0913  (as above; Kafka's window store calls it fetch)
    windows: DataFrame,
    key_columns: Sequence[str],
    *,
    key: Any = None,
    key_from: Any = None,
    key_to: Any = None,
    start_from: Instant | None = None,
    start_to: Instant | None = None,
    backward: bool = False,
) -> DataFrame:
    """Sliding windows with `start_from <= window_start <= start_to`; None leaves a bound open. Keys as above.

    Out: the rows as they are, by key columns (unless the look-up is for one key) and window_start; `backward` turns
    the whole order around.
    """
    found = _of_keys(windows, key_columns, key, key_from, key_to)
    if start_from is not None:
        found = found.where(C.col(C.WINDOW_START) >= timestamp(microseconds(start_from)))
    if start_to is not None:
        found = found.where(C.col(C.WINDOW_START) <= timestamp(microseconds(start_to)))
    return in_order(found, (*_unless_one(key, key_columns), C.WINDOW_START), backward=backward)


def retained(rows: DataFrame, end: str, retention: int) -> DataFrame:
    """The rows that ended no further behind the latest of all than this, in microseconds (Kafka's retention)."""
    latest = rows.agg(F.max(C.col(end)).alias("__latest"))
    kept = F.unix_micros(C.col(end)) >= F.unix_micros("__latest") - retention
    return joined(rows, F.broadcast(latest), (), "inner").where(kept).drop("__latest")


def _of_keys(found: DataFrame, key_columns: Sequence[str], key: Any, key_from: Any, key_to: Any) -> DataFrame:
    check_one_or_range(key, key_from, key_to)
    if key is not None:
        for name, value in named_key(key, key_columns, "key", whole=True).items():
            same = C.col(name).isNull() if value is None else C.col(name) == _of_type(value, found, name)
            found = found.where(same)
    if key_from is not None:
        found = found.where(_not_below(found, named_key(key_from, key_columns, "key_from")))
    if key_to is not None:
        found = found.where(_not_above(found, named_key(key_to, key_columns, "key_to")))
    return found


def require_key(columns: Sequence[str], key_columns: Sequence[str], of: str) -> None:
    """Raise a ConfigError for a key column that is none of these columns of a table, capitals or not."""
    known = [column.lower() for column in columns]
    for name in key_columns:
        if name.lower() not in known:
            raise ConfigError(
                f"source.key names a column that the {of} table does not have",
                value=name,
                remedy=nearest(name, [n for n in columns if n != C.STATE]),
            )


def check_one_or_range(key: Any, key_from: Any, key_to: Any) -> None:
    """Raise a UsageError where both are asked for."""
    if key is not None and (key_from is not None or key_to is not None):
        raise UsageError("a look-up is for one key or for a range of keys, not for both", value=key)


def microseconds(instant: Instant) -> int:
    """Since the epoch; a datetime without a zone is UTC."""
    if isinstance(instant, int):
        return instant
    return ((instant if instant.tzinfo else instant.replace(tzinfo=UTC)) - EPOCH) // timedelta(microseconds=1)


def in_order(rows: DataFrame, columns: tuple[str, ...], *, backward: bool = False) -> DataFrame:
    """Rows by these columns, or exactly the other way."""
    return rows.orderBy(*[c.desc() if backward else c.asc() for c in C.cols(columns)])


def _unless_one(key: Any, key_columns: Sequence[str]) -> Sequence[str]:
    """What rows are ordered by first, unless they are of one key."""
    return () if key is not None else key_columns


def _not_below(sessions: DataFrame, bound: dict[str, Any]) -> Column:
    """Key >= bound, column after column; the first comparison alone lets files be skipped."""
    first, value = next(iter(bound.items()))
    simple = F.lit(True) if value is None else C.col(first) >= _of_type(value, sessions, first)
    whole, limit = _tuples(sessions, bound)
    return simple & (whole >= limit) if len(bound) > 1 else simple


def _not_above(sessions: DataFrame, bound: dict[str, Any]) -> Column:
    """Key <= bound, as above; a null is below everything."""
    first, value = next(iter(bound.items()))
    null = C.col(first).isNull()
    simple = null if value is None else null | (C.col(first) <= _of_type(value, sessions, first))
    whole, limit = _tuples(sessions, bound)
    return simple & (whole <= limit) if len(bound) > 1 else simple


def _tuples(sessions: DataFrame, bound: dict[str, Any]) -> tuple[Column, Column]:
    limits = [_of_type(value, sessions, name).alias(name) for name, value in bound.items()]
    return F.struct(*[C.col(name).alias(name) for name in bound]), F.struct(*limits)


def named_key(key: Any, key_columns: Sequence[str], argument: str, *, whole: bool = False) -> dict[str, Any]:
    """The values of a key by column name."""
    values = tuple(key) if isinstance(key, tuple | list) else (key,)
    if not 0 < len(values) <= len(key_columns) or (whole and len(values) != len(key_columns)):
        raise UsageError(
            f"{argument} must have {'one value' if whole else 'at most one value'} for each key column",
            value=key,
            remedy=f"the key columns are: {', '.join(key_columns)}" if key_columns else "the sessions have no key",
        )
    return dict(zip(key_columns, values, strict=False))


def _of_type(value: Any, sessions: DataFrame, name: str) -> Column:
    return F.lit(value).cast(sessions.select(C.col(name)).schema[0].dataType)
