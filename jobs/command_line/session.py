"""What commands do alike: load the config, start Spark behind a line of progress, say what came out."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from jobs.console import Line
    from lib.config import Config


@contextmanager
def session(
    config: Path, first: str = "starting Spark", *, quiet: bool, increments: bool = False
) -> "Iterator[tuple[SparkSession, Config, Line]]":
    """Spark and the config, while what is being done is said. increments: few new events need a small Spark."""
    from jobs.config_file import load_config
    from jobs.console import progress

    loaded = load_config(config)
    with progress(first, quiet=quiet) as say:
        from jobs.spark import spark_session
        from tables.queries.status import is_small

        yield spark_session(loaded.spark, small=increments and is_small(loaded)), loaded, say


def result(document: object, as_json: bool, show: Callable[[], Any]) -> None:
    """Say it to a machine or to a user."""
    from jobs.console import print_json

    if as_json:
        print_json(document)
    else:
        show()
