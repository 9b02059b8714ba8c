"""sessions and windows without Spark: the look-ups that DuckDB answers as Spark does, in a second."""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import date

from pyspark.sql import types as T

from sessionizer.jobs.queries import sql_duckdb
from sessionizer.jobs.queries.lookups import NOT_SHOWN, SHOWN, LookUp, WindowLookUp
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.lib.errors import UsageError
from sessionizer.lib.reading.lookups import check_one_or_range, named_key, require_key
from sessionizer.lib.windows.sessions.lifecycle import OPEN
from sessionizer.lib.windows.sliding.rule import sliding_of
from sessionizer.tables.layout import layout_of_sessions, layout_of_windows
from sessionizer.tables.queries.duckdb import check_told_alike, quoted
from sessionizer.tables.queries.local import LocalTableSet, NeedsSpark

WHOLE = {"byte": 7, "short": 15, "integer": 31, "long": 63}  # bits of what they hold


def look_up(config: Config, asked: LookUp | WindowLookUp, *, whole: bool) -> sql_duckdb.Query:
    """The query that finds the rows, in order. whole: of all columns, not only those that a person wants to see.

    Errors: NeedsSpark for what it may answer otherwise, or only Spark reads; UsageError as of `find_sessions`.
    """
    if asked.version is not None or asked.at is not None:
        raise NeedsSpark("only it reads a table as it was")
    of_sessions = isinstance(asked, LookUp)
    of, end = ("sessions", C.SESSION_END) if of_sessions else ("windows", C.WINDOW_END)
    section = config.sessions if of_sessions else sliding_of(config)
    tables = LocalTableSet(config)
    key = tables.config.source.key
    table = tables.sessions if of_sessions else tables.of_windows[of]
    table.require("`sessionizer init` makes it")
    types = {f.name: f.dataType for f in table.schema.fields}
    require_key(table.schema.names, key, of)
    hidden = {C.STATE} if whole else {C.STATE, *NOT_SHOWN["sessions" if of_sessions else "windows"]}
    check_told_alike(T.StructType([field for field in table.schema.fields if field.name not in hidden]))
    conditions = [*of_keys(asked, key, table.schema), *_of_times(asked)]
    longest = section.retention if asked.retention is None else asked.retention
    if longest is not None:
        conditions.append(f"epoch_us({end}) >= (SELECT max(epoch_us({end})) FROM {of}) - {longest}")
    layout = (layout_of_sessions if of_sessions else layout_of_windows)(config)
    by = (*(() if asked.key else key), *layout.order)
    way = "DESC NULLS LAST" if asked.backward else "ASC NULLS FIRST"
    text = f"SELECT {', '.join(quoted(name) for name in types if name not in hidden)} FROM {of}"
    text += f" WHERE {' AND '.join(conditions)}" if conditions else ""
    text += f" ORDER BY {', '.join(f'{quoted(name)} {way}' for name in by)}"
    return sql_duckdb.checked_query(config, text if asked.limit is None else f"{text} LIMIT {asked.limit}")


def show(query: sql_duckdb.Query, asked: LookUp | WindowLookUp, *, wide: bool) -> None:
    """A table of the rows."""
    sql_duckdb.show(query, asked.limit or SHOWN, wide=wide)


def of_keys(asked: LookUp | WindowLookUp, key: Sequence[str], columns: T.StructType) -> Iterator[str]:
    """The conditions on the key columns, which are of these types. Errors: as of `look_up`."""
    check_one_or_range(asked.key or None, asked.key_from or None, asked.key_to or None)
    for values, option, sign in (
        (asked.key, "key", "="),
        (asked.key_from, "key_from", ">="),
        (asked.key_to, "key_to", "<="),
    ):
        if not values:
            continue
        named = named_key(values, key, option, whole=sign == "=")
        if sign != "=" and len(named) > 1:
            raise NeedsSpark("it orders keys of several columns")
        for name, value in named.items():
            known = next((f.dataType for f in columns.fields if f.name.lower() == name.lower()), T.NullType())
            condition = f"{quoted(name)} {sign} {literal(str(value), known, name, option)}"
            yield f"({condition} OR {quoted(name)} IS NULL)" if sign == "<=" else condition


def _of_times(asked: LookUp | WindowLookUp) -> Iterator[str]:
    bounds: list[tuple[str, str, int | None]]
    if isinstance(asked, LookUp):
        bounds = [
            (C.SESSION_END, ">=", asked.earliest_end),
            (C.SESSION_START, "<=", asked.latest_start),
            (C.SESSION_END, "<=", asked.latest_end),
        ]
        if asked.only_open:
            yield f"{C.STATUS} = '{OPEN}'"
    else:
        bounds = [(C.WINDOW_START, ">=", asked.start_from), (C.WINDOW_START, "<=", asked.start_to)]
    yield from (f"epoch_us({column}) {sign} {us}" for column, sign, us in bounds if us is not None)


def literal(text: str, kind: T.DataType, name: str, option: str) -> str:
    """The value as SQL; of the types whose texts both engines read alike."""
    if isinstance(kind, T.StringType):
        return "'" + text.replace("'", "''") + "'"
    fits = None
    if (bits := WHOLE.get(kind.typeName())) is not None:
        fits = re.fullmatch(r"\s*[+-]?\d{1,19}\s*", text) and -(2**bits) <= int(text) < 2**bits and str(int(text))
    elif isinstance(kind, T.DateType) and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        with suppress(ValueError):
            fits = f"DATE '{date.fromisoformat(text)}'"
    else:
        raise NeedsSpark(f"it reads texts of the type {kind.simpleString()}")
    if not fits:
        raise UsageError(
            f"--{option.replace('_', '-')} must be of type {kind.simpleString()}, as {name} is", value=text
        )
    return str(fits)
