"""sql: read-only queries over the tables."""

import difflib
import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from decimal import Decimal
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.jobs.console import print_rows
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config, events_of
from sessionizer.lib.engine import plan_text
from sessionizer.lib.errors import UsageError
from sessionizer.lib.expressions import first_line
from sessionizer.tables.queries.history import History
from sessionizer.tables.queries.views import names_table, view_names, views_named_in
from sessionizer.tables.table_set import TableSet

ONE_QUERY = "sql takes one query (SELECT …) and changes nothing"
_NO_TABLE = re.compile(r"TABLE_OR_VIEW_NOT_FOUND.*?`([^`]+)`")
_RUNS = re.compile(r"^[\s:|+-]*'?ScriptTransformation\b|\b(?:try_)?reflect\(|\bjava_method\(", re.MULTILINE)
_REGISTERED: WeakKeyDictionary[SparkSession, set[str]] = WeakKeyDictionary()  # the tables of earlier queries
JSON_OPTIONS = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}


def query_frame(spark: SparkSession, config: Config, query: str) -> DataFrame:
    """The frame of a query over events, rejected_events, runs, sessions and the views in `tables/sql`.

    Errors: UsageError for what is not a query (a statement that would change something) or does not resolve.
    """
    known = views(spark, config, query)
    text = query.strip().rstrip(";")
    try:
        _check_runs_nothing(spark.sql(f"SELECT * FROM (\n{text}\n)"), text)  # only a query may stand in parentheses
        return spark.sql(text)
    except ParseException as error:
        raise UsageError(ONE_QUERY, value=text, remedy=first_line(error)) from error
    except AnalysisException as error:
        remedy = first_line(error)
        if (lacking := _NO_TABLE.search(remedy)) is not None:
            remedy = lacks(lacking[1], known)
        raise UsageError("the query does not fit the tables", value=text, remedy=remedy) from error


def lacks(name: str, tables: Iterable[str]) -> str:
    """That there is no such table, or not yet, and which may be meant, of these and the views."""
    names = sorted({*tables, *view_names()})
    if name.lower() in map(str.lower, names):
        return f"{name} has no table to read yet; `sessionizer init` makes it"
    near = difflib.get_close_matches(name.lower(), names, n=1)
    return f"there is no {name}; " + (f"did you mean {near[0]}?" if near else f"there are {', '.join(names)}")


def _check_runs_nothing(query: DataFrame, text: str) -> None:
    """Raise a UsageError for a query that hands rows to a program, or calls into Java: both can change anything."""
    if _RUNS.search(plan_text(query)):
        remedy = "write it without TRANSFORM … USING, MAP, REDUCE, reflect, try_reflect and java_method"
        raise UsageError(ONE_QUERY, value=text, remedy=remedy)


