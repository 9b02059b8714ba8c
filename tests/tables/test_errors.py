"""What stops a run: each error names the fact and what helps, and leaves every table as it was."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from delta import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.look_back import rebuild
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError, SessionizerError, SourceError, TableError
from sessionizer.tables.delta import Table
from sessionizer.tables.source import require_source
from tests.tables.conftest import SECTIONS, Copied
from tests.text_tables import clock
from tests.warehouse import EVENTS, FIRST_EVENTS, NOW, Warehouse


def refusal(warehouse: Warehouse, kind: type[SessionizerError], config: Config | None = None, **options: Any) -> str:
    """What a run says that must not do anything."""
    before = warehouse.versions()
    with pytest.raises(kind) as error:
        run(warehouse.spark, config or warehouse.config, RunOptions(**{"now": NOW} | options))
    assert warehouse.versions() == before
    return str(error.value)


def refused_by_init(warehouse: Warehouse, kind: type[SessionizerError], **sections: Any) -> str:
    warehouse.config = warehouse.configured(**sections)
    with pytest.raises(kind) as error:
        warehouse.init()
    assert not (warehouse.folder / "sessions").exists()
    return str(error.value)


def assert_says(message: str, *fragments: str) -> None:
    assert [f for f in fragments if f not in message] == [], message


@pytest.fixture(scope="module")
def source_only(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Events, with a change feed, and nothing else; to be read only."""
    warehouse = Warehouse(spark, tmp_path_factory.mktemp("source_only"), **SECTIONS)
    warehouse.append(FIRST_EVENTS)
    return warehouse


def replace_events(warehouse: Warehouse, *columns: str) -> None:
    """Write the source anew with other columns, as somebody does who changes their mind."""
    row = warehouse.spark.createDataFrame([("zoe", "2026-01-01 14:00:00", 1)], "user STRING, at STRING, n INT")
    writer = row.selectExpr(*columns).write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    writer.save(warehouse.config.source.table)


# Tables that are not there


def test_a_source_that_is_missing(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, tmp_path)
    assert_says(
        refusal(warehouse, TableError), "source.table does not exist", f"{tmp_path}/events", "sessionizer ingest"
    )
    with pytest.raises(TableError, match="does not exist"):
        warehouse.init()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_parquet_files_is_no_delta_table(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, tmp_path)
    spark.range(1).write.parquet(warehouse.config.source.table)
    with pytest.raises(TableError) as error:
        warehouse.run()
    says = ("source.table must be a Delta table", "_SUCCESS", f"{tmp_path}/events", "CONVERT TO DELTA")
    assert_says(str(error.value), *says)


def test_sessions_that_are_missing_name_init(source_only: Warehouse) -> None:
    assert_says(refusal(source_only, TableError), "sessions.table does not exist", "`sessionizer init` makes it")


