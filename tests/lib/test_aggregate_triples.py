"""Every function against plain Python: any split, merged in any order over two levels, and running over a window."""

import math
from collections import Counter
from collections.abc import Callable, Iterable
from decimal import Decimal
from itertools import groupby
from random import Random
from statistics import stdev
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.binding import Aggregate as Bound
from sessionizer.lib.aggregates.binding import bind, state_struct
from sessionizer.lib.aggregates.functions import Over
from sessionizer.lib.config import Aggregate
from sessionizer.lib.rule import Rule

SCHEMA = "id INT, part INT, level INT, __us BIGINT, o INT, i INT, d DECIMAL(6,2), x DOUBLE, s STRING, b BOOLEAN"
FIELDS = ("i", "d", "x", "s", "b")
CASES = 100
Event = dict[str, Any]
Values = list[Any]


def known(values: Values) -> Values:
    return [v for v in values if v is not None]


def order(value: Any) -> tuple[Any, ...]:
    """Spark's order: nulls before all values, NaN after them."""
    if value is None:
        return (0, 0)
    return (2, 0) if isinstance(value, float) and math.isnan(value) else (1, value)


def distinct(values: Values) -> Values:
    return [next(equal) for _, equal in groupby(sorted(known(values), key=order), key=order)]


def plus(zero: Any) -> Callable[[Values], Any]:
    return lambda values: sum(known(values), zero) if known(values) else None


def mean(values: Values) -> Any:
    return sum(known(values)) / len(known(values)) if known(values) else None


def deviation(values: Values) -> Any:
    numbers = [float(v) for v in known(values)]
    if len(numbers) < 2:
        return None
    return stdev(numbers) if all(map(math.isfinite, numbers)) else math.nan


def rank(percentile: float) -> Callable[[Values], Any]:
    def found(values: Values) -> Any:
        ordered = sorted(v for v in known(values) if not math.isnan(v))
        return ordered[max(math.ceil(percentile * len(ordered)) - 1, 0)] if ordered else None

    return found


def kept(values: Values, at_most: int) -> tuple[Values, bool]:
    return values[:at_most], len(values) > at_most


def squares(values: Values) -> Any:
    return sum(v * v for v in known(values))


def agg(fn: str, of: str | None = None, **options: Any) -> Aggregate:
    return Aggregate.model_validate({"name": "a", "fn": fn, "of": of, **options})


