"""Several sources as real tables: what only Delta does to a table, done to one of them."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.look_back import LookBack, rebuild
from sessionizer.jobs.commands.verify import Asked, verify
from sessionizer.jobs.plans import backfill as of_backfill
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.kinds import kind_of
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib.config import Config
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import SourceMismatch
from sessionizer.tables.delta.settings import having
from sessionizer.tables.queries.local import LocalTableSet
from tests.exactness.play import AT_ONCE
from tests.warehouse import NOW

pytestmark = pytest.mark.broad

PROPERTIES = "'delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name'"


class Lake:
    """Clicks and calls of the same columns; copies are told by n."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.config = Config.model_validate(
            {
                "sources": [
                    {"name": name, "table": str(folder / name), "key": ["u"], "event_time": "at"}
                    for name in ("clicks", "calls")
                ],
                "events": {"dedupe": {"by": ["n"], "within": "1h"}},
                "sessions": {"table": str(folder / "sessions")},
                "session": {"gap": "10m"},
                "aggregates": [{"name": "numbers", "fn": "list", "of": "n"}],
            }
        )
        for name in ("clicks", "calls"):
            columns = "u STRING, at TIMESTAMP, n INT, note STRING"
            self.does(name, f"CREATE TABLE {{}} ({columns}) USING delta TBLPROPERTIES ({PROPERTIES})")

    def does(self, name: str, statement: str) -> "Lake":
        self.spark.sql(statement.replace("{}", f"delta.`{self.folder / name}`"))
        return self

    def comes(self, name: str, user: str, minute: int, n: int, times: int = 1) -> "Lake":
        row = f"('{user}', TIMESTAMP'2026-01-01' + INTERVAL {minute} MINUTES, {n}, 'said {n}')"
        return self.does(name, f"INSERT INTO {{}} VALUES {', '.join([row] * times)}")

    def run(self) -> list[RunReport]:
        return run(self.spark, self.config, RunOptions(now=NOW))

    def rows(self, place: str, *columns: str) -> list[tuple[Any, ...]]:
        frame = self.spark.read.format("delta").load(place).select(*columns)
        return sorted(map(tuple, frame.collect()), key=repr)

    def assert_clean(self) -> None:
        verdict = verify(self.spark, self.config, Asked())
        assert verdict.clean, verdict


def by_commits(config: Config) -> Config:
    """The same where each commit that changes rows comes alone."""
    told = config.model_dump(mode="json", exclude_unset=True)
    return Config.model_validate(told | {"corrections": {"deletes": "ignore", "updates": "apply"}})


def test_a_column_renamed_in_one_source_is_told_anew_there(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path).comes("clicks", "a", 0, 1, times=2).comes("calls", "a", 5, 1, times=2)
    init(spark, lake.config, None, lambda _: None)
    lake.run()
    rejects, sessions = lake.config.outputs.rejected_events, lake.config.sessions.table
    assert lake.rows(rejects, "source", "reason") == [("calls", "duplicate"), ("clicks", "duplicate")]
    before = dict(lake.rows(rejects, "source", "event_hash"))
    lake.does("calls", "ALTER TABLE {} RENAME COLUMN note TO remark").comes("calls", "a", 8, 2)
    lake.run()
    after = dict(lake.rows(rejects, "source", "event_hash"))
    assert (after["clicks"] == before["clicks"], after["calls"] == before["calls"]) == (True, False)
    assert lake.rows(sessions, "u", "numbers") == [("a", [1, 1, 2])]
    lake.assert_clean()
    lake.does("calls", "DELETE FROM {} WHERE n = 1").run()
    assert lake.rows(rejects, "source", "reason") == [("clicks", "duplicate")]
    assert lake.rows(sessions, "u", "numbers") == [("a", [1, 2])]
    lake.assert_clean()


def test_a_column_that_the_config_names_must_stay_in_each_source(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path).comes("clicks", "a", 0, 1).comes("calls", "a", 5, 1)
    init(spark, lake.config, None, lambda _: None)
    lake.run()
    lake.does("calls", "ALTER TABLE {} RENAME COLUMN n TO m").comes("clicks", "a", 8, 2)
    with pytest.raises(SourceMismatch, match="is gone from the source, or has another name there: n"):
        lake.run()


def test_a_column_that_counts_for_another_source_may_go_and_so_may_one_called_as_a_word_of_sql(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path).does("clicks", "ALTER TABLE {} ADD COLUMNS (amount INT, `end` INT)")
    lake.comes("calls", "a", 5, 1).does("calls", "ALTER TABLE {} ADD COLUMN amount INT")
    lake.does("clicks", "INSERT INTO {} VALUES ('a', TIMESTAMP'2026-01-01', 2, 'x', 3, 4)")
    told = lake.config.model_dump(mode="json", exclude_unset=True)
    told["aggregates"] = [{"name": "called", "fn": "sum", "of": "amount", "source": "calls"}]
    lake.config = Config.model_validate(told)
    init(spark, lake.config, None, lambda _: None)
    lake.run()
    lake.does("clicks", "ALTER TABLE {} DROP COLUMNS (amount, `end`)").comes("clicks", "a", 8, 3)
    lake.run()
    assert lake.rows(lake.config.sessions.table, "u", "event_count", "called") == [("a", 3, None)]
    lake.assert_clean()


