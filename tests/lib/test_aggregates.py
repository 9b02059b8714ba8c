"""Every aggregate as a partial / merge / finish triple: any split gives what the whole gives."""

from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lib import columns as C
from lib.config import Aggregate
from lib.errors import ConfigError, SourceError
from lib.pipeline import sessionize
from lib.rule import Rule
from lib.watermarks import Clock

HOUR = 3600 * 1_000_000
SCHEMA = "part INT, at TIMESTAMP, o INT, i INT, big BIGINT, d DECIMAL(10,2), x DOUBLE, s STRING, m MAP<STRING,INT>"
BIG = 9_000_000_000_000_000_000


def rule(*aggregates: Aggregate) -> Rule:
    return Rule(key=(), gap=HOUR, event_time="at", order_by=("o",), aggregates=aggregates, max_future_skew=0)


def aggregate(name: str, fn: Any, of: str | None = None, **more: Any) -> Aggregate:
    return Aggregate(name=name, fn=fn, of=of, **more)


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
    table, clock = None, Clock(now=2**60)
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
}


def test_increments_give_what_one_run_gives(events: DataFrame) -> None:
    functions = [aggregate(f"a{n}", fn, of) for n, (fn, of) in enumerate(WANTED)]
    by = rule(*functions, aggregate("known", "last", "d", ignore_nulls=True), aggregate("early", "first", "s"))

    in_parts, at_once = merged(events, by), sessionize(events, None, by, Clock(now=2**60)).changes.collect()[0]

    found = {case: in_parts[f"a{n}"] for n, case in enumerate(WANTED)}
    assert found == WANTED
    assert in_parts["known"] == Decimal("0.01")
    assert {n: in_parts[n] for n in at_once.asDict() if n != C.CHANGE} == {
        n: v for n, v in at_once.asDict().items() if n != C.CHANGE
    }


def test_a_capped_set_keeps_the_smallest_values_and_says_that_it_was_cut(events: DataFrame) -> None:
    by = rule(aggregate("two", "set", "i", at_most=2), aggregate("three", "set", "i", at_most=3))
    row = merged(events, by)
    assert (row["two"], row["two_truncated"]) == ([-7, 3], True)
    assert (row["three"], row["three_truncated"]) == ([-7, 3, 5], False)


def test_a_sum_of_decimals_does_not_widen_from_merge_to_merge(events: DataFrame) -> None:
    by = rule(aggregate("total", "sum", "d"))
    table = None
    for _ in range(3):
        table = sessionize(events, table, by, Clock(now=2**60)).changes.drop(C.CHANGE)
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
    ],
)
def test_what_a_function_cannot_take_is_named(
    events: DataFrame, wrong: Aggregate, error: type[Exception], says: str
) -> None:
    with pytest.raises(error) as caught:
        sessionize(events, None, rule(wrong), Clock(now=0))
    assert says.lower() in str(caught.value).lower()
