"""sql: read-only queries over the tables."""

import csv
import io
import json
from collections.abc import Iterator
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from jobs.console import stdout, table
from lib import columns as C
from lib.canonical import canonical_json
from lib.config import Config
from lib.errors import UsageError
from lib.expressions import first_line
from tables.lake import Lake


def query_frame(spark: SparkSession, config: Config, query: str) -> DataFrame:
    """The frame of a query over the views sessions, live_sessions, rejected_events, runs and events.

    Errors: UsageError for what is not a query (a statement that would change something) or does not resolve.
    """
    views(spark, config)
    text = query.strip().rstrip(";")
    try:
        spark.sql(f"SELECT * FROM (\n{text}\n)").schema  # noqa: B018  (only a query may stand in parentheses)
        return spark.sql(text)
    except ParseException as error:
        raise UsageError(
            "sql takes one query (SELECT …) and changes nothing", value=text, remedy=first_line(error)
        ) from error
    except AnalysisException as error:
        raise UsageError("the query does not fit the tables", value=text, remedy=first_line(error)) from error


def views(spark: SparkSession, config: Config) -> None:
    """Register the tables that exist as views."""
    lake = Lake(spark, config)
    tables = {
        "events": lake.events.table,
        "sessions": lake.sessions.table,
        "rejected_events": lake.rejected_events.table,
        "runs": lake.runs.table,
    }
    for name, found in tables.items():
        if found.exists():
            found.read().createOrReplaceTempView(name)
            if name == "sessions":
                found.read().where(~C.col(C.IS_FINAL)).createOrReplaceTempView("live_sessions")


def documents(frame: DataFrame) -> list[Any]:
    """Row objects; times as ISO-8601 UTC."""
    return [json.loads(row[0]) for row in frame.select(canonical_json(frame.schema)).collect()]


def csv_lines(frame: DataFrame) -> Iterator[str]:
    """CSV, a header and a line a row."""
    yield _csv(frame.columns)
    for row in _as_text(frame).toLocalIterator():
        yield _csv(list(row))


def show(frame: DataFrame, limit: int) -> None:
    """An aligned table of the first rows."""
    rows = _as_text(frame).limit(limit + 1).collect()
    numeric = {f.name for f in frame.schema.fields if f.dataType.typeName() in ("byte", "short", "integer", "long")}
    shown = [[_value(v, name in numeric) for name, v in zip(frame.columns, row, strict=True)] for row in rows[:limit]]
    out = stdout()
    out.print(table(frame.columns, shown))
    if len(rows) > limit:
        out.print(f"… the first {limit} rows; --limit shows more, --csv and --json all.")
    elif not rows:
        out.print("No rows.")


def _as_text(frame: DataFrame) -> DataFrame:
    unique = frame.toDF(*[f"c{i}" for i in range(len(frame.columns))])
    return unique.select(*[F.col(c).cast("string") for c in unique.columns])


def _value(text: str | None, is_number: bool) -> object:
    return int(text) if is_number and text is not None else text


def _csv(values: list[Any]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(["" if v is None else v for v in values])
    return buffer.getvalue()