def test_columns_of_several_sources_that_are_mapped_no_longer_stop_no_run(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path).comes("clicks", "a", 0, 1, times=2).comes("calls", "a", 5, 2)
    init(spark, lake.config, None, lambda _: None)
    lake.run()
    lake.does("clicks", "ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')")
    lake.comes("clicks", "a", 8, 1)
    lake.run()
    assert lake.rows(lake.config.sessions.table, "u", "numbers") == [("a", [1, 2])]
    assert lake.rows(lake.config.outputs.rejected_events, "source", "reason") == [("clicks", "duplicate")] * 2
    lake.assert_clean()


def test_what_comes_alone_passes_over_upkeep_of_others_where_their_older_files_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path).comes("clicks", "a", 0, 1).comes("calls", "a", 5, 2).comes("calls", "a", 6, 3)
    lake.config = by_commits(lake.config)
    init(spark, lake.config, None, lambda _: None)
    lake.run()
    lake.does("clicks", "UPDATE {} SET n = 7 WHERE n = 1")
    with having(spark, AT_ONCE):
        lake.does("calls", "OPTIMIZE {}").does("calls", "VACUUM {} RETAIN 0 HOURS")
    upkeep = kind_of(spark, lake.config).tables.events.versions["calls"]
    lake.comes("calls", "a", 7, 4)
    assert [of.manifest.consumed["calls"].version for of in lake.run()] == [upkeep, upkeep + 1]
    assert lake.rows(lake.config.sessions.table, "u", "numbers") == [("a", [7, 2, 3, 4])]
    lake.assert_clean()


def test_a_restore_takes_the_positions_of_all_sources_back(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path).comes("clicks", "a", 0, 1)
    init(spark, lake.config, None, lambda _: None)
    lake.run()
    lake.comes("calls", "a", 5, 2).comes("clicks", "a", 6, 3, times=2)
    lake.run()
    home = kind_of(spark, lake.config).home
    with home.table.lock():
        lake.does("sessions", "RESTORE TABLE {} TO VERSION AS OF 1")
    position = kind_of(spark, lake.config).home.position().manifest
    assert position is not None
    assert {name: of.to_version for name, of in position.sources.items()} == {
        "calls": 1,
        "clicks": 2,
    }  # init is a version of each
    lake.comes("calls", "a", 7, 4)
    lake.run()
    assert lake.rows(lake.config.sessions.table, "u", "numbers") == [("a", [1, 2, 3, 4])]
    assert lake.rows(lake.config.outputs.rejected_events, "source", "reason") == [("clicks", "duplicate")]
    lake.assert_clean()


def test_a_source_whose_files_are_gone_as_they_were_read_does_not_wait_for_a_commit_of_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path)
    lake.config = by_commits(lake.config)
    lake.comes("clicks", "a", 0, 1).comes("calls", "a", 5, 2).comes("calls", "b", 0, 3)
    init(spark, lake.config, None, lambda _: None)
    lake.run()
    lake.does("clicks", "UPDATE {} SET n = 7 WHERE n = 1").does("calls", "OPTIMIZE {}")
    with having(spark, AT_ONCE):
        lake.does("calls", "VACUUM {} RETAIN 0 HOURS")
    lake.comes("calls", "b", 1, 8).does("calls", "DELETE FROM {} WHERE n = 3").run()
    assert lake.rows(lake.config.sessions.table, "u", "numbers") == [("a", [7, 2]), ("b", [3, 8])]
    assert lake.rows(lake.config.outputs.rejected_events, "u", "reason") == [("b", "ignored_delete")]
    lake.assert_clean()


def test_what_would_be_made_again_is_told_though_a_source_that_waits_for_its_start_was_made_anew(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = Lake(spark, tmp_path)
    made = "CREATE TABLE {} (u STRING, at TIMESTAMP, n INT) USING delta"
    made += " TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    for name in ("clicks", "calls"):  # logs alone do not tell of columns that are mapped
        shutil.rmtree(tmp_path / name)
        lake.does(name, made)
    lake.does("clicks", "INSERT INTO {} VALUES ('a', TIMESTAMP'2026-01-01', 1)")
    told = lake.config.model_dump(mode="json", exclude_unset=True)
    told["sources"][1]["start"] = {"version": 9}
    lake.config = Config.model_validate(told)
    init(spark, lake.config, None, lambda _: None)
    lake.run()
    shutil.rmtree(tmp_path / "calls")
    lake.does("calls", made)
    plan = of_backfill.plan(LocalTableSet(lake.config), kind_of(spark, lake.config), LookBack(NOW - DAY, NOW))
    assert plan.part.versions == {"clicks": 2, "calls": -1}  # init is a version
    lake.assert_clean()


def test_sources_become_one_and_one_becomes_sources(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path).comes("clicks", "a", 0, 1, times=2).comes("calls", "a", 5, 2)
    init(spark, lake.config, None, lambda _: None)
    lake.run()
    several, dedupe = lake.config, {"by": ["n"], "within": "1h"}
    clicks = {"table": str(tmp_path / "clicks"), "key": ["u"], "event_time": "at", "dedupe": dedupe}
    alone = Config.model_validate(
        {"source": clicks} | several.model_dump(mode="json", exclude_unset=True, exclude={"sources", "events"})
    )
    sessions = []
    for number, config in enumerate((alone, several), 1):
        lake.config = config
        rebuild(kind_of(spark, config), now=NOW)
        lake.comes("clicks", "a", 5 + number, 2 + number, times=2).run()
        lake.assert_clean()
        sessions.append(lake.rows(config.sessions.table, "u", "event_count"))
    assert sessions == [[("a", 2)], [("a", 4)]]
    assert len(lake.rows(several.outputs.runs, "run_id")) == 5
