"""sql --engine duckdb: the same queries in a second, without Spark; in DuckDB's SQL."""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import MAXYEAR, date, datetime
from itertools import chain, islice
from math import isfinite, isnan
from typing import Any

import duckdb

from sessionizer.jobs.queries.sql import ONE_QUERY, csv_text, lacks, show_rows
from sessionizer.lib.config import Config
from sessionizer.lib.errors import UsageError
from sessionizer.tables.queries.duckdb import connect
from sessionizer.tables.queries.local import LocalTableSet, NeedsSpark
from sessionizer.tables.queries.oldest import single

WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT")
ZONED = "TIMESTAMP WITH TIME ZONE"
# How DuckDB hands out times and days of years that Python lacks: beyond 9999, before 1.
_FAR = re.compile(r"(\d+)(-\d\d-\d\d)( \(BC\))?(?: (\d\d:\d\d:\d\d)(\.\d+)?(\+00)?)?")
_NO_TABLE = re.compile(r"Catalog Error: Table with name (\S+) does not exist")


@dataclass(frozen=True)
class Query:
    """A query that fits the tables. columns: name and type of each."""

    connection: duckdb.DuckDBPyConnection
    text: str
    columns: tuple[tuple[str, str], ...]

    @property
    def names(self) -> list[str]:
        """The names of its columns."""
        return [name for name, _ in self.columns]


def checked_query(config: Config, query: str, frames: Mapping[str, Any] | None = None) -> Query:
    """A query over the tables and views, or over `frames` of Arrow alone; nothing is computed yet.

    Errors: UsageError for what is not a query or does not resolve; NeedsSpark for tables that only Spark reads.
    """
    text, tables = query.strip().rstrip(";"), LocalTableSet(config)
    try:
        connection = connect(tables, text, frames)
        if len(connection.extract_statements(text)) != 1:
            raise UsageError(ONE_QUERY, value=text)
        found = connection.execute(f"SELECT * FROM (\n{text}\n) LIMIT 0")  # only a query may stand in parentheses
        return Query(connection, text, tuple((column[0], str(column[1])) for column in found.description))
    except duckdb.ParserException as error:
        raise UsageError(ONE_QUERY, value=text, remedy=_said(error)) from error
    except duckdb.Error as error:
        lacking = _NO_TABLE.match(str(error))
        remedy = _said(error) if lacking is None else lacks(lacking[1], tables.existing())
        raise UsageError("the query does not fit the tables", value=text, remedy=remedy) from error


def documents(query: Query) -> list[Any]:
    """Row objects, columns in order, nulls kept; times as ISO-8601 UTC, decimals with all their digits.

    Errors: NeedsSpark for texts that are none in UTF-8 (here and below).
    """
    return [dict(zip(query.names, _values(query, row), strict=True)) for row in _rows(query, query.text)]


def text_rows(query: Query) -> Iterator[Sequence[str | None]]:
    """The names of the columns, then the rows as text for CSV. Errors: NeedsSpark before the first is told."""
    found = _rows(query, query.text)
    first = [*islice(found, 1)]
    yield query.names
    try:
        for row in chain(first, found):
            yield [csv_text(value) for value in _values(query, row)]
    except NeedsSpark as reason:
        raise UsageError("the query cannot be answered to its end", remedy=f"Spark can: {reason}") from reason


def show(query: Query, limit: int, *, wide: bool = False) -> None:
    """An aligned table of the first rows."""
    rows = list(_rows(query, f"{_as_text(query)} LIMIT {limit + 1}"))
    show_rows(query.names, [kind in WHOLE for _, kind in query.columns], rows, limit, wide=wide)


def rows(query: Query) -> Iterator[tuple[Any, ...]]:
    """The rows, as Python has their values."""
    yield from _rows(query, query.text)


def _rows(query: Query, text: str) -> Iterator[tuple[Any, ...]]:
    try:
        result = query.connection.execute(text)
        while batch := result.fetchmany(10_000):
            yield from batch
    except duckdb.Error as error:
        if "nvalid unicode" in str(error):
            raise NeedsSpark("a text is none in UTF-8, which DuckDB cannot tell") from error
        raise UsageError("the query cannot be answered", value=query.text, remedy=_said(error)) from error


def _as_text(query: Query) -> str:
    """The query with every value as Spark would write it: times in UTC, without a zone."""
    values = [f"CAST(#{i} AS TIMESTAMP)" if kind == ZONED else f"#{i}" for i, (_, kind) in enumerate(query.columns, 1)]
    return f"SELECT {', '.join(f'CAST({value} AS VARCHAR)' for value in values)} FROM (\n{query.text}\n)"


def _values(query: Query, row: Sequence[Any]) -> Iterator[Any]:
    for (_, kind), value in zip(query.columns, row, strict=True):
        if kind in ("FLOAT", "FLOAT[]"):
            yield _as_json(single(value))
        else:
            yield _as_json(_far(value) if kind.startswith(("TIMESTAMP", "DATE")) else value)


def _far(value: Any) -> Any:
    """A time, a day or an array of them, those that are texts as Spark writes them."""
    if isinstance(value, list):
        return [_far(one) for one in value]
    if not isinstance(value, str) or (found := _FAR.fullmatch(value)) is None:
        return value
    digits, day, before, time, fraction, zone = found.groups()
    year = 1 - int(digits) if before else int(digits)
    sign = "-" if year < 0 else "+" if year > MAXYEAR else ""
    clock = f"T{time}{fraction or '.':0<7}{'Z' if zone else ''}" if time else ""
    return f"{sign}{abs(year):04}{day}{clock}"


def _as_json(value: object) -> object:
    match value:
        case datetime():
            zone = "Z" if value.tzinfo else ""
            return value.replace(tzinfo=None).isoformat(timespec="microseconds") + zone
        case date():
            return value.isoformat()
        case float() if not isfinite(value):  # JSON has no number for it; as Spark writes it
            return "NaN" if isnan(value) else "Infinity" if value > 0 else "-Infinity"
        case bytes():
            return b64encode(value).decode()
        case list() | tuple():
            return [_as_json(v) for v in value]
        case dict():
            return {str(k): _as_json(v) for k, v in value.items()}
    return value


def _said(error: duckdb.Error) -> str:
    """What DuckDB has to say, without the query that it repeats."""
    return str(error).split("\n\n")[0].replace("\n", " ")
