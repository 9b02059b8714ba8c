"""The functions of `fn:` as partial / merge / finish triples over columns."""

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.decimals import mean
from sessionizer.lib.canonical import with_nulls
from sessionizer.lib.config import Aggregate as Spec
from sessionizer.lib.engine import has_heaps
from sessionizer.lib.errors import ConfigError
from sessionizer.lib.expressions import is_collated, is_ordered

Parts = list[Column]
Counts = Callable[[Column], Column | None]  # whether a value counts; None: all do
Over = Callable[[Column], Column]  # wraps each bare aggregate function: over the group as it is, or over a window

NEEDS = {
    **dict.fromkeys(("sum", "avg", "stddev", "approx_percentile"), (T.NumericType, "a number")),
    **dict.fromkeys(("bool_or", "bool_and"), (T.BooleanType, "true or false")),
}
PICKING = ("min", "max", "first", "last", "list", "set")  # which hand on values as they are
HEAP_LIMIT = 100_000  # the largest k that min_by takes
NESTED = (T.ArrayType, T.MapType, T.StructType, T.VariantType)


@dataclass(frozen=True)
class Triple:
    """The three steps of one function, over `len(parts)` parts; `resumes_from_result`: the result is the state.

    finish gives the result and, for a function that may cut, whether it did.
    """

    parts: tuple[str, ...]
    partial: Callable[[Column, Over], Parts]
    merge: Callable[[Parts, Over], Parts]
    finish: Callable[[Parts], list[Column]]
    resumes_from_result: bool = False


def triple(spec: Spec, value_type: T.DataType, order: list[Column]) -> Triple:
    """The steps of a function that is built in, for values of this type.

    order: what settles the order of events before their value does. Errors: a type that the function cannot take.
    """
    _check_type(spec, value_type)
    match spec.fn:
        case "count":
            return _own_state(F.count, F.sum)
        case "sum":
            return _own_state(F.sum, F.sum, _sum_type(value_type))
        case "min" | "max" | "bool_or" | "bool_and":
            function = {"min": F.min, "max": F.max, "bool_or": F.bool_or, "bool_and": F.bool_and}[spec.fn]
            return _own_state(function, function)
        case "avg":
            return _average(value_type)
        case "stddev":
            return _deviation()
        case "first" | "last":
            return _edge(F.min if spec.fn == "first" else F.max, order, counting(spec))
        case "count_distinct":
            return _distinct(None, F.size, value_type)
        case "set":
            return _distinct(spec.at_most, lambda values: values, value_type)
        case "list":
            return _list(spec.at_most, order)
        case "approx_count_distinct":
            return _approximate_count(value_type)
        case "approx_percentile" if spec.percentile is not None:
            return _percentile(value_type, spec.percentile)
    raise AssertionError(spec.fn)


def ranked(value: Column, order: list[Column], counts: Counts) -> Column:
    """A struct that sorts by time, then by the order_by columns, then by the value itself: never by partition.

    Null where the value does not count.
    """
    whole = F.struct(*[o.alias(f"o{i}") for i, o in enumerate(order)], value.alias("value"))
    return whole if (holds := counts(value)) is None else F.when(holds, whole)


def counting(spec: Spec) -> Counts:
    """Which values count: all, those that are not null, those of one source. None: all do."""
    if spec.ignore_nulls:
        return not_null
    of_source = spec.of_source
    return lambda _: None if of_source is None else F.expr(of_source)


def not_null(value: Column) -> Column:
    """Those that are there."""
    return value.isNotNull()


