"""The product in a notebook: `sessionizer.open`."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

import sessionizer
from sessionizer.jobs.notebook import Project
from sessionizer.jobs.queries.lookups import LookUp, look_up
from sessionizer.lib.errors import ConfigError, UsageError
from tests.warehouse import FIRST_EVENTS, MORE_EVENTS, Warehouse

pytestmark = pytest.mark.broad


def test_from_a_config_to_frames_and_a_page(spark: SparkSession, tmp_path: Path) -> None:
    made = Warehouse(spark, tmp_path)
    made.append(FIRST_EVENTS)
    fields = made.config.model_dump(mode="json", exclude_none=True, include={"source", "sessions", "session"})
    (tmp_path / "sessionizer.yaml").write_text(yaml.safe_dump(fields))

    s = sessionizer.open(str(tmp_path / "sessionizer.yaml"))
    assert any("made" in line for line in s.init())
    assert [run["events_read"] for run in s.run()] == [7]
    assert s.run() == []
    ann: Any = s.sessions(key="ann").toPandas()
    assert (list(ann["event_count"]), list(ann["session_start"])) == ([2], [datetime(2026, 1, 1, 8)])
    assert s.sql("SELECT count(*) AS n FROM sessions").collect()[0]["n"] == s.sessions().count()
    made.append(MORE_EVENTS)
    s.run()
    (again,) = s.backfill(datetime(2026, 1, 1, 8, tzinfo=UTC), datetime(2026, 1, 1, 9))
    assert again["mode"] == "backfill"
    assert s.verify().clean
    assert s.status()["versions_behind"] == 0
    assert s.report(tmp_path / "page.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_what_retention_leaves_out_is_not_found_as_by_the_command_line(spark: SparkSession, tmp_path: Path) -> None:
    made = Warehouse(spark, tmp_path, sessions={"retention": "1h"})
    made.append(FIRST_EVENTS)
    made.init().run()
    project = Project(made.config, spark)
    told = [row["user"] for row in look_up(made.tables, LookUp()).collect()]
    assert [row["user"] for row in project.sessions().collect()] == told
    assert "ann" not in told


def test_errors_are_those_of_the_command_line(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no config file"):
        sessionizer.open(str(tmp_path / "nothing.yaml"))
    made = Warehouse(spark, tmp_path)
    made.append(FIRST_EVENTS)
    made.init().run()
    fields = made.config.model_dump(mode="json", exclude_none=True, include={"source", "sessions", "session"})
    (tmp_path / "sessionizer.yaml").write_text(yaml.safe_dump(fields))
    with pytest.raises(UsageError, match="one value for each key column"):
        sessionizer.open(str(tmp_path / "sessionizer.yaml")).sessions(key=("ann", "b"))
