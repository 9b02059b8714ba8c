"""Facts: what the aggregates of a session are, and what its live row remembers of them, by functions over all events.

Where a run adds floats in another order, or sketches, a fact says how far the table may be away from it.
"""

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib import columns as C
from sessionizer.lib.compare import ADDED, ALL_HELD, tolerances
from sessionizer.lib.config import Aggregate
from sessionizer.lib.expressions import of_event
from sessionizer.lib.rule import Rule

NEAR = "__near_"  # before the name of a fact
BY_NUMBER = ("approx_count_distinct", "approx_percentile")  # sketches: how near they are hangs on how many values
RANK_ERROR = 0.04  # of a sketch that does not hold all its values: three standard errors
FEW, COUNT_ERROR = 4, 0.1  # so few values a sketch counts exactly, all that it holds but for one, more so nearly


@dataclass(frozen=True)
class Fact:
    """One value of a session, as the table has it and as the events make it.

    found: over rows of the table; of what live rows remember, null for final ones. expected: an aggregate over the
    events of a session. within: how far apart the two may be, relatively; near: the same absolutely, an aggregate.
    """

    name: str
    found: Column
    expected: Column
    within: float = 0.0
    near: Column | None = None

    @property
    def is_remembered(self) -> bool:
        """Whether only live rows have it."""
        return self.name.startswith(C.STATE)


def facts_of(rule: Rule, events: DataFrame) -> tuple[Fact, ...]:
    """The facts of a session by this rule. events: for the columns of the source."""
    order = [C.col(C.US), *C.cols(rule.order_by)]
    within = tolerances(rule)
    told = [spec for spec in rule.aggregates if spec.sql is None]
    bound = [_bound(s, events, order, 0.0 if s.fn in BY_NUMBER else within.get(s.name, 0.0)) for s in told]
    return tuple(fact for one in bound for fact in (*one.results(), *one.remembered()))


def _bound(spec: Aggregate, events: DataFrame, order: list[Column], within: float) -> "_Whole":
    text = spec.value(events.columns)
    value = F.lit(True) if text is None else of_event(text, events, f"aggregates.{spec.name}.of")[0]
    kind = events.select(value.alias("value")).schema["value"].dataType
    if isinstance(kind, T.DoubleType | T.FloatType):
        value = value + F.lit(0.0).cast(kind)  # -0.0 is 0.0
    initial = None if spec.initial is None else F.expr(spec.initial)
    acc = None if initial is None else events.select(initial.alias("acc")).schema["acc"].dataType
    return _Whole(spec, value, kind, order, within, "" if acc is None else acc.simpleString())