def _check_type(spec: Spec, value_type: T.DataType) -> None:
    needed, named = NEEDS.get(spec.fn or "", (T.DataType, ""))
    if spec.fn in (*PICKING, "approx_count_distinct") and is_collated(value_type):
        raise ConfigError(
            f"aggregates.{spec.name}: several values are equal by {value_type.simpleString().upper()}, and {spec.fn} "
            "would take any of them, or tell them apart",
            value=spec.of,
            remedy=f"write of: lower(collate({spec.of}, 'UTF8_BINARY')), or without lower(…) if each spelling counts",
        )
    if spec.fn == "approx_count_distinct" and not is_ordered(value_type):
        raise ConfigError(
            f"aggregates.{spec.name}: {spec.fn} cannot take a value of type {value_type.simpleString().upper()}",
            value=spec.of,
            remedy=f"write of: CAST({spec.of} AS STRING), or to_json({spec.of})",
        )
    if isinstance(value_type, needed):
        return
    remedy = f"write of: try_cast({spec.of} AS DOUBLE), or ingest the column as a number with --schema"
    if needed is T.BooleanType:
        remedy = f"write a comparison, such as of: {spec.of} = 'yes'"
    raise ConfigError(
        f"aggregates.{spec.name}: {spec.fn} needs {named}, and this is {value_type.simpleString().upper()}",
        value=spec.of,
        remedy=remedy,
    )


def _own_state(partial: Over, merge: Over, shape: Over = lambda result: result) -> Triple:
    return Triple(
        ("value",),
        lambda v, over: [over(partial(v))],
        lambda p, over: [shape(over(merge(p[0])))],
        lambda p: [p[0]],
        resumes_from_result=True,
    )


def _sum_type(value_type: T.DataType) -> Over:
    """Keeps sums of partial sums at the type of the partial sum: those of decimals widen at every merge."""
    if isinstance(value_type, T.DecimalType):
        total = T.DecimalType(min(value_type.precision + 10, 38), value_type.scale)
        return lambda merged: merged.cast(total)
    return lambda merged: merged


def _average(value_type: T.DataType) -> Triple:
    exact = isinstance(value_type, T.IntegralType)  # a sum of BIGINT could overflow where the mean would not
    summed = T.DecimalType(28, 0) if exact else value_type
    same_type = _sum_type(summed)

    def finish(parts: Parts) -> list[Column]:
        if isinstance(value_type, T.DecimalType):
            return [mean(parts[0], parts[1], value_type)]
        return [F.try_divide(parts[0].cast("double"), parts[1])]

    return Triple(
        ("sum", "count"),
        lambda v, over: [over(F.sum(v.cast(summed))), over(F.count(v))],
        lambda p, over: [same_type(over(F.sum(p[0]))), over(F.sum(p[1]))],
        finish,
    )


def _deviation() -> Triple:
    """Sample standard deviation from count, mean and sum of squared deviations; null for fewer than two values.

    Moments are merged by the formula of Chan, Golub and LeVeque (1979): sums of squares are never subtracted.
    """

    def moments(n: Column, mean: Column, squares: Column) -> Column:
        return F.struct(n.alias("n"), mean.alias("mean"), squares.alias("squares"))

    def partial(value: Column, over: Over) -> Parts:
        v = value.cast("double")
        n = over(F.count(v))
        return [F.when(n > 0, moments(n, over(F.avg(v)), over(F.var_pop(v)) * n))]

    def joined(a: Column, b: Column) -> Column:
        n, apart = a["n"] + b["n"], b["mean"] - a["mean"]
        squares = a["squares"] + b["squares"] + apart * apart * (a["n"] * (b["n"] / n))
        return moments(n, a["mean"] + apart * (b["n"] / n), squares)

    def joined_all(several: Column) -> Column:
        return F.aggregate(F.slice(several, 2, F.size(several)), F.get(several, F.lit(0)), joined)

    def finish(parts: Parts) -> list[Column]:
        n, squares = parts[0]["n"], parts[0]["squares"]
        return [F.when(n > 1, F.sqrt(squares / (n - 1)))]

    return Triple(("moments",), partial, lambda p, over: [_only_or(p[0], over, joined_all)], finish)


def _edge(pick: Over, order: list[Column], counts: Counts) -> Triple:
    return Triple(
        ("ranked",),
        lambda v, over: [over(pick(ranked(v, order, counts)))],
        lambda p, over: [over(pick(p[0]))],
        lambda p: [p[0]["value"]],
    )


def collected(value: Column, value_type: T.DataType, over: Over = lambda function: function) -> Column:
    """The distinct values: Spark before 4.2 takes each NaN for another."""
    values = over(F.collect_set(value))
    return F.array_distinct(values) if isinstance(value_type, T.DoubleType | T.FloatType) else values


