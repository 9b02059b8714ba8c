"""Every aggregate as a partial / merge / finish triple: any split gives what the whole gives."""

from decimal import Decimal
from math import isnan
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from sessionizer.lib import columns as C
from sessionizer.lib.aggregates.binding import bind
from sessionizer.lib.config import Aggregate
from sessionizer.lib.errors import ConfigError, SourceError
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from tests.frames import session_schema, sessionize

HOUR = 3600 * 1_000_000
SCHEMA = "part INT, at TIMESTAMP, o INT, i INT, big BIGINT, d DECIMAL(10,2), x DOUBLE, s STRING, m MAP<STRING,INT>"
BIG = 9_000_000_000_000_000_000


def rule(*aggregates: Aggregate) -> Rule:
    return Rule(key=(), gap=HOUR, event_time="at", order_by=("o",), aggregates=aggregates, max_future_skew=0)


def aggregate(name: str, fn: Any, of: str | None = None, **more: Any) -> Aggregate:
    return Aggregate(name=name, fn=fn, of=of, **more)


def sql(name: str, text: str) -> Aggregate:
    return Aggregate(name=name, sql=text)


def custom(**steps: str) -> Aggregate:
    """The product of `i`, with some of its steps written otherwise."""
    product = {"initial": "1L", "update": "acc * coalesce(value, 1)", "merge": "left * right"}
    return aggregate("a", "custom", "i", **(product | steps))


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    """One session in three parts; the last two rows are at the same time."""
    rows = [
        (0, "10:00", 1, 3, BIG, Decimal("0.10"), 0.5, "b"),
        (1, "10:01", 1, None, BIG, Decimal("0.20"), 1.5, None),
        (2, "10:02", 1, 3, BIG, Decimal("99999999.99"), -2.0, "é"),
        (0, "10:03", 2, -7, -BIG, None, 4.0, "a"),
        (1, "10:03", 1, 5, BIG, Decimal("0.01"), None, "b"),
    ]
    texts = [(part, f"2024-01-01 {at}:00", *values, {"k": 1}) for part, at, *values in rows]
    return spark.createDataFrame(texts, SCHEMA.replace("TIMESTAMP", "STRING")).withColumn(
        "at", F.col("at").cast("timestamp")
    )


def merged(events: DataFrame, by: Rule) -> Row:
    """The session's row after three increments."""
    table, clock = None, WatermarkState(now=2**60)
    for part in range(3):
        outcome = sessionize(events.where(F.col("part") == part), table, by, clock)
        table, clock = outcome.changes.where(C.col(C.CHANGE) != "delete").drop(C.CHANGE), outcome.clock
    assert table is not None
    return table.collect()[0]


WANTED = {
    ("count", None): 5,
    ("count", "i"): 4,
    ("sum", "i"): 4,
    ("sum", "d"): Decimal("100000000.30"),
    ("sum", "x"): 4.0,
    ("min", "i"): -7,
    ("max", "x"): 4.0,
    ("min", "s"): "a",
    ("max", "s"): "é",
    ("avg", "i"): 1.0,
    ("avg", "big"): 3 * BIG / 5,  # its sum is no BIGINT
    ("avg", "d"): Decimal("25000000.075000"),
    ("first", "s"): "b",
    ("last", "s"): "a",  # of equal times the highest `o`
    ("last", "d"): None,  # nulls count
    ("first", "i"): 3,
    ("count_distinct", "i"): 3,
    ("count_distinct", "s"): 3,
    ("set", "i"): [-7, 3, 5],
    ("set", "upper(s)"): ["A", "B", "É"],
    ("list", "s"): ["b", "é", "b", "a"],
    ("stddev", "x"): pytest.approx(2.483277404),
    ("approx_count_distinct", "s"): 3,
    ("bool_or", "i > 4"): True,
    ("bool_and", "i > 4"): False,
}
GREATEST = {"initial": "''", "update": "greatest(acc, value)", "merge": "greatest(left, right)"}
MORE = {
    aggregate("known", "last", "d", ignore_nulls=True): Decimal("0.01"),
    aggregate("early", "list", "s", at_most=2): ["b", "é"],
    aggregate("median", "approx_percentile", "x", percentile=0.5): 0.5,
    aggregate("product", "custom", "i", **custom().model_dump(include={"initial", "update", "merge"})): -315,
    aggregate("highest", "custom", "s", **GREATEST, finish="upper(acc)", ignore_nulls=True): "É",
    sql("busy", "event_count > 4"): True,
    sql("of_all", "a2 / (event_count * a0)"): 4 / 25,
    sql("squared", "of_all * of_all"): (4 / 25) ** 2,
    sql("cut", "early_truncated AND median < duration_seconds AND expires_at > session_start"): True,
}


