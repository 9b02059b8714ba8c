"""changes without Spark: the same rows by DuckDB, in a second."""

from collections.abc import Iterable, Sequence

from pyspark.sql import types as T

from sessionizer.jobs.console import print_csv
from sessionizer.jobs.queries import sql_duckdb
from sessionizer.jobs.queries.changes import Asked, say_next, wanted
from sessionizer.jobs.queries.lookups import NOT_SHOWN
from sessionizer.jobs.run.kinds import ruled
from sessionizer.lib import columns as C
from sessionizer.lib.config import Config
from sessionizer.lib.reading.net_changes import BEFORE_CHANGE, CHANGE
from sessionizer.lib.windows.windows import DELETE, INSERT, UPDATE
from sessionizer.tables.layout import layout_of_sessions, layout_of_windows
from sessionizer.tables.queries.duckdb import check_told_alike, quoted
from sessionizer.tables.queries.history import RunCommit
from sessionizer.tables.queries.local import LocalTableSet, NeedsSpark
from sessionizer.tables.queries.local_history import LocalHistory

# What `net_changes` does, in DuckDB's SQL. Texts tell apart what is equal and not the same, such as 0.0 and -0.0; by
# arg_min and arg_max of a row a -0.0 in it would become 0.0. held: versions, as `net_changes` has them.
NET_CHANGES = f"""
WITH images AS (
    SELECT {{identity}}, {{row}} AS "__row", {C.CHANGE_TYPE} NOT IN {BEFORE_CHANGE} AS "__is_there",
           2 * {C.COMMIT_VERSION} + CAST("__is_there" AS INT) AS "__moment",
           list_contains({{held}}, {C.COMMIT_VERSION}) AS "__is_held"
    FROM found
), ends AS (
    SELECT arg_min("__is_there", "__moment") AS "__is_new", arg_max("__is_there", "__moment") AS "__is_there",
           list("__row" ORDER BY "__moment")[1] AS "__first", list("__row" ORDER BY "__moment")[-1] AS "__last",
           coalesce(list("__row") FILTER ("__is_held" AND "__is_there"), []) AS "__held",
           coalesce(list("__moment") FILTER ("__is_held" AND "__is_there"), []) AS "__put",
           coalesce(list("__moment" + 1) FILTER ("__is_held" AND NOT "__is_there"), []) AS "__taken"
    FROM images GROUP BY {{identity}}
), told AS (
    SELECT CASE WHEN "__is_there" AND "__is_new" THEN '{INSERT}'
                WHEN NOT "__is_there" AND (NOT "__is_new" OR len("__held") > 0) THEN '{DELETE}'
                WHEN "__is_there" AND (NOT list_has_all("__put", "__taken")
                                       OR len([x FOR x IN list_append("__held", "__first")
                                               IF x IS DISTINCT FROM "__last"
                                                  OR CAST(x AS VARCHAR) <> CAST("__last" AS VARCHAR)]) > 0)
                THEN '{UPDATE}'
           END AS {CHANGE}, unnest("__last")
    FROM ends
)
SELECT {CHANGE}, {{shown}} FROM told WHERE {CHANGE} IS NOT NULL
"""


def changes(config: Config, asked: Asked, *, windows: bool, whole: bool) -> tuple[RunCommit, sql_duckdb.Query]:
    """The query that finds what a consumer asks for, in order, and the last run that is in it.

    whole: of all columns, not only those that a person wants to see.
    Errors: NeedsSpark for what only Spark reads; else as of `changes` by Spark.
    """
    tables = LocalTableSet(config)
    of = ruled(tables.config, windows=windows)
    layout = (layout_of_windows if windows else layout_of_sessions)(tables.config)
    table, runs = tables.home(of.name)
    table.require("`sessionizer init` makes it")
    history = LocalHistory(table, runs, of.name)
    columns = tuple(name for name in table.columns if name != C.STATE)
    found = wanted(history, asked, columns)
    if found.told is not None:
        raise NeedsSpark("a RESTORE lies behind that run")
    shown = _listed(name for name in columns if whole or name not in NOT_SHOWN[of.name])
    check_told_alike(T.StructType([field for field in table.schema.fields if field.name in columns]))
    if found.span is not None:
        if "map<" in table.schema.simpleString():
            raise NeedsSpark("it compares maps")
        rows = history.changes(*found.span, columns)
        row = ", ".join(f"{quoted(name)} := {quoted(name)}" for name in columns)
        text = NET_CHANGES.format(
            identity=_listed(layout.identity), row=f"struct_pack({row})", shown=shown, held=list(found.held)
        )
    else:
        rows, text = history.read(found.version), f"SELECT {shown} FROM found"
        if found.runs is not None:
            low, high = found.runs
            number = f"TRY_CAST(split_part({C.RUN_ID}, '-', 2) AS BIGINT)"
            text += f" WHERE {C.IS_FINAL} AND {number} > {low} AND {number} <= {high}"
    text += f" ORDER BY {', '.join(f'{quoted(name)} ASC NULLS FIRST' for name in (*of.rule.key, *layout.order))}"
    return found.last, sql_duckdb.checked_query(config, text, {"found": rows})


def show(last: RunCommit, query: sql_duckdb.Query, limit: int, *, as_csv: bool, wide: bool) -> None:
    """All rows as CSV, or a table of the first ones; where to go on from is a note on stderr."""
    if as_csv:
        print_csv(sql_duckdb.text_rows(query))
    else:
        sql_duckdb.show(query, limit, wide=wide)
    say_next(last)


def _listed(names: Iterable[str] | Sequence[str]) -> str:
    return ", ".join(map(quoted, names))