def _distinct(at_most: int | None, result: Callable[[Column], Column], value_type: T.DataType) -> Triple:
    """Distinct non-null values in ascending order; of more than `at_most` the smallest stay, and a flag says so."""

    def united(several: Column) -> Column:
        return F.sort_array(F.array_distinct(F.flatten(several)))

    whole = Triple(
        ("values",),
        lambda v, over: [F.sort_array(collected(v, value_type, over))],
        lambda p, over: [_only_or(p[0], over, united)],
        lambda p: [result(p[0])],
    )
    return whole if at_most is None else _cut(whole, at_most, lambda v, over: F.size(collected(v, value_type, over)))


def _only_or(part: Column, over: Over, merge: Over) -> Column:
    """The only part, as most sessions have, or a list of several merged; null where there is none.

    The list is bound to a name: over a window, each mention of it would be computed for itself.
    """
    parts = over(F.collect_list(part))
    one = F.transform(F.array(parts), lambda p: F.when(F.size(p) > 1, merge(p)).otherwise(F.get(p, F.lit(0))))
    return F.get(one, F.lit(0))


def _list(at_most: int | None, order: list[Column]) -> Triple:
    """Non-null values in order; of more than `at_most` the earliest stay, and a flag says so."""

    def in_order(value: Column, over: Over) -> Column:
        one = ranked(value, order, not_null)
        if at_most is None or at_most > HEAP_LIMIT or not has_heaps():
            return F.sort_array(over(F.collect_list(one)))
        return F.coalesce(over(F.min_by(one, one, at_most)), F.array())  # holds no more than it keeps

    whole = Triple(
        ("ranked",),
        lambda v, over: [in_order(v, over)],
        lambda p, over: [_only_or(p[0], over, lambda several: F.sort_array(F.flatten(several)))],
        lambda p: [F.transform(p[0], lambda one: one["value"])],
    )
    return whole if at_most is None else _cut(whole, at_most, lambda v, over: over(F.count(v)))


def _cut(whole: Triple, at_most: int, number: Callable[[Column, Over], Column]) -> Triple:
    """The first `at_most` of the values of a part, and a flag that says whether there were more; number: of them."""

    def merge(parts: Parts, over: Over) -> Parts:
        values = whole.merge(parts[:1], over)[0]
        return [F.slice(values, 1, at_most), over(F.max(parts[1])) | (F.size(values) > at_most)]

    return Triple(
        (*whole.parts, "truncated"),
        lambda v, over: [F.slice(whole.partial(v, over)[0], 1, at_most), number(v, over) > at_most],
        merge,
        lambda p: [*whole.finish(p[:1]), p[1]],
    )


def _approximate_count(value_type: T.DataType) -> Triple:
    """HyperLogLog with 4,096 registers: within 1.6 % (one standard error), and nearly exact for small counts.

    Its part is named after the type, by which hashes differ: of a column that is retyped the state no longer fits.
    """
    return Triple(
        (C.sketch_of(value_type.simpleString()),),
        # Hashed first: the sketch takes few types, and no empty text.
        lambda v, over: [over(F.hll_sketch_agg(F.when(v.isNotNull(), F.xxhash64(with_nulls(v, value_type)))))],
        lambda p, over: [over(F.hll_union_agg(p[0]))],
        lambda p: [F.hll_sketch_estimate(p[0])],
    )


def _percentile(value_type: T.DataType, percentile: float) -> Triple:
    """KLL with k = 200: the value of that rank; exact up to 200 values, then within 1.4 % of rank."""
    kind = "bigint" if isinstance(value_type, T.IntegralType) else "double"

    def call(function: str, *args: Column) -> Column:
        return F.call_function(f"kll_{function}_{kind}", *args)

    def finish(parts: Parts) -> list[Column]:
        found = call("sketch_get_quantile", parts[0], F.lit(percentile))
        return [F.when(call("sketch_get_n", parts[0]) > 0, found)]

    return Triple(
        ("sketch",),
        lambda v, over: [over(call("sketch_agg", v.cast(kind)))],
        lambda p, over: [over(call("merge_agg", p[0]))],
        finish,
    )