def test_a_ledger_that_is_missing_names_init(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    shutil.rmtree(warehouse.folder / "runs")
    assert_says(refusal(warehouse, TableError), "outputs.runs does not exist", "`sessionizer init` makes it")


def test_init_turns_the_change_feed_on_and_says_so(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, tmp_path)
    spark.createDataFrame([], EVENTS).write.format("delta").save(warehouse.config.source.table)
    assert_says(refusal(warehouse, SourceError), "change data feed is off", "`sessionizer init` turns it on")
    warehouse.init()
    assert warehouse.said[0] == f"turning on the change data feed of {tmp_path}/events: new events are read from it"
    before = warehouse.versions()
    warehouse.init()
    assert warehouse.versions() == before


def test_a_change_feed_is_on_however_that_is_spelled(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, tmp_path)
    spark.sql(
        f"CREATE TABLE delta.`{warehouse.config.source.table}` ({EVENTS}) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'TRUE')"
    )
    require_source(warehouse.kind.tables.events.table, warehouse.config.source)


# A source that is not what it was


def test_a_source_that_was_dropped_and_made_again(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    shutil.rmtree(warehouse.folder / "events")
    warehouse.append(FIRST_EVENTS)
    message = refusal(warehouse, SourceError)
    assert_says(message, "dropped and made again", warehouse.position().source_id, "sessionizer rebuild")


def test_a_source_that_has_lost_its_last_version(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    for file in (warehouse.folder / "events" / "_delta_log").glob("*1.*"):
        file.unlink()
    message = refusal(warehouse, SourceError)
    assert_says(message, "the source has gone back: version 1 was read before: got 0", "sessionizer rebuild")


@pytest.mark.broad
def test_updates_deletes_and_restores_of_the_source_where_corrections_fail(
    after_two_runs: Warehouse, copied: Copied
) -> None:
    warehouse = copied(after_two_runs)
    warehouse.config = warehouse.configured(corrections="fail", **SECTIONS)
    source = DeltaTable.forPath(warehouse.spark, warehouse.config.source.table)
    source.delete("user = 'dan'")
    assert_says(
        refusal(warehouse, SourceError),
        "versions 2 to 2 of the source update or delete rows",
        "1 change rows",
        "corrections: apply",
    )
    source.update("user = 'ann'", {"n": F.lit(9)})
    assert_says(refusal(warehouse, SourceError), "versions 2 to 3 of the source update or delete rows")
    assert_says(refusal(warehouse, SourceError, dry_run=True), "update or delete rows")


def test_changes_whose_files_were_vacuumed(after_one_run: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_one_run)
    added = {Path(f).name for f in warehouse.tables.events.table.read(1).inputFiles()}
    for name in added - {Path(f).name for f in warehouse.tables.events.table.read(0).inputFiles()}:
        (warehouse.folder / "events" / name).unlink()
    message = refusal(warehouse, SourceError)
    assert_says(message, "changes of versions 1 to 1 cannot be read", "vacuumed", "sessionizer rebuild")


def test_a_first_run_by_parts_takes_the_source_as_it_stands_where_old_files_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    warehouse = Warehouse(spark, tmp_path, limits={"max_versions_per_run": 1})
    warehouse.append([("ann", clock("08:00"), 1)])
    old = {Path(f).name for f in warehouse.tables.events.table.read().inputFiles()}
    warehouse.append([("bob", clock("08:00"), 1)])
    warehouse.delta_source().delete("user = 'ann'")
    for name in old:
        (warehouse.folder / "events" / name).unlink()
    (report,) = warehouse.init().run()
    assert (report.manifest.source_from_version, report.manifest.source_to_version) == (None, 2)
    assert [user for (user,) in warehouse.sessions("user")] == ["bob"]


@pytest.mark.broad
def test_changes_from_before_the_feed_was_on(spark: SparkSession, tmp_path: Path) -> None:
    warehouse = Warehouse(spark, tmp_path, source={"start": {"version": 0}}, limits={"max_versions_per_run": 1})
    frame = spark.createDataFrame([("ann", NOW, 1)], "user STRING, at BIGINT, n INT")
    for _ in range(2):
        frame.select("user", F.timestamp_micros("at").alias("at"), "n").write.format("delta").mode("append").save(
            warehouse.config.source.table
        )
    warehouse.init()
    message = refusal(warehouse, SourceError)
    assert_says(message, "changes of versions 0 to 0 cannot be read", "made while its change data feed was off")
    # From earliest, all that there is comes as one snapshot, for want of a feed.
    earliest = warehouse.configured(limits={"max_versions_per_run": 1})
    (report,) = run(spark, earliest, RunOptions(once=True, now=NOW))
    assert (report.manifest.source_from_version, report.manifest.events["accepted"]) == (None, 2)


@pytest.mark.parametrize(
    ("columns", "fragments"),
    [
        pytest.param(
            ("user AS customer", "CAST(at AS TIMESTAMP)", "n"),
            ("source.key names a column", "'user'", "customer, at, n"),
            id="key renamed",
        ),
        pytest.param(
            ("1 AS user", "CAST(at AS TIMESTAMP)", "n"),
            ("user is STRING and must be INT", "a source column has changed its type"),
            id="key of another type",
        ),
        pytest.param(
            ("user", "CAST(at AS TIMESTAMP)", "CAST(n AS DOUBLE)"),
            ("total is BIGINT and must be DOUBLE", "a source column has changed its type"),
            id="aggregated column of another type",
        ),
        pytest.param(
            ("user", "CAST(at AS TIMESTAMP)"),
            ("aggregates.total.of does not fit the source table", "'n'"),
            id="aggregated column gone",
        ),
        pytest.param(
            ("user", "1L AS at", "n"),
            ("source.event_time must be a TIMESTAMP", "BIGINT", "timestamp_millis"),
            id="time of another type",
        ),
    ],
)
def test_used_columns_that_vanished_or_changed_type(
    after_two_runs: Warehouse, copied: Copied, columns: tuple[str, ...], fragments: tuple[str, ...]
) -> None:
    warehouse = copied(after_two_runs)
    replace_events(warehouse, *columns)
    assert_says(refusal(warehouse, SessionizerError), *fragments)


@pytest.mark.broad
def test_a_new_column_is_ignored_until_the_config_names_it(after_two_runs: Warehouse, copied: Copied) -> None:
    warehouse = copied(after_two_runs)
    wider = warehouse.spark.createDataFrame([("dan", NOW, 1, "x")], "user STRING, at BIGINT, n INT, page STRING")
    wider = wider.withColumn("at", F.timestamp_micros("at"))
    wider.write.format("delta").mode("append").option("mergeSchema", "true").save(warehouse.config.source.table)
    (report,) = warehouse.run()
    assert report.manifest.events["accepted"] == 1
    assert "page" not in warehouse.tables.sessions.table.schema.fieldNames()


# A config that does not fit


def test_a_changed_rule_shows_the_old_and_the_new(after_two_runs: Warehouse) -> None:
    config = after_two_runs.configured(**SECTIONS, session={"gap": "45m"})
    message = refusal(after_two_runs, ConfigError, config)
    assert_says(message, "the rule has changed", "gap: '30m0s' → '45m0s'", "set the old rule again")
    assert "event_time" not in message


def test_what_is_no_part_of_the_rule_may_change(after_two_runs: Warehouse) -> None:
    config = after_two_runs.configured(time={"allowed_lateness": "5h"}, limits={"max_versions_per_run": 1})
    assert after_two_runs.run(config) == []


@pytest.mark.broad
def test_an_idle_timeout_that_live_rows_do_not_know(after_two_runs: Warehouse, copied: Copied) -> None:
    idle = {"time": {"idle_timeout": {"after": "1h", "clock": "processing_time"}}}
    warehouse = copied(after_two_runs, **idle)
    warehouse.append("dan | 14:00 | 1")
    for config in (warehouse.config, warehouse.configured(**idle, limits={"max_versions_per_run": 1})):
        message = refusal(warehouse, TableError, config)
        assert_says(message, "_state._arrived is absent", "the idle timeout", "`sessionizer rebuild`")
    rebuild(warehouse.kind, now=NOW)
    assert warehouse.sessions("user", "status")


def test_aggregates_that_have_changed_between_init_and_the_first_run(source_only: Warehouse, tmp_path: Path) -> None:
    warehouse = Warehouse(source_only.spark, tmp_path, **SECTIONS)
    warehouse.append(FIRST_EVENTS)
    warehouse.init()
    warehouse.config = warehouse.configured(aggregates=[{"name": "largest", "fn": "max", "of": "n"}])
    assert_says(refusal(warehouse, TableError), "largest is absent and must be INT", "the aggregates")


def test_a_version_beyond_the_latest(after_two_runs: Warehouse) -> None:
    message = refusal(after_two_runs, SessionizerError, to_version=2)
    assert_says(message, "--to-version must be a version of the source, and its latest is 1: got 2")


@pytest.mark.parametrize(
    ("sections", "kind", "fragments"),
    [
        ({"source": {"key": ["usr"]}}, SourceError, ("source.key names a column", "'usr'", "user, at, n")),
        ({"source": {"order_by": ["seq"]}}, SourceError, ("source.order_by names a column", "'seq'")),
        ({"source": {"event_time": "nope"}}, SourceError, ("source.event_time does not fit the source", "'nope'")),
        ({"source": {"event_time": "n"}}, SourceError, ("source.event_time must be a TIMESTAMP", "INT")),
        ({"source": {"event_time": "at at at ("}}, ConfigError, ("source.event_time is neither a column nor an SQL",)),
        ({"source": {"where": "nope = 1"}}, SourceError, ("source.where does not fit the source", "'nope = 1'")),
        ({"source": {"where": "n ="}}, ConfigError, ("source.where is neither a column nor an SQL expression",)),
        ({"source": {"where": "n + 1"}}, SessionizerError, ("source.where", "INT")),
        ({"source": {"where": "count(*) > 1"}}, SessionizerError, ("source.where",)),
        ({"source": {"where": "row_number() OVER (ORDER BY at) = 1"}}, SessionizerError, ("source.where",)),
        ({"source": {"event_time": "max(at)"}}, SessionizerError, ("source.event_time",)),
        ({"aggregates": [{"name": "x", "fn": "max", "of": "nope"}]}, SourceError, ("aggregates.x.of does not fit",)),
        ({"aggregates": [{"name": "x", "fn": "max", "of": "n +"}]}, ConfigError, ("aggregates.x.of is neither",)),
        ({"aggregates": [{"name": "x", "fn": "max", "of": "max(n)"}]}, SessionizerError, ("aggregates.x",)),
        ({"aggregates": [{"name": "x", "fn": "sum", "of": "user"}]}, ConfigError, ("sum needs a number", "STRING")),
    ],
)
def test_expressions_that_do_not_fit_are_named(
    source_only: Warehouse,
    sections: dict[str, Any],
    kind: type[SessionizerError],
    fragments: tuple[str, ...],
) -> None:
    assert_says(refused_by_init(source_only, kind, **sections), *fragments)


def test_what_cannot_be_read_ahead_is_an_error_where_it_is_needed(after_one_run: Warehouse, copied: Copied) -> None:
    lake = copied(after_one_run)
    log = Path(lake.config.sessions.table) / "_delta_log"
    last = max(log.glob("*.json"))
    for checksum in log.glob("*.crc"):
        checksum.unlink()
    last.write_text('{"add"')
    sessions = Table(lake.spark, lake.config.sessions.table, "sessions.table")
    passed = False
    with sessions.reading_ahead():
        passed = True
    assert passed
    with pytest.raises(TableError, match="damaged log"):
        sessions.size()


def test_errors_carry_the_exit_code_of_their_kind() -> None:
    assert [kind.exit_code for kind in (ConfigError, SourceError, TableError)] == [2, 3, 3]


@pytest.mark.broad
def test_a_backtick_in_a_key_name_needs_the_change_feed_off(spark: SparkSession, tmp_path: Path) -> None:
    event = [("x", clock("10:00"), 1)]
    for change_feed in (True, False):
        warehouse = Warehouse(
            spark, tmp_path / str(change_feed), source={"key": ["a`b"]}, sessions={"change_feed": change_feed}
        )
        warehouse.append(event, "`a``b` STRING, at TIMESTAMP, n INT")
        if change_feed:
            with pytest.raises(ConfigError, match="backtick"):
                warehouse.init()
        else:
            warehouse.init().run()
            warehouse.append([("x", clock("10:10"), 1)], "`a``b` STRING, at TIMESTAMP, n INT")
            (report,) = warehouse.run()
            assert report.manifest.sessions["extended"] == 1
