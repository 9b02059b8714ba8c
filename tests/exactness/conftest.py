"""A play of its own for each test, or one that a module makes once and its tests copy."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.exactness.ageing import age
from tests.exactness.play import EVENTS, Play
from tests.few_rows import for_few_rows


@pytest.fixture(scope="module", autouse=True)
def few_rows_in_modules(spark: SparkSession) -> Iterator[None]:
    """What a module makes for all its tests is as small as what they make themselves."""
    with for_few_rows(spark):
        yield


@pytest.fixture
def play(spark: SparkSession, tmp_path: Path) -> Callable[..., Play]:
    """Plays these events, run by run, by a config with these sections."""

    def play(events: str, schema: str = EVENTS, now: float | None = None, **sections: Any) -> Play:
        made = Play(spark, tmp_path / "play", schema, **sections)
        return (made if now is None else made.at(now)).runs(events)

    return play


@pytest.fixture
def copied(spark: SparkSession, tmp_path: Path) -> Callable[..., Play]:
    """A copy of a play, to be changed by one test."""

    def copy(of: Play, **sections: Any) -> Play:
        shutil.copytree(of.folder, tmp_path / "copy")
        return Play(spark, tmp_path / "copy", of.schema, **of.sections | sections)

    return copy


@pytest.fixture
def aged(spark: SparkSession, tmp_path: Path) -> Callable[..., Play]:
    """A play as it is forty days later."""

    def aged(of: Play, days: float = 40) -> Play:
        shutil.copytree(of.folder, tmp_path / "aged")
        age(tmp_path / "aged", days)
        return Play(spark, tmp_path / "aged", of.schema, **of.sections)

    return aged
