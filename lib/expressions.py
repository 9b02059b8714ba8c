"""Columns and SQL expressions that the configuration names, resolved against a frame."""

from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from lib import columns as C
from lib.errors import ConfigError, SourceError


def expression(text: str, frame: DataFrame, field: str) -> Column:
    """The column of this name, else the SQL expression; `field` names it in errors."""
    if text.lower() in (name.lower() for name in frame.columns):
        return C.col(text)
    try:
        parsed = F.expr(text)
        # Resolves the names now, where the error can be named; WHERE takes only what is computed row by row.
        frame.where(parsed.isNotNull()).schema  # noqa: B018
    except ParseException as error:
        raise ConfigError(
            f"{field} is neither a column nor an SQL expression", value=text, remedy=first_line(error)
        ) from error
    except AnalysisException as error:
        raise SourceError(
            f"{field} does not fit the source table",
            value=text,
            remedy=f"{first_line(error)} The table has: {', '.join(frame.columns)}",
        ) from error
    if not _is_deterministic(parsed, frame):
        raise ConfigError(
            f"{field} must give the same value whenever it is computed: a run that was cut off is computed again",
            value=text,
            remedy="write it without rand(), uuid() and the like",
        )
    return parsed


def expression_of(text: str, names: DataFrame, field: str, hint: str = "") -> Column:
    """The same over names that are not those of the source: what does not fit them is an error of the config.

    names: of it only the schema counts; WHERE would find columns that a frame no longer has, so it gets another one.
    """
    try:
        return expression(text, names.sparkSession.createDataFrame([], names.schema), field)
    except SourceError as error:
        said = first_line(cause) if isinstance(cause := error.__cause__, Exception) else error.rule
        raise ConfigError(
            f"{field} does not fit what it can use",
            value=text,
            remedy=f"{said} It can use: {', '.join(names.columns) or 'no names'}{hint}",
        ) from error


def _is_deterministic(parsed: Column, frame: DataFrame) -> bool:
    plan: Any = frame.select(parsed)._jdf.queryExecution().analyzed()
    return bool(plan.expressions().head().deterministic())


def require_columns(names: tuple[str, ...], frame: DataFrame, field: str) -> None:
    """Raise a SourceError if the frame lacks one of these columns (compared without case, as Spark does)."""
    known = {name.lower() for name in frame.columns}
    for name in names:
        if name.lower() not in known:
            raise SourceError(
                f"{field} names a column that the source table does not have",
                value=name,
                remedy=f"the table has: {', '.join(frame.columns) or 'no columns'}",
            )


def first_line(error: Exception) -> str:
    """What Spark says first; the rest is plan and stack."""
    return str(error).strip().splitlines()[0]
