"""A metastore for each test, or for all tests of a file that ask for `shared`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.catalogs.metastore import Lake

Made = Callable[..., Lake]


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Made]:
    """Makes a lake whose tables have names of this prefix."""
    lakes: list[Lake] = []

    def make(*prefix: str) -> Lake:
        lakes.append(Lake(tmp_path, *prefix))
        return lakes[-1]

    yield make
    for lake in lakes:
        lake.worker.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    lake = Lake(tmp_path_factory.mktemp("lake"))
    yield lake
    lake.worker.close()
