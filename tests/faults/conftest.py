"""Lakes to break, made once."""

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.faults.lakes import Stock
from tests.few_rows import for_few_rows


@pytest.fixture(scope="session")
def stock(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stock:
    return Stock(spark, tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def few_rows(spark: SparkSession) -> Iterator[None]:
    """For modules that do many jobs over a few rows."""
    with for_few_rows(spark):
        yield
