"""Settings for thousands of queries over a few rows: compiling each to Java would take most of their time."""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@contextmanager
def for_few_rows(session: SparkSession) -> Iterator[None]:
    """Inside it the session has these settings."""
    before = {name: session.conf.get(name) for name in FOR_FEW_ROWS}
    try:
        for name, value in FOR_FEW_ROWS.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            session.conf.set(name, str(old))
