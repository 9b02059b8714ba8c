"""Lakes to break, made once."""

import pytest
from pyspark.sql import SparkSession

from tests.faults.lakes import Stock


@pytest.fixture(scope="session")
def stock(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Stock:
    return Stock(spark, tmp_path_factory.mktemp("stock"))
