"""Frames that executors hold, and when they forget them."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.run.compute import Checkpoints, given_back, outlasting
from tests.warehouse import Warehouse

COMPUTE = Checkpoints()
DELTA = "Delta Table State"


def kept(spark: SparkSession) -> set[int]:
    """The RDDs that executors hold, but those that Delta keeps for itself."""
    java: Any = spark.sparkContext._jsc
    return {number for number, rdd in java.getPersistentRDDs().items() if DELTA not in str(rdd.name())}


def test_what_is_held_is_forgotten_at_the_end(spark: SparkSession) -> None:
    before = kept(spark)
    with given_back():
        numbers, seen = COMPUTE.observed(spark.range(3), {"rows": F.count(F.lit(1))})
        with given_back():
            COMPUTE.held(spark.range(4))
            assert len(kept(spark) - before) == 2
        assert len(kept(spark) - before) == 1
        assert (numbers.count(), seen["rows"]) == (3, 3)
    assert kept(spark) <= before


def test_it_is_forgotten_after_an_error_too(spark: SparkSession) -> None:
    before = kept(spark)

    def fails() -> None:
        with given_back():
            COMPUTE.held(spark.range(3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert kept(spark) <= before


def test_what_is_to_outlast_stays_readable_and_so_does_all_that_it_was_made_of(spark: SparkSession) -> None:
    with given_back():
        first = COMPUTE.held(spark.range(3))
        second = outlasting(COMPUTE.held(first.where("id > 0")))
    assert (first.count(), second.count()) == (3, 2)


def test_without_an_end_it_stays(spark: SparkSession) -> None:
    assert COMPUTE.held(spark.range(3)).count() == 3


def test_a_run_leaves_nothing_with_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, tmp_path)
    warehouse.append("ann | 10:00 | 1")
    warehouse.init()
    before = kept(spark)
    warehouse.run()
    assert kept(spark) <= before