def comparable(row: Row, by: Rule) -> dict[str, Any]:
    """What must be equal to the last bit: all but the change, and states that are equal within their error."""
    inexact = {a.name for a in by.aggregates if a.fn in ("stddev", "approx_count_distinct", "approx_percentile")}
    state = {name: part for name, part in row[C.STATE].asDict().items() if name not in inexact}
    results = {name: value for name, value in row.asDict().items() if name not in (C.CHANGE, *inexact)}
    return results | {C.STATE: state}


@pytest.mark.broad
def test_increments_give_what_one_run_gives(events: DataFrame) -> None:
    functions = [aggregate(f"a{n}", fn, of) for n, (fn, of) in enumerate(WANTED)]
    by = rule(*functions, *MORE)

    in_parts, at_once = merged(events, by), sessionize(events, None, by, WatermarkState(now=2**60)).changes.collect()[0]

    found = {case: in_parts[f"a{n}"] for n, case in enumerate(WANTED)}
    assert found == WANTED
    assert {name: in_parts[name] for a in MORE if (name := a.name)} == {a.name: value for a, value in MORE.items()}
    assert comparable(in_parts, by) == comparable(at_once, by)


def test_a_capped_set_keeps_the_smallest_values_and_says_that_it_was_cut(events: DataFrame) -> None:
    by = rule(aggregate("two", "set", "i", at_most=2), aggregate("three", "set", "i", at_most=3))
    row = merged(events, by)
    assert (row["two"], row["two_truncated"]) == ([-7, 3], True)
    assert (row["three"], row["three_truncated"]) == ([-7, 3, 5], False)


def doubles(spark: SparkSession, *values: float) -> DataFrame:
    """One session in as many parts, but short enough to be folded into one."""
    rows = [(n, f"2024-01-01 10:0{n}:00", n, x) for n, x in enumerate(values)]
    texts = spark.createDataFrame(rows, "part INT, at STRING, o INT, x DOUBLE")
    return texts.withColumn("at", F.col("at").cast("timestamp"))


@pytest.mark.parametrize("fn", ["set", "count_distinct"])
def test_zeros_of_either_sign_are_one_value_also_within_a_struct_and_in_one_piece(spark: SparkSession, fn: str) -> None:
    zeros, by = doubles(spark, 0.0, -0.0, 1.0), rule(aggregate("a", fn, "struct(x)"))
    whole = sessionize(zeros, None, by, WatermarkState(now=2**60)).changes.collect()
    found = [row["a"] for row in (*whole, merged(zeros, by))]
    assert [n if fn == "count_distinct" else len(n) for n in found] == [2, 2]


def test_nested_values_are_told_apart_by_where_they_have_nulls(spark: SparkSession) -> None:
    found = doubles(spark, 1.0, 2.0, 1.0)
    a, b = "nullif(x, 1)", "nullif(x, 2)"
    values = [f"struct({a}, {b})", f"array({a}, {b})", f"array(array({a}), array({b}))", "array(null, x, null)"]
    values += [
        "if(x = 1, array(nullif(x, x)), slice(array(x), 1, 0))",
        f"struct(struct({a}), array({b}, {b}))",
        f"array(struct({a}, {b}))",
        f"struct({a} AS x, {b} AS X)",
    ]
    fns = ("count_distinct", "approx_count_distinct")
    by = rule(*(aggregate(f"{fn}_{n}", fn, of) for n, of in enumerate(values) for fn in fns))
    (whole,) = sessionize(found, None, by, WatermarkState(now=2**60)).changes.collect()
    assert {row[a.name] for row in (whole, merged(found, by)) for a in by.aggregates} == {2}


def test_a_deviation_too_large_for_a_double_is_the_same_in_one_piece_and_in_several(spark: SparkSession) -> None:
    large, by = doubles(spark, 1e300, -1e300, 1e300), rule(aggregate("a", "stddev", "x"))
    (whole,) = sessionize(large, None, by, WatermarkState(now=2**60)).changes.collect()
    assert [isnan(a) for a in (whole["a"], merged(large, by)["a"])] == [True, True]


def test_a_sum_of_decimals_does_not_widen_from_merge_to_merge(events: DataFrame) -> None:
    by = rule(aggregate("total", "sum", "d"))
    table = None
    for _ in range(3):
        table = sessionize(events, table, by, WatermarkState(now=2**60)).changes.drop(C.CHANGE)
    assert table is not None
    assert table.schema["total"].dataType.simpleString() == "decimal(20,2)"
    assert table.collect()[0]["total"] == Decimal("300000000.90")