HISTOGRAM = {
    "initial": "CAST(map() AS MAP<STRING, INT>)",
    "update": "map_zip_with(acc, map(value, 1), (k, a, b) -> coalesce(a, 0) + coalesce(b, 0))",
    "merge": "map_zip_with(left, right, (k, a, b) -> coalesce(a, 0) + coalesce(b, 0))",
    "ignore_nulls": True,
}
SUM_OF_SQUARES = {
    "initial": "named_struct('n', 0, 'total', 0L)",
    "update": "named_struct('n', acc.n + 1, 'total', acc.total + coalesce(value * value, 0)) -- nulls too",
    "merge": "named_struct('n', left.n + right.n, 'total', left.total + right.total)",
    "finish": "named_struct('n', acc.n, 'total', acc.total, 'mean', try_divide(acc.total, acc.n))",
}
# What is aggregated, and what Python makes of the values in order (time, `o`, value).
FUNCTIONS: list[tuple[Aggregate, Callable[[Values], Any]]] = [
    (agg("count"), len),
    (agg("count", "x"), lambda values: len(known(values))),
    *[(agg("sum", of), plus(zero)) for of, zero in {"i": 0, "d": Decimal(0), "x": 0.0}.items()],
    *[(agg("min", of), lambda v: min(known(v), key=order, default=None)) for of in "dx"],
    *[(agg("max", of), lambda v: max(known(v), key=order, default=None)) for of in "xs"],
    (agg("avg", "i"), mean),
    (agg("avg", "x"), mean),
    (agg("avg", "d"), lambda v: round(mean(v) + Decimal("0E-12"), 6) if known(v) else None),
    *[(agg("stddev", of), deviation) for of in "dx"],
    *[(agg("first", of), lambda v: v[0]) for of in "xs"],
    *[(agg("last", of), lambda v: v[-1]) for of in "xb"],
    (agg("first", "s", ignore_nulls=True), lambda v: next(iter(known(v)), None)),
    (agg("last", "x", ignore_nulls=True), lambda v: next(reversed(known(v)), None)),
    *[(agg("count_distinct", of), lambda v: len(distinct(v))) for of in "xs"],
    *[(agg("set", of), distinct) for of in "dx"],
    (agg("set", "x", at_most=2), lambda v: kept(distinct(v), 2)),
    *[(agg("list", of), known) for of in "xs"],
    (agg("list", "x", at_most=2), lambda v: kept(known(v), 2)),
    (agg("list", "s", at_most=100_001), lambda v: kept(known(v), 100_001)),
    *[(agg("approx_count_distinct", of), lambda v: len(distinct(v))) for of in "xs"],
    *[(agg("approx_percentile", of, percentile=0.75), rank(0.75)) for of in "ix"],
    (agg("approx_percentile", "d", percentile="0.5"), lambda v: None if (r := rank(0.5)(v)) is None else float(r)),
    (agg("approx_percentile", "i", percentile=0), rank(0)),
    (agg("approx_percentile", "i", percentile=1), rank(1)),
    (agg("bool_or", "b"), lambda v: any(known(v)) if known(v) else None),
    (agg("bool_and", "b"), lambda v: all(known(v)) if known(v) else None),
    (agg("custom", "s", **HISTOGRAM), lambda v: dict(Counter(known(v)))),
    (agg("custom", "i", **SUM_OF_SQUARES), lambda v: (len(v), squares(v), squares(v) / len(v))),
]
AGGREGATES = tuple(a.model_copy(update={"name": f"a{n}"}) for n, (a, _) in enumerate(FUNCTIONS))
RULE = Rule(key=("id",), gap=1, event_time="__us", order_by=("o",), aggregates=AGGREGATES)

CHOICES: dict[str, Values] = {
    "part": [0, 1, 2, 3],
    "level": [0, 1],
    "__us": [-2, -1, 0, 1, 2],
    "o": [0, 1],
    "i": [None, None, -3, 0, 2, 3],
    "d": [None, Decimal("0.01"), Decimal("-9999.99"), Decimal("9999.99")],
    "x": [None, None, 0.0, -0.0, 0.1, -2.25, 1e9, 1e9 + 0.5, math.inf, math.nan],
    "s": [None, "", "a", "é", "🙂", "B"],
    "b": [None, True, False],
}
NOTHING: Event = {"part": 0, "level": 0, "__us": 0, "o": 0, **dict.fromkeys(FIELDS)}


def random_cases(random: Random) -> list[list[Event]]:
    """Few values each, of which some are often the same; one case in six has nulls only."""

    def event(nulls: bool) -> Event:
        drawn = {name: random.choice(choices) for name, choices in CHOICES.items()}
        return drawn | dict.fromkeys(FIELDS) if nulls else drawn

    return [[event(nulls=n % 6 == 0) for _ in range(random.randint(1, 9))] for n in range(CASES)]


def frame(spark: SparkSession, drawn: list[list[Event]]) -> DataFrame:
    names = [column.split()[0] for column in SCHEMA.split(", ")]
    rows = [tuple(({"id": n} | e)[name] for name in names) for n, case in enumerate(drawn) for e in case]
    return spark.createDataFrame(rows, SCHEMA)


def expected(case: list[Event]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for aggregate, (_, model) in zip(AGGREGATES, FUNCTIONS, strict=True):
        of = aggregate.of
        ranked = sorted(case, key=lambda e: (e["__us"], e["o"], order(e[of]) if of else ()))
        result = model([plain(e[of]) if of else True for e in ranked])
        results = result if aggregate.at_most else (result,)
        found |= dict(zip(aggregate.result_columns, results, strict=True))
    return found


def plain(value: Any) -> Any:
    return value + 0.0 if isinstance(value, float) else value  # -0.0 is 0.0


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, float) and isinstance(wanted, float):
        if math.isnan(wanted) or math.isinf(wanted):
            return repr(found) == repr(wanted)
        return math.isclose(found, wanted, rel_tol=1e-9, abs_tol=1e-6) and (found != 0 or repr(found) == "0.0")
    if isinstance(found, tuple | list) and isinstance(wanted, tuple | list):
        return len(found) == len(wanted) and all(map(same, found, wanted))
    return bool(found == wanted)


