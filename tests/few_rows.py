"""Settings for thousands of queries over a few rows: compiling each to Java would take most of their time.

Nor does Delta sum its log up beside each commit, which takes a tenth of a small run.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import SparkSession

FOR_FEW_ROWS = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}


@contextmanager
def for_few_rows(session: SparkSession) -> Iterator[None]:
    """Inside it the session has these settings."""
    before = {name: session.conf.get(name, None) for name in FOR_FEW_ROWS}
    try:
        for name, value in FOR_FEW_ROWS.items():
            session.conf.set(name, value)
        yield
    finally:
        for name, old in before.items():
            if old is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, old)