@pytest.mark.parametrize(
    ("wrong", "error", "says"),
    [
        (
            aggregate("a", "sum", "s"),
            ConfigError,
            "sum needs a number, and this is STRING: got 's'. Write of: try_cast",
        ),
        (aggregate("a", "avg", "at"), ConfigError, "avg needs a number, and this is TIMESTAMP"),
        (aggregate("a", "first", "m"), ConfigError, "first cannot take a value of type MAP"),
        (aggregate("a", "set", "m"), ConfigError, "set cannot take a value of type MAP"),
        (aggregate("a", "sum", "nobody"), SourceError, "nobody"),
        (aggregate("a", "sum", "x +"), ConfigError, "aggregates.a.of is neither a column nor an SQL expression"),
        (
            sql("a", "collate('x', 'UTF8_LCASE')"),
            ConfigError,
            "type that a Delta table can hold, and this is STRING COL",
        ),
        (aggregate("a", "max", "at - at"), ConfigError, "type that a Delta table can hold, and this is INTERVAL DAY"),
        (aggregate("a", "set", "at - at", at_most=9), ConfigError, "type that a Delta table can hold, and this is ARR"),
        (aggregate("a", "count_distinct", "at - at"), ConfigError, "type that a Delta table can hold, and this is STR"),
        (aggregate("a", "stddev", "s"), ConfigError, "stddev needs a number, and this is STRING"),
        (aggregate("a", "approx_percentile", "at", percentile=0.5), ConfigError, "needs a number, and this is TIMEST"),
        (aggregate("a", "bool_or", "s"), ConfigError, "needs true or false, and this is STRING: got 's'. Write a comp"),
        (aggregate("a", "approx_count_distinct", "m"), ConfigError, "cannot take a value of type MAP"),
        (
            aggregate("a", "approx_count_distinct", "make_interval(0, i)"),
            ConfigError,
            "cannot take a value of type INT",
        ),
        (aggregate("a", "list", "m", at_most=9), ConfigError, "list cannot take a value of type MAP"),
        (custom(initial="1 +"), ConfigError, "aggregates.a.initial is neither"),
        (custom(initial="big"), ConfigError, "aggregates.a.initial does not fit what it can use: got 'big'"),
        (custom(update="acc + i"), ConfigError, "It can use: acc, value"),
        (custom(update="acc) , (value"), ConfigError, "aggregates.a.update is neither"),
        (custom(update="acc + value / 2"), ConfigError, "update gives DOUBLE, and initial BIGINT"),
        (custom(update="acc + value / 2"), ConfigError, "for example initial: CAST(1L AS DOUBLE)"),
        (
            custom(initial="array(1L)", update="array(value)"),
            ConfigError,
            "gives ARRAY<INT>, and initial ARRAY<BIGINT>",
        ),
        (custom(update="acc + rand()"), ConfigError, "update must give the same value whenever"),
        (custom(merge="acc + right"), ConfigError, "It can use: left, right"),
        (custom(finish="acc + value"), ConfigError, "aggregates.a.finish does not fit what it can use"),
        (sql("a", "event_count ="), ConfigError, "aggregates.a.sql is neither a column nor"),
        (sql("a", "status = 'open'"), ConfigError, "not what changes while the session stays as it is, such as status"),
        (sql("a", "is_final"), ConfigError, "It can use: session_start, session_end, expires_at, duration_seconds, ev"),
        (sql("a", "sum(event_count)"), ConfigError, "aggregates.a.sql does not fit"),
        (sql("a", "rand() < 0.5"), ConfigError, "aggregates.a.sql must give the same value whenever"),
        (
            sql("a", "session_end - session_start"),
            ConfigError,
            "type that a Delta table can hold, and this is INTERVAL",
        ),
        (sql("a", "_state.a"), ConfigError, "aggregates.a.sql does not fit what it can use"),
    ],
)
def test_what_a_function_cannot_take_is_named(
    events: DataFrame, wrong: Aggregate, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        bind(rule(wrong), events)
    assert says.lower() in str(caught.value).lower()


def test_sql_columns_see_only_those_before_them(events: DataFrame) -> None:
    one, other = sql("one", "event_count + 1"), sql("other", "one + pages")
    pages = aggregate("pages", "count", "s")
    bind(rule(one, other, pages), events)
    with pytest.raises(ConfigError, match=r"aggregates\.other\.sql does not fit what it can use: got 'one . pages'"):
        bind(rule(other, one, pages), events)


def test_columns_with_sql_stand_where_the_config_has_them(spark: SparkSession, events: DataFrame) -> None:
    by = rule(sql("bounced", "event_count = 1"), aggregate("n", "count"))
    names = session_schema(events, by).names
    assert names[names.index("event_count") :][:3] == ["event_count", "bounced", "n"]


def test_a_custom_accumulator_keeps_the_type_of_initial(events: DataFrame) -> None:
    total = custom(initial="CAST(0 AS DECIMAL(20, 2))", update="acc + value -- cents", merge="left + right")
    priced = total.model_copy(update={"of": "d", "ignore_nulls": True})
    counted = custom(initial="0L", update="IF(value > 0, 1, 0)", merge="left + right").model_copy(update={"name": "b"})
    schema = session_schema(events, rule(priced, counted))
    assert [schema[name].dataType.simpleString() for name in "ab"] == ["decimal(20,2)", "bigint"]
