"""Aggregates as partial / merge / finish triples, so that any split of the events gives the same result.

*partial* folds event values into parts, *merge* folds parts of parts, *finish* turns parts into the result.
Parts travel as columns of their own; on live rows they rest in `_state`, unless the result is the state.
Columns that the configuration computes in SQL have no parts: `with_sql_columns` adds them to finished rows.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.custom import custom
from sessionizer.lib.aggregates.functions import Over, Parts, Triple, triple
from sessionizer.lib.config import Aggregate as Spec
from sessionizer.lib.engine import lacks_function
from sessionizer.lib.errors import ConfigError
from sessionizer.lib.expressions import expression_of, is_collated, of_event, require_columns, with_keys
from sessionizer.lib.rule import Rule

LAYOUT = 1  # of `_state`, so that a later release can tell what it reads

# What a row has before its aggregates; sql columns see it, and nothing that changes while the row stays.
OF_SESSIONS = {
    C.SESSION_START: "timestamp",
    C.SESSION_END: "timestamp",
    C.EXPIRES_AT: "timestamp",
    C.DURATION_SECONDS: "double",
    C.EVENT_COUNT: "bigint",
}
OF_WINDOWS = {
    C.WINDOW_START: "timestamp",
    C.WINDOW_END: "timestamp",
    C.LAST_EVENT_TIME: "timestamp",
    C.EVENT_COUNT: "bigint",
}
UNSEEN_OF_SESSIONS = (C.SESSION_ID, *C.AFTER_AGGREGATES, C.RUN_ID, C.STATE)
UNSEEN_OF_WINDOWS = (C.IS_FINAL, C.RUN_ID, C.STATE)
_HINT = f"; but not what changes while the session stays as it is, such as {C.STATUS}, {C.END_REASON}, {C.IS_FINAL}"
_NOT_STORABLE = (T.NullType, T.DayTimeIntervalType, T.YearMonthIntervalType, T.CalendarIntervalType)
_NO_PARTS = Triple((), lambda value, over: [], lambda parts, over: [], lambda parts: [])


@dataclass(frozen=True)
class Aggregate:
    """One configured aggregate, bound to the value it folds; `sql`: what computes it instead from the finished row."""

    name: str
    result_columns: tuple[str, ...]
    value: Column
    triple: Triple
    part_columns: tuple[str, ...]
    sql: str | None = None

    def partial(self, over: Over = lambda function: function) -> Parts:
        """Aggregate columns over events; `over=lambda f: f.over(window)` makes them running ones."""
        return self._named(self.triple.partial(self.value, over))

    def merge(self, over: Over = lambda function: function) -> Parts:
        """Aggregate columns over partials; `over` as in `partial`."""
        return self._named(self.triple.merge(C.cols(self.part_columns), over))

    def finish(self) -> list[Column]:
        """Result columns over merged parts; none for a column that `sql` computes."""
        results = self.triple.finish(C.cols(self.part_columns))
        return [result.alias(name) for result, name in zip(results, self.result_columns, strict=self.sql is None)]

    def resume(self) -> Parts:
        """The parts, read back from a live session row."""
        if self.triple.resumes_from_result:
            return self._named([C.col(self.name)])
        return self._named([C.col(C.STATE)[self.name][part] for part in self.triple.parts])

    def state(self) -> Column | None:
        """What `_state` keeps for this aggregate: a struct of its parts, or None if there is nothing to keep."""
        if self.triple.resumes_from_result or not self.triple.parts:
            return None
        named = zip(C.cols(self.part_columns), self.triple.parts, strict=True)
        return F.struct(*[part.alias(name) for part, name in named]).alias(self.name)

    def _named(self, parts: Parts) -> Parts:
        return [part.alias(name) for part, name in zip(parts, self.part_columns, strict=True)]


def bind(rule: Rule, events: DataFrame, seen: Mapping[str, str] = OF_SESSIONS) -> tuple[Aggregate, ...]:
    """The rule's aggregates over these events. seen: what else of a row an sql column may name, with its type.

    Errors: an unknown column, a type the function cannot take or the table cannot hold, SQL that does not fit.
    """
    order = [C.col(C.US), *[C.col(name) for name in rule.order_by]]
    timed = events.withColumn(C.US, F.lit(0).cast("bigint"))
    aggregates = tuple(_bind(spec, i, order, events, timed) for i, spec in enumerate(rule.aggregates))
    if any(a.sql is not None for a in aggregates):
        _check_sql(aggregates, rule, with_keys(timed, rule.made), seen)
    return aggregates


def state_struct(aggregates: tuple[Aggregate, ...]) -> Column:
    """The `_state` column of a live row."""
    states = [state for a in aggregates if (state := a.state()) is not None]
    return F.struct(F.lit(LAYOUT).alias("_layout"), *states)


def with_sql_columns(rows: DataFrame, aggregates: tuple[Aggregate, ...], unseen: tuple[str, ...]) -> DataFrame:
    """Rows of sessions or windows with the columns that `sql` computes from the others, at the end.

    An expression sees the key columns, session_start, session_end, expires_at, duration_seconds, event_count, all
    aggregates with a function, and those with `sql` before it. It does not see what changes while the row stays:
    status, end_reason and the other columns that are not about the events (unseen: these).
    """
    for a in aggregates:
        if a.sql is not None:
            seen = [n for n in rows.columns if n not in unseen and not n.startswith("__")]
            rows = rows.withColumn(
                a.name, expression_of(a.sql, rows.select(*C.cols(tuple(seen))), f"aggregates.{a.name}.sql", _HINT)
            )
    return rows


def _bind(spec: Spec, index: int, order: list[Column], source: DataFrame, events: DataFrame) -> Aggregate:
    """source: what an expression may name; events: the same with their time."""
    if spec.sql is not None:
        return Aggregate(spec.name, spec.result_columns, F.lit(None), _NO_PARTS, (), spec.sql)
    text = spec.value(source.columns)
    value = F.lit(True) if text is None else of_event(text, source, f"aggregates.{spec.name}.of")[0]
    value_type = events.select(value.alias("value")).schema["value"].dataType
    if isinstance(value_type, T.FractionalType) and not isinstance(value_type, T.DecimalType):
        value = value + F.lit(0.0).cast(value_type)  # -0.0 becomes 0.0: equal, so nothing would order the two
    steps = custom(spec, value_type, order, events) if spec.fn == "custom" else triple(spec, value_type, order)
    bound = Aggregate(spec.name, spec.result_columns, value, steps, tuple(f"__{index}_{part}" for part in steps.parts))
    try:
        _require_storable(_results((bound,), events, state_struct((bound,)).alias(C.STATE)), spec.name, spec.of)
        if spec.fn == "approx_percentile":  # whose parts are merged by a function of their own
            events.agg(*bound.partial()).agg(*bound.merge()).schema  # noqa: B018
    except AnalysisException as error:
        if spec.fn == "approx_percentile" and lacks_function(error):
            raise ConfigError(
                f"aggregates.{spec.name}: approx_percentile needs Spark 4.1.2",
                value=events.sparkSession.version,
                remedy="take a newer PySpark, and Delta with it, or another function",
            ) from error
        raise ConfigError(
            f"aggregates.{spec.name}: {spec.fn} cannot take a value of type {value_type.simpleString().upper()}",
            value=spec.of,
            remedy="aggregate a simpler expression of it, for example to_json(…)",
        ) from error
    return bound


def _results(aggregates: tuple[Aggregate, ...], events: DataFrame, *others: Column) -> T.StructType:
    parts = [part for a in aggregates for part in a.partial()]
    results = [result for a in aggregates for result in a.finish()]
    return events.agg(F.count(F.lit(1)), *parts).select(*results, *others).schema


def _check_sql(aggregates: tuple[Aggregate, ...], rule: Rule, events: DataFrame, seen: Mapping[str, str]) -> None:
    require_columns(rule.key, events, "source.key")
    finished = events.select(
        *C.cols(rule.key),
        *[F.lit(None).cast(kind).alias(name) for name, kind in seen.items()],
        *[F.lit(None).cast(f.dataType).alias(f.name) for f in _results(aggregates, events).fields],
    )
    rows = with_sql_columns(finished, aggregates, ())
    for a in aggregates:
        if a.sql is not None:
            _require_storable(rows.select(C.col(a.name)).schema, a.name, a.sql)


def _require_storable(results: T.StructType, name: str, text: str | None) -> None:
    for field in results.fields:
        if not is_storable(field.dataType):
            raise ConfigError(
                f"aggregates.{name} must have a type that a Delta table can hold, "
                f"and this is {field.dataType.simpleString().upper()}",
                value=text,
                remedy="cast it, or write a difference of times as unix_micros(…) - unix_micros(…)",
            )


def is_storable(data_type: T.DataType) -> bool:
    """Whether a Delta table can hold values of this type."""
    match data_type:
        case T.ArrayType():
            return is_storable(data_type.elementType)
        case T.MapType():
            return is_storable(data_type.keyType) and is_storable(data_type.valueType)
        case T.StructType():
            return all(is_storable(field.dataType) for field in data_type.fields)
        case _:
            return not isinstance(data_type, _NOT_STORABLE) and not is_collated(data_type)