def differences(found: dict[str, Any], wanted: dict[str, Any]) -> Iterable[Any]:
    functions = {name: a for a in AGGREGATES for name in a.result_columns}
    for name, value in wanted.items():
        if not same(found[name], value):
            yield functions[name].fn, functions[name].of, found[name], value


@pytest.fixture(scope="module")
def bound(spark: SparkSession) -> tuple[Bound, ...]:
    return bind(RULE, spark.createDataFrame([], SCHEMA))


def partial(aggregates: tuple[Bound, ...], over: Over = lambda f: f) -> list[Column]:
    return [part for a in aggregates for part in a.partial(over)]


def merge(aggregates: tuple[Bound, ...], over: Over = lambda f: f) -> list[Column]:
    return [part for a in aggregates for part in a.merge(over)]


def finish(aggregates: tuple[Bound, ...]) -> list[Column]:
    return [result for a in aggregates for result in a.finish()]


# Many cases share a Spark job, and a seed names them all: shrinking would run for minutes and name no smaller case.
@settings(max_examples=3, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(seed=st.integers(0, 2**32))
@pytest.mark.broad
def test_any_split_merged_in_any_order_is_what_python_makes_of_the_whole(
    spark: SparkSession, bound: tuple[Bound, ...], seed: int
) -> None:
    drawn = random_cases(Random(seed))
    events = frame(spark, drawn)
    by_part = events.groupBy("id", "level", "part").agg(*partial(bound))
    by_level = by_part.groupBy("id", "level").agg(*merge(bound))
    live = by_level.select("id", *finish(bound), state_struct(bound).alias(C.STATE)).localCheckpoint()
    resumed = live.select("id", *[part for a in bound for part in a.resume()])
    in_parts = resumed.groupBy("id").agg(*merge(bound)).select("id", *finish(bound))
    at_once = events.groupBy("id").agg(*partial(bound)).select("id", *finish(bound))

    assert in_parts.schema.simpleString() == at_once.schema.simpleString()
    models = [expected(case) for case in drawn]
    rows = in_parts.union(at_once).collect()
    assert len(rows) == 2 * len(drawn)
    assert not [d for row in rows for d in differences(row.asDict(), models[row["id"]])]


def test_running_results_over_a_window_are_those_of_each_prefix(spark: SparkSession, bound: tuple[Bound, ...]) -> None:
    steps: list[Event] = [
        {"i": 2, "d": Decimal("1.10"), "x": 0.5, "s": "b", "b": False},
        dict.fromkeys(FIELDS),
        {"i": -1, "d": Decimal("-2.00"), "x": -0.0, "s": "a", "b": True},
        {"i": 2, "d": Decimal("1.10"), "x": 1e9, "s": "a", "b": None},
        {"i": 3, "d": None, "x": 1e9 + 0.5, "s": None, "b": True},
    ]
    case = [NOTHING | {"__us": n} | step for n, step in enumerate(steps)]
    by_time = Window.partitionBy("id").orderBy("__us")
    running, alone = by_time.rowsBetween(Window.unboundedPreceding, 0), by_time.rowsBetween(0, 0)

    events = frame(spark, [case])
    partials = events.select("__us", *partial(bound, lambda f: f.over(running)))
    of_one_event = events.select("id", "__us", *partial(bound, lambda f: f.over(alone)))
    merged = of_one_event.select("__us", *merge(bound, lambda f: f.over(running)))

    rows = partials.union(merged).select("__us", *finish(bound)).collect()
    assert sorted(row["__us"] for row in rows) == sorted(2 * [*range(len(case))])
    assert not [d for row in rows for d in differences(row.asDict(), expected(case[: row["__us"] + 1]))]


def merged(events: DataFrame, rule: Rule) -> DataFrame:
    """One row: the merged parts of partials by `part`, latest first, and the results."""
    aggregates = bind(rule, events)
    row = events.groupBy("part").agg(*partial(aggregates)).orderBy(F.desc("part")).agg(*merge(aggregates))
    return row.select("*", *finish(aggregates))


def test_capped_sets_and_lists_of_a_million_values_stay_within_their_cap(spark: SparkSession) -> None:
    events = spark.range(1_000_000).selectExpr("id", "id % 7 AS part", "-id AS __us", "CAST(id AS STRING) AS s")
    least, earliest = agg("set", "id", name="least", at_most=3), agg("list", "s", name="earliest", at_most=3)

    row = merged(events, Rule(key=(), gap=1, aggregates=(least, earliest))).collect()[0]

    assert (len(row["__0_values"]), len(row["__1_ranked"])) == (3, 3)
    assert (row["least"], row["least_truncated"]) == ([0, 1, 2], True)
    assert (row["earliest"], row["earliest_truncated"]) == (["999999", "999998", "999997"], True)


def test_large_values_with_a_small_spread_keep_their_digits(spark: SparkSession) -> None:
    """Sums of squares would give a deviation of 0, or the root of a negative number."""
    events = spark.range(100_000).selectExpr(
        "id AS __us", "id % 31 AS part", "1e9D + id % 2 AS x", "0.1D AS y", "IF(id % 2 = 0, 1e16D, -1e16D) + 1 AS z"
    )
    wanted = (
        *(agg("stddev", "x", name="spread"), agg("avg", "x", name="mean")),
        *(agg("sum", "y", name="total"), agg("sum", "z", name="cancelled")),
    )

    row = merged(events, Rule(key=(), gap=1, aggregates=wanted)).collect()[0]

    assert row["spread"] == pytest.approx(0.5 * math.sqrt(100_000 / 99_999), rel=1e-9)
    assert row["mean"] == pytest.approx(1e9 + 0.5, rel=1e-12)
    assert row["total"] == pytest.approx(10_000, rel=1e-9)
    assert row["cancelled"] == pytest.approx(100_000, abs=1e-9 * 1e16 * 100_000)


def test_sketches_stay_within_their_error(spark: SparkSession) -> None:
    events = spark.range(200_000).selectExpr("id AS __us", "id % 13 AS part", "id % 50000 AS i", "id % 1000 / 10 AS x")
    distinct = agg("approx_count_distinct", "i", name="distinct")
    upper = agg("approx_percentile", "x", name="upper", percentile=0.9)

    row = merged(events, Rule(key=(), gap=1, aggregates=(distinct, upper))).collect()[0]

    assert row["distinct"] == pytest.approx(50_000, rel=0.06)
    assert row["upper"] == pytest.approx(90, abs=4)
    sketches = [row[name] for name in row.asDict() if "sketch" in name]
    assert len(sketches) == 2
    assert max(map(len, sketches)) < 8_000


def test_custom_events_are_folded_and_parts_are_merged_in_time_order(spark: SparkSession) -> None:
    rows = [(7, 0, "g"), (0, 0, "a"), (1, 1, "c"), (1, 0, "b"), (5, 0, None), (4, 1, "d")]
    events = spark.createDataFrame([(t, t // 3, o, s) for t, o, s in rows], "__us LONG, part LONG, o INT, s STRING")
    path = agg("custom", "s", name="path", initial="''", update="acc || coalesce(value, '?')", merge="left || right")
    start = path.model_copy(
        update={
            **{"name": "start", "initial": "CAST(NULL AS STRING)", "ignore_nulls": True},
            **{"update": "coalesce(acc, value)", "merge": "coalesce(left, right)"},
        }
    )

    row = merged(events, Rule(key=(), gap=1, order_by=("o",), aggregates=(path, start))).collect()[0]

    assert (row["path"], row["start"]) == ("abcd?g", "a")
