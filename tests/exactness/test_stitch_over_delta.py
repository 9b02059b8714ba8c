"""A mapping table of Delta's own: its change feed, files that are gone, what is told of it without Spark."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.forget import forget
from sessionizer.jobs.commands.init import init
from sessionizer.jobs.commands.status import show, status, status_without_spark
from sessionizer.jobs.preflight import check, nothing_new
from sessionizer.jobs.reporting.metrics import write_metrics
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.kinds import ruled
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import SourceError, SourceMismatch, TableError, UsageError
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables.delta.settings import having
from sessionizer.tables.queries.local import LocalTableSet
from tests import quick_tables
from tests.exactness.ageing import age
from tests.exactness.play import AT_ONCE, Play, at
from tests.warehouse import SOURCE

pytestmark = pytest.mark.broad
WHO = [{"name": "who", "expr": "coalesce(user_id, u)"}]


class Devices(Play):
    """A source whose devices get users from a table beside it."""

    def __init__(self, spark: SparkSession, folder: Path, **source: Any) -> None:
        stitch = {"table": str(folder / "devices"), "from": "u", "to": "user_id"}
        super().__init__(spark, folder, source={"key": WHO, "stitch": stitch, **source})

    def maps(self, devices: str) -> "Devices":
        rows = [tuple(pair.split("=")) for pair in devices.split()]
        assert quick_tables.append(self.folder / "devices", rows, "u STRING, user_id STRING", SOURCE)
        return self

    def mapping(self, statement: str) -> "Devices":
        self.spark.sql(statement.replace("{}", f"delta.`{self.folder / 'devices'}`"))
        return self

    def source(self, statement: str) -> "Devices":
        super().source(statement)
        return self

    def add(self, events: str) -> "Devices":
        super().add(events)
        return self

    def vacuumed(self) -> "Devices":
        """Of both tables no version but the latest can be read."""
        with having(self.spark, AT_ONCE):
            for name in ("events", "devices"):
                self.spark.sql(f"OPTIMIZE delta.`{self.folder / name}`")
                self.spark.sql(f"VACUUM delta.`{self.folder / name}` RETAIN 0 HOURS")
        return self


@pytest.fixture
def devices(spark: SparkSession, tmp_path: Path) -> Callable[..., Devices]:
    def devices(**source: Any) -> Devices:
        made = Devices(spark, tmp_path / "play", **source).maps("d1=ann")
        made.runs("d1@0=1 d2@5=2 d2@5=2 x@100=4")
        return made

    return devices


def test_nothing_older_than_what_was_read_is_needed(devices: Callable[..., Devices]) -> None:
    done = devices()
    done.vacuumed().run()
    done.maps("d2=ann").add("d2@101=8").source("DELETE FROM {} WHERE n = 1").run()
    wanted = """
        who | start | end | count | total
        ann | 5     | 5   | 2     | 4
        ann | 101   | 101 | 1     | 8
        x   | 100   | 100 | 1     | 4
        """
    done.assert_sessions(wanted)
    done.assert_clean()
    done.mapping("MERGE INTO {} AS t USING (SELECT 'd2' AS u) AS s ON t.u = s.u WHEN MATCHED THEN DELETE").run()
    assert {row["who"] for row in done.told("who")} == {"d2", "x"}
    done.assert_clean()


def test_a_mapping_comes_first_though_files_of_both_tables_as_they_were_read_are_gone(
    devices: Callable[..., Devices],
) -> None:
    done = devices()
    done.change(corrections="quarantine").runs("x@101=5")
    done.maps("x=x").run()
    done.vacuumed().add("d2@110=8").source("DELETE FROM {} WHERE n = 4")
    done.maps("d2=ann").run()
    done.assert_sessions("""
        who | start | end | count | total
        ann | 0     | 0   | 1     | 1
        ann | 110   | 110 | 1     | 8
        d2  | 5     | 5   | 2     | 4
        x   | 100   | 101 | 2     | 9
        """)
    done.assert_clean()


def test_a_mapping_waits_for_what_was_added_before_the_source_can_be_read_again(
    devices: Callable[..., Devices], spark: SparkSession
) -> None:
    done = devices()
    done.change(corrections="quarantine").runs("x@101=5")
    done.add("d2@110=8 " + " ".join(f"y@110={n * 7919 % 100_003}" for n in range(2000)))
    with having(spark, AT_ONCE | {"spark.databricks.delta.optimize.minFileSize": "4000"}):  # that file stays
        done.vacuumed()
    done.add("d2@111=9").source("DELETE FROM {} WHERE n = 4")
    done.maps("d2=ann").run()
    done.assert_sessions(
        """
        who | start | end | count
        ann | 0     | 0   | 1
        ann | 111   | 111 | 1
        d2  | 5     | 5   | 2
        d2  | 110   | 110 | 1
        x   | 100   | 101 | 2
        y   | 110   | 110 | 2000
        """
    )
    done.assert_clean()


@pytest.mark.parametrize(("corrections", "whose"), [("quarantine", "d2"), ("apply", "bob")])
def test_a_mapping_waits_for_upkeep_whose_own_files_are_gone(
    devices: Callable[..., Devices], corrections: str, whose: str
) -> None:
    done = devices()
    done.change(corrections=corrections, limits={"max_versions_per_run": 1})
    done.source("OPTIMIZE {} ZORDER BY (n)").source("OPTIMIZE {} ZORDER BY (at)")
    Play.vacuumed(done)
    done.maps("d2=bob").add("d2@110=8").run()
    done.assert_sessions(f"""
        who     | start | end | count
        ann     | 0     | 0   | 1
        {whose} | 5     | 5   | 2
        bob     | 110   | 110 | 1
        x       | 100   | 100 | 1
        """)
    done.assert_clean()


def test_a_flush_up_to_a_version_whose_files_are_gone_leaves_the_mapping_to_the_next_run(
    devices: Callable[..., Devices],
) -> None:
    done = devices()
    known = done.tables.events.table.version
    done.source("OPTIMIZE {} ZORDER BY (n)")
    Play.vacuumed(done)
    done.maps("d2=bob")
    flushes = RunOptions(now=done.now, to_version=known, override=WatermarkOverride(flush=True))
    (flushed,) = run(done.spark, done.config, flushes)
    assert flushed.manifest.live_sessions == 0
    done.run()
    done.assert_sessions("who | start | count \n ann | 0 | 1 \n bob | 5 | 2 \n x | 100 | 1")
    done.assert_clean()


def test_status_and_a_run_that_finds_nothing_know_of_the_mapping(devices: Callable[..., Devices]) -> None:
    done = devices()

    def is_done() -> bool:
        return nothing_new(LocalTableSet(done.config), ruled(done.config)) is not None

    assert is_done()
    done.maps("d2=bob d3=bob")
    assert not is_done()
    told = status_without_spark(done.config)["stitch"]
    assert (told["table"], told["consumed_version"], told["latest_version"]) == (str(done.folder / "devices"), 0, 1)
    assert (told["versions_behind"], told["rows_behind"]) == (1, 2)
    assert status(done.spark, done.config)["stitch"] == {**told, "oldest_waiting_seconds": pytest.approx(0, abs=600)}
    done.run()
    assert is_done()


def test_changes_of_the_mapping_that_wait_for_long_are_warned_of(
    devices: Callable[..., Devices], capsys: pytest.CaptureFixture[str]
) -> None:
    done = devices()
    init(done.spark, done.config, None, lambda _: None)
    age(done.maps("d2=bob").folder, 16)
    show(status_without_spark(done.config))
    told = " ".join(capsys.readouterr().out.split())
    assert "changes of the mapping wait for 16 days, and the mapping table keeps removed files and log for 30" in told
    assert "events wait" not in told


def test_metrics_and_lineage_know_the_mapping(devices: Callable[..., Devices], tmp_path: Path) -> None:
    done = devices().maps("d2=bob")
    done.run()
    write_metrics(done.kind, tmp_path / "metrics.prom", done.now)
    name = f'sessionizer_mapping_version{{table="{done.folder / "sessions"}"}}'
    assert f"{name} 1.0" in (tmp_path / "metrics.prom").read_text().splitlines()
    assert done.config.locations()["mapping"] == str(done.folder / "devices")


def test_changes_of_the_mapping_that_are_gone_are_told(devices: Callable[..., Devices]) -> None:
    done = devices()
    done.mapping("ALTER TABLE {} SET TBLPROPERTIES (delta.enableChangeDataFeed = false)")
    with pytest.raises(SourceError, match="the mapping table must record its changes"):
        check(done.config, "run", columns=True)
    done.mapping("UPDATE {} SET user_id = 'bob'")
    done.mapping("ALTER TABLE {} SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")
    with pytest.raises(SourceError, match=r"the mapping table's changes of versions 1 to 3 cannot be read.*rebuild"):
        done.run()
    done.rebuild()
    assert {row["who"] for row in done.told("who")} == {"bob", "d2", "x"}


def test_another_mapping_table_at_the_same_place_is_told(devices: Callable[..., Devices]) -> None:
    done = devices()
    (done.folder / "devices").rename(done.folder / "others")
    with pytest.raises(TableError, match=r"source\.stitch\.table does not exist"):
        check(done.config, "run", columns=True)
    done.maps("d2=bob")
    with pytest.raises(SourceError, match="the mapping table is not the table that was read before"):
        done.run()
    with pytest.raises(SourceError, match="the mapping table is not the table that was read before"):
        done.backfill(0, 60)
    done.change(corrections="quarantine").rebuild()  # there is no change that a run could read first
    assert {row["who"] for row in done.told("who")} == {"bob", "d1", "x"}


def test_what_waits_in_quarantine_by_a_mapping_that_is_gone_is_counted_by_no_other(
    devices: Callable[..., Devices],
) -> None:
    done = devices()
    done.change(corrections="quarantine")
    done.maps("d2=ann").run()
    (done.folder / "devices").rename(done.folder / "others")
    done.maps("d2=bob")
    with pytest.raises(UsageError, match="the column of a mapping table"):
        done.rebuild()


def test_what_an_unread_mapping_moves_from_before_all_that_is_left_is_late_for_a_rebuild_too(
    devices: Callable[..., Devices],
) -> None:
    done = devices()
    done.runs("x@1600 ann@1601")
    assert forget(done.kind, DAY, done.now, done.said.append)
    found = done.told("who | start | count")
    done.maps("d2=ann").rebuild()
    assert done.told("who | start | count") == found
    done.assert_rejected("who | event_time | reason \n ann | 5 | late \n ann | 5 | late")
    done.assert_clean()


def test_a_mapping_table_that_is_partitioned_anew_asks_for_a_rebuild(devices: Callable[..., Devices]) -> None:
    done = devices()
    place = str(done.folder / "devices")
    rows = done.spark.read.format("delta").load(place)
    told = done.spark.createDataFrame([*rows.collect(), ("d2", "bob")], rows.schema)
    told.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("user_id").save(place)
    with pytest.raises(TableError, match="partitioned by other columns"):
        done.run()
    done.rebuild().assert_sessions("who | count \n ann | 1 \n bob | 2 \n x | 1")
    done.assert_clean()


def by_name(spark: SparkSession, folder: Path, columns: str) -> Devices:
    """A source whose columns may be renamed."""
    made = Devices(spark, folder / "play").maps("d1=ann")
    mapped = "USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    made.source(f"CREATE TABLE {{}} ({columns}) {mapped}").init()
    return made


def test_columns_that_are_mapped_no_longer_are_told_as_before_beside_a_mapping_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = by_name(spark, tmp_path, "u STRING, at TIMESTAMP, n INT")
    for minute in (100, 5):
        done.source(f"INSERT INTO {{}} VALUES ('d1', TIMESTAMP'2026-01-01' + INTERVAL {minute} MINUTES, 1)").run()
    rejected = "who | event_time | reason | event_hash"
    before = done.told_rejected(rejected)
    assert [row["reason"] for row in before] == ["late"]
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')").run()
    assert done.told_rejected(rejected) == before
    done.assert_clean()


def test_changes_of_the_mapping_are_read_from_before_its_columns_were_mapped_no_longer(
    spark: SparkSession, tmp_path: Path
) -> None:
    done, properties = Devices(spark, tmp_path / "play"), "'delta.columnMapping.mode' = '{}'"
    fed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', " + properties.format("name")
    done.mapping(f"CREATE TABLE {{}} (u STRING, user_id STRING, note STRING) USING delta {fed})")
    done.mapping("INSERT INTO {} VALUES ('d1', 'ann', '')").runs("d1@0=1 d2@5=2 d3@7=4")
    done.mapping("INSERT INTO {} VALUES ('d2', 'ann', '')").mapping("ALTER TABLE {} RENAME COLUMN note TO remark")
    done.mapping(f"ALTER TABLE {{}} SET TBLPROPERTIES ({properties.format('none')})")
    done.mapping("INSERT INTO {} VALUES ('d3', 'ann', '')").run()
    done.assert_sessions("who | start | end | count | total \n ann | 0 | 7 | 3 | 7")
    done.assert_clean()


def test_a_source_that_is_only_added_to_may_have_one(devices: Callable[..., Devices]) -> None:
    done = devices(changes="appends")
    done.maps("d2=ann").add("d2@101=8").run()
    assert sorted((row["who"], row["count"]) for row in done.told("who | count")) == [
        *(("ann", "1"), ("ann", "3"), ("x", "1"))
    ]
    done.assert_clean()


def test_what_an_unread_mapping_moves_is_late_for_a_rebuild_where_a_column_was_renamed_in_between(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = by_name(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, note STRING")
    came = (
        "INSERT INTO {{}} SELECT u, TIMESTAMP'2026-01-01' + make_dt_interval(0, 0, m), 1, '' FROM VALUES {} AS v(u, m)"
    )
    done.source(came.format("('d0', 0), ('d2', 1), ('d3', 1), ('tick', 1600)")).run()
    assert forget(done.kind, DAY, done.now, done.said.append)
    done.source(came.format("('d3', 2)")).run()  # late by what is forgotten, of a device that gets a user now
    done.source(came.format("('tick', 1601)")).source("ALTER TABLE {} RENAME COLUMN note TO remark")
    done.source(came.format("('tick', 1602)"))
    done.maps("d2=ann d3=bob").rebuild().assert_sessions("who | start | count \n tick | 1600 | 3")
    done.assert_rejected("who | event_time | reason \n ann | 1 | late \n bob | 1 | late \n bob | 2 | late")
    done.assert_clean()


@pytest.mark.parametrize("is_moved", [False, True])
def test_a_new_version_of_the_mapping_that_moves_no_event_is_nothing_that_a_rebuild_would_lose(
    devices: Callable[..., Devices], is_moved: bool
) -> None:
    done = devices()
    done.change(corrections="quarantine").run()
    done.maps("d7=bob").mapping("OPTIMIZE {}")
    if is_moved:
        done.mapping("INSERT INTO {} VALUES ('d2', 'bob')")
        with pytest.raises(UsageError, match="of the mapping table"):
            done.rebuild()
    else:
        done.rebuild().assert_clean()


@pytest.mark.parametrize("changes", ["feed", "appends"])
def test_texts_of_two_fixed_lengths_are_no_key_to_each_other(spark: SparkSession, tmp_path: Path, changes: str) -> None:
    made, columns = Devices(spark, tmp_path, changes=changes), "u CHAR({}), user_id STRING"
    for name, told in (("events", "u CHAR(3), at TIMESTAMP, n INT"), ("devices", columns.format(5))):
        feed = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        spark.sql(f"CREATE TABLE delta.`{tmp_path / name}` ({told}) USING delta {feed}")
    with pytest.raises(SourceMismatch, match=r"one type in the source and in the mapping.*CHAR\(3\), CHAR\(5\)"):
        made.init()
    shutil.rmtree(tmp_path / "devices")
    made.mapping(f"CREATE TABLE {{}} ({columns.format(3)}) USING delta {feed}")
    made.mapping("INSERT INTO {} VALUES ('d1', 'ann')").init()
    for minute in (0, 5):
        made.source(f"INSERT INTO {{}} VALUES ('d1', timestamp_micros({at(minute)}), 1)").run()
    made.assert_rows(made.told("who | start | count"), "who | start | count \n ann | 0 | 2")
    made.assert_clean()


def test_capitals_of_the_mapping_tables_columns_tell_nothing_apart(
    devices: Callable[..., Devices], spark: SparkSession
) -> None:
    done = devices()
    place = str(done.folder / "devices")
    rows = spark.read.format("delta").load(place)
    told = spark.createDataFrame(rows.collect(), "U STRING, User_Id STRING")
    told.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(place)
    done.mapping("INSERT INTO {} VALUES ('d2', 'bob')")
    done.run()
    done.assert_clean()
