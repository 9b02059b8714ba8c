"""One Spark session for the whole run, and where the real data is."""

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["TZ"] = "UTC"
time.tzset()
# Where the main module has no file, as in the processes of pytest-xdist, PySpark takes it for its own doctests: whoever
# imports its Connect, as Great Expectations does, then ends the process.
sys.modules["__main__"].__dict__.setdefault("__file__", __file__)
# A process that makes thousands of classes of its own is no good source for an archive of them.
os.environ.setdefault("SESSIONIZER_CLASS_ARCHIVE", "off")

import pytest
from hypothesis import HealthCheck, settings
from pyspark.sql import SparkSession

from jobs.spark import spark_session
from tests.few_rows import for_few_rows
from tests.summary import (  # noqa: F401  (pytest finds them here)
    pytest_sessionfinish,
    pytest_terminal_summary,
    pytest_testnodedown,
    tally,
)

settings.register_profile(
    "spark",
    deadline=None,
    # Examples are large on purpose: many cases share one Spark job.
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.function_scoped_fixture,
    ],
)
settings.load_profile("spark")


FAULTS = Path(__file__).parent / "faults"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FAULTS):
            item.add_marker("faults")


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = spark_session({"spark.driver.memory": "5g"})
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def few_rows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Slow tests and fault tests do many jobs over a few rows; all others run by the settings that users have."""
    marks = {mark.name for mark in request.node.iter_markers()}
    if not marks & {"slow", "faults"} or "many_rows" in marks or "spark" not in request.fixturenames:
        yield
        return
    with for_few_rows(request.getfixturevalue("spark")):
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real data; SESSIONIZER_DATA overrides it."""
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("SESSIONIZER_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"real data is not here: {folder} (set SESSIONIZER_DATA)")
    return folder
