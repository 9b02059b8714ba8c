"""One Spark session for each process of the run, what runs by which settings, and where the real data is.

- By the settings that users have, compiled code and all: what is about the rows that come out (`tests/lib`,
  `tests/properties`), about many rows (`many_rows`), and of the commands and tables those in COMPILED.
- As interpreted code: all others. They are about tables, commits and commands, and do thousands of queries over a few
  rows: compiling each costs more than running it. Of the broad ones shuffles are as users have them.
- And without shuffling in parts: all of these but the broad ones.

Java has its quick compiler alone, but for slow tests: in the minutes that the others take, its thorough one costs more
than it gives. And the heap it comes to from the start: as it grows, all of it is collected forty times in ten minutes.
"""

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

from sessionizer.jobs.spark import spark_session
from tests.connect_server import connect_server
from tests.few_rows import FOR_FEW_ROWS, for_few_rows
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


HERE = Path(__file__).parent
FAULTS = HERE / "faults"
# What takes longest comes first, so that processes that take file after file end at about the same time.
LONGEST = (
    "faults/test_crashes.py",
    "faults/test_races.py",
    "machine/test_machine.py",
    "exactness/test_windows.py",
    "faults/test_cluster.py",
    "machine/test_mutants.py",
    "properties/test_any_history.py",
    "exactness/test_restore.py",
    "machine/test_over_delta.py",
    "exactness/test_forgetting.py",
    "exactness/test_verify.py",
    "tables/test_commit_protocol.py",
    "jobs/test_look_back.py",
    "properties/test_increments_equal_recompute.py",
    "jobs/test_ingest.py",
    "lib/test_boundaries.py",
    "tables/test_few_rows.py",
    "tables/test_errors.py",
    "jobs/test_changes_command.py",
    "jobs/test_maintain.py",
    "lib/test_aggregates.py",
    "jobs/test_demo.py",
    "properties/test_order_never_matters.py",
    "faults/test_floods.py",
)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    ranks = {HERE / file: rank for rank, file in enumerate(LONGEST)}
    for item in items:
        if item.path.is_relative_to(FAULTS):
            item.add_marker("faults")
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
    if part := os.environ.get("SESSIONIZER_TEST_PART"):
        number, of = map(int, part.split("/"))
        marks = [(item.path, {mark.name for mark in item.iter_markers()}) for item in items]
        broad = dict.fromkeys(path for path, own in marks if "broad" in own and "slow" not in own)
        mine = list(broad)[number - 1 :: of]  # whole files, the longest shared out first
        config.hook.pytest_deselected(items=[item for item in items if item.path not in mine])
        items[:] = [item for item in items if item.path in mine]


# Folders and files that run by the settings that users have; what is marked `many_rows` does so, too.
COMPILED = (
    "lib",
    "properties",
    "soak",
    "jobs/test_cli.py",
    "jobs/test_examples.py",
    "jobs/test_slide.py",
    "tables/test_many_rows.py",
)
QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -Xms2g"
AS_COMPILED = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}  # Spark's defaults
AS_INTERPRETED = {name: FOR_FEW_ROWS[name] for name in AS_COMPILED}


@pytest.fixture(scope="session")
def spark(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    if "SESSIONIZER_TEST_CONNECT" in os.environ:  # the same tests by a Spark that is elsewhere
        with connect_server(tmp_path_factory.mktemp("server")) as url:
            yield spark_session({"spark.remote": url} | AS_INTERPRETED)
        return
    is_long = any(item.get_closest_marker("slow") for item in request.session.items)
    quick = {} if is_long else {"spark.driver.extraJavaOptions": QUICK}
    session = spark_session({"spark.driver.memory": "5g"} | quick | AS_INTERPRETED)
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def compiled(request: pytest.FixtureRequest) -> Iterator[None]:
    """Before the module makes what its tests share. What several modules share is made as interpreted code."""
    module = request.node
    asked = "many_rows" in {mark.name for mark in module.iter_markers()} or is_compiled(module.path)
    if not asked or not any(item.get_closest_marker("spark") for item in items_of(module)):
        yield
        return
    session = request.getfixturevalue("spark")
    for name, value in AS_COMPILED.items():
        session.conf.set(name, value)
    yield
    for name, value in AS_INTERPRETED.items():
        session.conf.set(name, value)


def is_compiled(path: Path) -> bool:
    return any(path.is_relative_to(HERE / place) for place in COMPILED)


def items_of(module: pytest.Module) -> list[pytest.Item]:
    return [item for item in module.session.items if item.path == module.path]


@pytest.fixture(autouse=True)
def few_rows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of all but the broad ones, and those that run by the settings that users have."""
    marks = {mark.name for mark in request.node.iter_markers()}
    as_users_have = "broad" in marks or is_compiled(request.node.path)
    if "spark" not in marks or "many_rows" in marks or (as_users_have and not marks & {"slow", "faults"}):
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
