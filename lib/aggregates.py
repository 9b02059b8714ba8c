"""Aggregates as partial / merge / finish triples, so that any split of the events gives the same result.

*partial* folds event values into parts, *merge* folds parts of parts, *finish* turns parts into the result.
Parts travel as columns of their own; on live rows they rest in `_state`, unless the result is the state.
"""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lib import columns as C
from lib.config import Aggregate as Spec
from lib.errors import ConfigError
from lib.expressions import expression
from lib.rule import Rule

Parts = list[Column]
LAYOUT = 1  # of `_state`, so that a later release can tell what it reads


@dataclass(frozen=True)
class Triple:
    """The three steps of one function, over `len(parts)` parts; `resumes_from_result`: the result is the state."""

    parts: tuple[str, ...]
    partial: Callable[[Column], Parts]
    merge: Callable[[Parts], Parts]
    finish: Callable[[Parts], Column]
    resumes_from_result: bool = False


@dataclass(frozen=True)
class Aggregate:
    """One configured aggregate, bound to the value it folds."""

    name: str
    result_columns: tuple[str, ...]
    value: Column
    triple: Triple
    part_columns: tuple[str, ...]

    def partial(self) -> Parts:
        """Aggregate columns over events."""
        return [p.alias(n) for p, n in zip(self.triple.partial(self.value), self.part_columns, strict=True)]

    def merge(self) -> Parts:
        """Aggregate columns over partials."""
        merged = self.triple.merge(C.cols(self.part_columns))
        return [p.alias(n) for p, n in zip(merged, self.part_columns, strict=True)]

    def finish(self) -> list[Column]:
        """Result columns over merged parts."""
        parts = C.cols(self.part_columns)
        results = [self.triple.finish(parts).alias(self.name)]
        if len(self.result_columns) > 1:
            results.append(parts[1].alias(self.result_columns[1]))
        return results

    def resume(self) -> Parts:
        """The parts, read back from a live session row."""
        if self.triple.resumes_from_result:
            return [C.col(self.name).alias(self.part_columns[0])]
        state = C.col(C.STATE)[self.name]
        return [state[p].alias(n) for p, n in zip(self.triple.parts, self.part_columns, strict=True)]

    def state(self) -> Column | None:
        """What `_state` keeps for this aggregate: a struct of its parts, or None if the result is enough."""
        if self.triple.resumes_from_result:
            return None
        named = zip(C.cols(self.part_columns), self.triple.parts, strict=True)
        return F.struct(*[part.alias(name) for part, name in named]).alias(self.name)


def bind(rule: Rule, events: DataFrame) -> tuple[Aggregate, ...]:
    """The rule's aggregates over these events. Errors: an unknown column, a type the function cannot take."""
    order = [C.col(C.US), *[C.col(name) for name in rule.order_by]]
    return tuple(_bind(spec, i, order, events) for i, spec in enumerate(rule.aggregates))


def state_struct(aggregates: tuple[Aggregate, ...]) -> Column:
    """The `_state` column of a live row."""
    states = [state for a in aggregates if (state := a.state()) is not None]
    return F.struct(F.lit(LAYOUT).alias("_layout"), *states)


def _bind(spec: Spec, index: int, order: list[Column], events: DataFrame) -> Aggregate:
    value = F.lit(True) if spec.of is None else expression(spec.of, events, f"aggregates.{spec.name}.of")
    value_type = events.select(value.alias("v")).schema["v"].dataType
    triple = _triple(spec, value_type, order)
    part_columns = tuple(f"__{index}_{part}" for part in triple.parts)
    bound = Aggregate(spec.name, spec.result_columns, value, triple, part_columns)
    try:
        events.withColumn(C.US, F.lit(0).cast("bigint")).agg(*bound.partial()).schema  # noqa: B018
    except AnalysisException as error:
        raise ConfigError(
            f"aggregates.{spec.name}: {spec.fn} cannot take a value of type {value_type.simpleString().upper()}",
            value=spec.of,
            remedy="aggregate a simpler expression of it, for example to_json(…)",
        ) from error
    return bound


def _triple(spec: Spec, value_type: T.DataType, order: list[Column]) -> Triple:
    if spec.fn in ("sum", "avg") and not isinstance(value_type, T.NumericType):
        raise ConfigError(
            f"aggregates.{spec.name}: {spec.fn} needs a number, and this is {value_type.simpleString().upper()}",
            value=spec.of,
            remedy=f"write of: try_cast({spec.of} AS DOUBLE), or ingest the column as a number with --schema",
        )
    match spec.fn:
        case "count":
            return _own_state(F.count, F.sum)
        case "sum":
            return _own_state(F.sum, F.sum)
        case "min":
            return _own_state(F.min, F.min)
        case "max":
            return _own_state(F.max, F.max)
        case "avg":
            return _average(value_type)
        case "first":
            return _edge(F.min, order, spec.ignore_nulls)
        case "last":
            return _edge(F.max, order, spec.ignore_nulls)
        case "count_distinct":
            return _distinct(None, F.size)
        case "set":
            return _distinct(spec.at_most, lambda values: values)
    raise AssertionError(spec.fn)


def _own_state(partial: Callable[[Column], Column], merge: Callable[[Column], Column]) -> Triple:
    return Triple(("value",), lambda v: [partial(v)], lambda p: [merge(p[0])], lambda p: p[0], resumes_from_result=True)


def _average(value_type: T.DataType) -> Triple:
    exact = isinstance(value_type, T.IntegralType)  # a sum of BIGINT could overflow where the mean would not

    def finish(parts: Parts) -> Column:
        if isinstance(value_type, T.DecimalType):
            scale = min(value_type.scale + 4, 38)
            mean = F.try_divide(parts[0], parts[1])
            return mean.cast(T.DecimalType(min(max(value_type.precision + 4, scale), 38), scale))
        return F.try_divide(parts[0].cast("double"), parts[1])

    return Triple(
        ("sum", "count"),
        lambda v: [F.sum(v.cast("decimal(28,0)") if exact else v), F.count(v)],
        lambda p: [F.sum(p[0]), F.sum(p[1])],
        finish,
    )


def _edge(pick: Callable[[Column], Column], order: list[Column], ignore_nulls: bool) -> Triple:
    """First or last by time, then by the order_by columns, then by the value itself: never by partition."""

    def partial(value: Column) -> Parts:
        ranked = F.struct(*[o.alias(f"o{i}") for i, o in enumerate(order)], value.alias("value"))
        return [pick(F.when(value.isNotNull(), ranked) if ignore_nulls else ranked)]

    return Triple(("ranked",), partial, lambda p: [pick(p[0])], lambda p: p[0]["value"])


def _distinct(at_most: int | None, finish: Callable[[Column], Column]) -> Triple:
    """Distinct non-null values in ascending order; of more than `at_most` the smallest stay, and a flag says so."""
    if at_most is None:
        return Triple(
            ("values",),
            lambda v: [F.sort_array(F.collect_set(v))],
            lambda p: [F.sort_array(F.array_distinct(F.flatten(F.collect_list(p[0]))))],
            lambda p: finish(p[0]),
        )

    def cut(values: Column, cut_before: Column) -> Parts:
        return [F.slice(values, 1, at_most), cut_before | (F.size(values) > at_most)]

    return Triple(
        ("values", "truncated"),
        lambda v: cut(F.sort_array(F.collect_set(v)), F.lit(False)),
        lambda p: cut(F.sort_array(F.array_distinct(F.flatten(F.collect_list(p[0])))), F.max(p[1])),
        lambda p: finish(p[0]),
    )