@dataclass(frozen=True)
class _Whole:
    """An aggregate over whole sessions. kind: of its values; acc: the type of a custom one's accumulator, as SQL."""

    spec: Aggregate
    value: Column
    kind: T.DataType
    order: list[Column]
    within: float
    acc: str

    def results(self) -> list[Fact]:
        """What the table shows."""
        names, (first, *more) = self.spec.result_columns, self._results()
        whether_cut = [Fact(name, C.col(name), column) for name, column in zip(names[1:], more, strict=True)]
        return [Fact(names[0], C.col(names[0]), first, self.within, self._near()), *whether_cut]

    def remembered(self) -> list[Fact]:
        """What goes on from there with the next event, as far as a result does not tell it."""
        v, state = self.value, C.col(C.STATE)[self.spec.name]

        def fact(part: str, found: Column, expected: Column, near: Column | None = None) -> Fact:
            return Fact(f"{C.STATE}.{self.spec.name}.{part}", found, expected, self.within, near)

        def same(part: str, result: Column) -> Fact:
            return fact(part, result, self._results()[0], self._near())

        match self.spec.fn:
            case "avg":
                summed = v.cast(T.DecimalType(28, 0)) if isinstance(self.kind, T.IntegralType) else v
                near = ADDED * F.sum(self._size()) if self._is_float() else None
                count = fact("count", state["count"], F.count(v))
                return [fact("sum", state["sum"], F.sum(summed), near), count]
            case "stddev":
                n, mean, squares = (state["moments"][part] for part in ("n", "mean", "squares"))
                steady = F.when(_finite(squares), mean)
                variance = F.var_pop(v.cast("double"))
                average = F.when(_finite(variance), F.avg(v.cast("double")))
                spread = F.when(n > 1, F.sqrt(squares / (n - 1))).when(n == 1, squares)
                expected = F.when(F.count(v) == 1, variance).otherwise(self._results()[0])
                return [
                    fact("n", F.when(state.isNotNull(), F.coalesce(n, F.lit(0))), F.count(v)),
                    fact("mean", steady, average, ADDED * F.avg(self._size())),
                    fact("squares", spread, expected, self._near()),
                ]
            case "first" | "last":
                return [fact("ranked", state["ranked"], self._edge())]
            case "list":
                return [fact("ranked", state["ranked"], self._at_most(self._in_order())), *self._whether_cut()]
            case "set" | "count_distinct":
                return [fact("values", state["values"], self._at_most(self._distinct())), *self._whether_cut()]
            case "approx_count_distinct":
                sketch = C.sketch_of(self.kind.simpleString())
                return [same(sketch, F.hll_sketch_estimate(state[sketch]))]
            case "approx_percentile":
                return [same("sketch", self._quantile(state["sketch"]))]
            case "custom":
                kept = state["state"]
                acc = F.when(kept.isNull(), F.expr(str(self.spec.initial))).otherwise(kept["acc"])
                first = fact("first", state["state"]["first"], F.min(self._ranked(nulls=not self.spec.ignore_nulls)))
                return [first, same("acc", F.when(state.isNotNull(), self._finished(acc)))]
        return []

    def _whether_cut(self) -> list[Fact]:
        if self.spec.at_most is None:
            return []
        found = C.col(C.STATE)[self.spec.name]["truncated"]
        return [Fact(f"{C.STATE}.{self.spec.name}.truncated", found, self._results()[1])]

    def _results(self) -> list[Column]:
        v, spec = self.value, self.spec
        match spec.fn:
            case "count" | "sum" | "min" | "max" | "bool_or" | "bool_and":
                return [getattr(F, spec.fn)(v)]
            case "avg":
                return [self._mean()]
            case "stddev":
                return [F.stddev_samp(v.cast("double"))]
            case "first" | "last":
                return [self._edge()["value"]]
            case "count_distinct" | "approx_count_distinct":
                return [F.size(self._distinct())]
            case "approx_percentile":
                return [self._of_rank(F.lit(0))]
            case "custom":
                return [self._custom()]
        in_order = F.transform(self._in_order(), lambda one: one["value"])
        values = self._distinct() if spec.fn == "set" else in_order
        return [self._at_most(values), *([] if spec.at_most is None else [F.size(values) > spec.at_most])]

    def _mean(self) -> Column:
        """Spark's own, which takes decimals of few digits for doubles: of these sum and number are divided."""
        if not self._is_decimal():
            return F.avg(self.value)
        exact = self.kind.precision > 12  # type: ignore[attr-defined]
        return F.try_avg(self.value) if exact else F.try_divide(F.sum(self.value), F.count(self.value))

    def _near(self) -> Column | None:
        """How far the result may be away, beyond `within`: floats that cancel each other out, and ranks."""
        match self.spec.fn:
            case "sum" if self._is_float():
                return ADDED * F.sum(self._size())
            case "avg" if not self._is_decimal():
                return ADDED * F.avg(self._size())
            case "stddev":  # of differences from a mean, which is a sum of floats: each may be rounded by one in 2**53
                return (F.lit(ADDED * 1e-5) + F.count(self._size()) * F.lit(2.0**-52)) * F.avg(self._size())
            case "approx_count_distinct":
                number = F.size(self._distinct())
                return F.when(number <= FEW, 0).when(number <= ALL_HELD, 1).otherwise(COUNT_ERROR * number)
            case "approx_percentile":
                number = F.size(self._sorted())
                apart = F.when(number > ALL_HELD, F.ceil(number * RANK_ERROR)).otherwise(0).cast("int")
                result = self._of_rank(F.lit(0))
                return F.greatest(result - self._of_rank(-apart), self._of_rank(apart) - result)
        return None

    def _ranked(self, *, nulls: bool = False) -> Column:
        """The value by time, then by the order_by columns, then by itself."""
        one = F.struct(*[o.alias(f"o{i}") for i, o in enumerate(self.order)], self.value.alias("value"))
        if not nulls:
            return F.when(self.value.isNotNull(), one)
        return one if self.spec.of_source is None else F.when(F.expr(self.spec.of_source), one)

    def _edge(self) -> Column:
        one = self._ranked(nulls=not self.spec.ignore_nulls)
        return F.min(one) if self.spec.fn == "first" else F.max(one)

    def _in_order(self) -> Column:
        return F.sort_array(F.collect_list(self._ranked()))

    def _distinct(self) -> Column:
        values = F.collect_set(self.value)  # Spark before 4.2 takes each NaN for another
        return F.sort_array(F.array_distinct(values) if self._is_float() else values)

    def _at_most(self, values: Column) -> Column:
        return values if self.spec.at_most is None else F.slice(values, 1, self.spec.at_most)

    def _sorted(self) -> Column:
        return F.sort_array(F.collect_list(F.nanvl(self.value.cast("double"), F.lit(None))))

    def _of_rank(self, further: Column) -> Column:
        """The value of the percentile's rank, or so many ranks further."""
        values = self._sorted()
        exact = F.lit(str(self.spec.percentile)).cast("decimal(20,18)") * F.size(values)
        rank = F.ceil(F.round(exact, 7)).cast("int") + further  # so many digits a sketch tells apart
        return F.get(values, F.least(F.greatest(rank, F.lit(1)), F.size(values)) - 1)

    def _quantile(self, sketch: Column) -> Column:
        kind = "bigint" if isinstance(self.kind, T.IntegralType) else "double"
        number = F.call_function(f"kll_sketch_get_n_{kind}", sketch)
        quantile = F.call_function(f"kll_sketch_get_quantile_{kind}", sketch, F.lit(self.spec.percentile))
        return F.when(number > 0, quantile)

    def _custom(self) -> Column:
        """The configuration's own update, event by event."""
        values = F.sort_array(F.collect_list(self._ranked(nulls=not self.spec.ignore_nulls)))
        is_nested = "<" in self.acc  # then it is of the same type already
        update = self.spec.update if is_nested else f"CAST(({self.spec.update}\n) AS {self.acc})"
        step, folded = F.expr(f"(acc, value) -> {update}"), F.transform(values, lambda one: one["value"])
        return self._finished(F.call_function("aggregate", folded, F.expr(str(self.spec.initial)), step))

    def _finished(self, acc: Column) -> Column:
        return F.get(F.call_function("transform", F.array(acc), F.expr(f"acc -> {self.spec.finish or 'acc'}")), 0)

    def _size(self) -> Column:
        return F.abs(self.value.cast("double"))

    def _is_float(self) -> bool:
        return isinstance(self.kind, T.DoubleType | T.FloatType)

    def _is_decimal(self) -> bool:
        return isinstance(self.kind, T.DecimalType)


def _finite(value: Column) -> Column:
    return ~F.isnan(value) & (F.abs(value) < float("inf"))