def views(spark: SparkSession, config: Config, query: str) -> set[str]:
    """Register the tables that exist as views, and of the views in `tables/sql` those that the query names.

    Each of those files holds one SELECT, with the frames that it reads in braces: events, sessions, rejected_events,
    runs, and `feed`, the change feed of sessions as far back as Delta gives it. Returns the names of the tables.
    """
    tables = TableSet(spark, config)
    frames = {name: table.read() for name, table in tables.existing().items()}
    for one in tables.events.each.values():
        if (name := events_of(one.of)) in frames and names_table(query, name):
            frames[name] = one.own_rows(frames[name])
    names = set(frames)
    known = _REGISTERED.setdefault(spark, set())
    for name in known - names:
        if names_table(query, name):  # of another configuration; by Connect frames of that may still ask for it
            spark.catalog.dropTempView(name)
    known |= names
    for name, frame in frames.items():
        frame.createOrReplaceTempView(name)
    for view in views_named_in(query, [C.quoted(name) for name in tables.config.source.key]):
        read = {"sessions" if name == "feed" else name for name in view.reads}
        if not read <= frames.keys():  # `lacks` says which table there is not
            spark.catalog.dropTempView(view.name)  # of an earlier query
            continue
        if "feed" in view.reads:
            frames["feed"] = History(tables.sessions, tables.runs).recorded(time.time_ns() // 1000)
        used: dict[str, Any] = {name: frames[name] for name in view.reads}
        rows = spark.sql(view.text, **used)
        view.check(rows.columns, query)
        rows.createOrReplaceTempView(view.name)
    return names


def documents(frame: DataFrame) -> list[Any]:
    """Row objects, columns in order, nulls kept; times as ISO-8601 UTC, decimals with all their digits."""
    return list(_documents(frame, in_parts=False))


def _documents(frame: DataFrame, *, in_parts: bool) -> Iterator[Any]:
    """The same one by one; in_parts: partition by partition, for more than this process holds."""
    unique, names = _unique(frame), _apart(frame.columns)
    named = [F.col(c).alias(name) for c, name in zip(unique.columns, names, strict=True)]
    texts = unique.select(F.to_json(F.struct(*named), JSON_OPTIONS))
    fields = zip(names, frame.schema.fields, strict=True)
    schema = T.StructType([T.StructField(name, f.dataType) for name, f in fields])
    for row in texts.toLocalIterator() if in_parts else texts.collect():
        yield _as_typed(json.loads(row[0], parse_float=Decimal), schema)


def _as_typed(value: Any, kind: T.DataType) -> Any:
    """A value of JSON in which all fractions are decimals; only those of decimals stay so."""
    match kind:
        case T.ArrayType() if value is not None:
            return [_as_typed(v, kind.elementType) for v in value]
        case T.MapType() if value is not None:
            return {k: _as_typed(v, kind.valueType) for k, v in value.items()}
        case T.StructType() if value is not None:
            return {f.name: _as_typed(value[f.name], f.dataType) for f in kind.fields}
        case T.DecimalType() if value is not None:
            return Decimal(value)
    return float(value) if isinstance(value, Decimal) else value


def text_rows(frame: DataFrame) -> Iterator[Sequence[str | None]]:
    """The names of the columns, then the rows as text for CSV: times and lists as in JSON."""
    yield frame.columns
    for document in _documents(frame, in_parts=True):
        yield [csv_text(value) for value in document.values()]


def csv_text(value: Any) -> str | None:
    """A value of a document as text; null is none."""
    match value:
        case None:
            return None
        case bool():
            return str(value).lower()
        case list() | dict():
            return json.dumps(value, ensure_ascii=False, default=str)
        case Decimal():
            return format(value, "f")  # with all digits, where str has an exponent
    return str(value)


def show(frame: DataFrame, limit: int, *, wide: bool = False) -> None:
    """An aligned table of the first rows."""
    rows = _as_text(frame).limit(limit + 1).collect()
    numeric = [f.dataType.typeName() in ("byte", "short", "integer", "long") for f in frame.schema.fields]
    show_rows(frame.columns, numeric, [tuple(row) for row in rows], limit, wide=wide)


def show_rows(
    columns: list[str], numeric: list[bool], rows: list[tuple[str | None, ...]], limit: int, *, wide: bool = False
) -> None:
    """An aligned table of rows that are text; there is one more than `limit` if not all are here."""
    shown = [
        [int(v) if is_number and v is not None else v for is_number, v in zip(numeric, row, strict=True)]
        for row in rows[:limit]
    ]
    print_rows(columns, shown, wide=wide)
    if len(rows) > limit:
        print(f"… the first {limit} rows; --limit shows more, --json all.")
    elif not rows:
        print("No rows.")


def _apart(names: Sequence[str]) -> list[str]:
    """The names, and of two that are alike the second with a number behind it, as DuckDB calls it."""
    found: list[str] = []
    for name in names:
        alike = (f"{name}_{n}" for n in count(1))
        found.append(name if name not in found else next(other for other in alike if other not in (*found, *names)))
    return found


def _as_text(frame: DataFrame) -> DataFrame:
    unique = _unique(frame)
    return unique.select(*[F.col(c).cast("string") for c in unique.columns])


def _unique(frame: DataFrame) -> DataFrame:
    """The columns under names that differ: a query may give two columns one name."""
    return frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])
