"""The mean of decimals: divided once, rounded once, whatever its type."""

from decimal import ROUND_HALF_UP, Decimal, localcontext
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sessionizer.lib.aggregates.decimals import mean, mean_type

TYPES = [(12, 2), (13, 0), (18, 6), (20, 2), (23, 2), (38, 0), (38, 10), (38, 18), (38, 34), (38, 38)]


def right(total: Decimal, count: int, kind: T.DecimalType) -> Decimal | None:
    with localcontext(prec=120):
        found = (total / count).quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
        return found if abs(found) < Decimal(10) ** (kind.precision - kind.scale) else None


def units(number: int, scale: int) -> Decimal:
    with localcontext(prec=80):
        return Decimal(number).scaleb(-scale)


@pytest.mark.parametrize(("precision", "scale"), TYPES)
def test_a_mean_is_rounded_once_at_the_digits_that_it_has(spark: SparkSession, precision: int, scale: int) -> None:
    of, random = T.DecimalType(precision, scale), Random(7)
    most = min(precision + 10, 38)
    kind = mean_type(of)
    told = [(0, 1), (1, 2), (-5, 11), (5, 11), (1, 20_001), (10**most - 1, 1)]
    for _ in range(200):
        number = random.randint(-(10 ** random.randint(1, most)) + 1, 10 ** random.randint(1, most) - 1)
        told.append((number, random.choice((1, 2, 3, 7, 8, 11, 1000, 999_983, 2**40 + 1))))
    cases = [(units(number, scale), count) for number, count in told]
    rows = [(n, f"{total:f}", count) for n, (total, count) in enumerate(cases)]
    frame = spark.createDataFrame(rows, "id INT, total STRING, n BIGINT")
    found = frame.select("id", mean(F.col("total").cast(T.DecimalType(most, scale)), F.col("n"), of).alias("mean"))
    assert found.schema["mean"].dataType == kind
    means = dict(map(tuple, found.collect()))
    wanted = {n: right(total, count, kind) for n, (total, count) in enumerate(cases)}
    assert [(*cases[n], means[n], wanted[n]) for n in means if means[n] != wanted[n]] == []


def test_a_mean_of_nothing_is_null(spark: SparkSession) -> None:
    frame = spark.sql("SELECT CAST(NULL AS DECIMAL(38,10)) AS total, 0L AS n")
    assert frame.select(mean(F.col("total"), F.col("n"), T.DecimalType(38, 10))).collect()[0][0] is None
