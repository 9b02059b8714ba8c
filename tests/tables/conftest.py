"""Warehouses that a module makes once, and that each test copies: a run costs seconds, a copy nothing."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.warehouse import FIRST_EVENTS, MORE_EVENTS, Warehouse

SECTIONS = {"time": {"allowed_lateness": "1h"}, "sessions": {"commit": "merge"}}

Copied = Callable[..., Warehouse]


@pytest.fixture
def copied(spark: SparkSession, tmp_path: Path) -> Copied:
    """A copy of a warehouse, to be changed by one test; it may be configured otherwise."""

    def copy(of: Warehouse, **sections: Any) -> Warehouse:
        shutil.copytree(of.folder, tmp_path / "copy")
        return Warehouse(spark, tmp_path / "copy", **SECTIONS | sections)

    return copy


@pytest.fixture(scope="package")
def after_one_run(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """FIRST_EVENTS are sessions, MORE_EVENTS are waiting."""
    warehouse = Warehouse(spark, tmp_path_factory.mktemp("after_one_run"), **SECTIONS)
    warehouse.append(FIRST_EVENTS)
    warehouse.init().run()
    warehouse.append(MORE_EVENTS)
    return warehouse


@pytest.fixture(scope="package")
def after_two_runs(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, after_one_run: Warehouse
) -> Warehouse:
    """Both are sessions, and nothing has disturbed the runs."""
    folder = tmp_path_factory.mktemp("after_two_runs") / "undisturbed"
    shutil.copytree(after_one_run.folder, folder)
    warehouse = Warehouse(spark, folder, **SECTIONS)
    warehouse.run()
    return warehouse
