"""A source that is only added to, and that nobody may alter: its new files are read, and anything else is an error."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.lib.errors import ConfigError
from tests.exactness.play import Play, SourceError, minute

pytestmark = pytest.mark.slow

APPENDS = {"changes": "appends"}
ONE_BY_ONE = {"max_versions_per_run": 1}
EVENTS = "u STRING, at TIMESTAMP, n INT"


def somebody_elses(spark: SparkSession, folder: Path, columns: str = EVENTS, more: str = "") -> Play:
    """A source without a change feed; before the first event."""
    place = folder / "events"
    spark.sql(f"CREATE TABLE delta.`{place}` ({columns}) USING delta {more}")
    return Play(spark, place.parent, columns, source=APPENDS)


def test_what_is_added_is_read_and_the_source_is_left_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path).add("a@0 b@5").init()
    table = done.tables.events.table
    assert (table.version, table.setting("delta.enableChangeDataFeed")) == (1, None)
    done.run()
    done.add("a@8=2").add("b@100=3")
    spark.sql(f"OPTIMIZE delta.`{table.location}`")
    done.add("a@20=4")
    (report,) = done.run()
    assert report.manifest.events["events_read"] == 3
    done.assert_sessions(
        """
        u | start | end | total
        a | 0     | 8   | 3
        a | 20    | 20  | 4
        b | 5     | 5   | 1
        b | 100   | 100 | 3
        """
    )
    assert done.run() == []
    done.assert_clean()
    done.backfill(0, 200).assert_clean()


def test_a_run_that_limits_end_where_files_are_gone_says_how_to_go_on(spark: SparkSession, tmp_path: Path) -> None:
    by_n = APPENDS | {"dedupe": {"by": ["n"], "within": "1h"}}
    done = somebody_elses(spark, tmp_path, more="PARTITIONED BY (n)").change(source=by_n, limits=ONE_BY_ONE)
    done.add("a@0").add("a@1=3").add("a@2=3").init().run()
    done.add("a@5=2").source("OPTIMIZE {} WHERE n = 3").add("a@20=4").vacuumed()
    with pytest.raises(SourceError, match=r"as of version 4, where this run ends.* leave limits out"):
        done.run()
    done.change(source=by_n).run()
    done.assert_sessions("u | start | end | count \n a | 0 | 5 | 3 \n a | 20 | 20 | 1")
    done.assert_clean()


@pytest.mark.parametrize("partitioned", ["", "PARTITIONED BY (u)"])
def test_texts_of_one_length_are_padded_in_each_run(spark: SparkSession, tmp_path: Path, partitioned: str) -> None:
    done = somebody_elses(spark, tmp_path, "u CHAR(5), at TIMESTAMP, n INT", partitioned)
    done.schema = EVENTS
    done.add("ab@0 abcde@1").init().run()
    done.runs("ab@5")
    assert done.sessions("u", "event_count") == [("ab   ", 2), ("abcde", 1)]
    done.assert_clean()


def test_files_lie_in_partitions_of_any_value_under_names_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    columns = "`a u` STRING, at TIMESTAMP, p STRING, d DATE, s STRUCT<`x y`: INT, l: ARRAY<STRUCT<z: INT>>>"
    mapped = "TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    done = somebody_elses(spark, tmp_path / "lake of [all] 100%", columns, f"PARTITIONED BY (p, d) {mapped}")
    aggregates = [
        {"name": "p", "fn": "last", "of": "p"},
        {"name": "d", "fn": "last", "of": "d"},
        {"name": "x", "fn": "sum", "of": "s.`x y` + s.l[0].z"},
    ]
    done.sections |= {"aggregates": aggregates}
    done.change(source=APPENDS | {"key": ["a u"]})

    def add(at: int, values: str) -> None:
        more = "named_struct('x y', 1, 'l', array(named_struct('z', 2)))"
        place = f"delta.`{done.config.source.table}`"
        spark.sql(f"INSERT INTO {place} SELECT 'a', TIMESTAMP'{minute(at)}', {values}, {more}")

    add(0, "'é/ %', DATE'2026-01-01'")
    done.init().run()
    add(5, "'é/ %', DATE'2026-01-02'")
    add(6, "NULL, NULL")
    add(40, "'[a-z]*{1}', NULL")
    done.run()
    rows = done.tables.sessions.table.read().selectExpr("minute(session_start)", "event_count", "p", "string(d)", "x")
    found = {tuple(row) for row in rows.collect()}
    assert found == {(0, 3, None, None, 9), (40, 1, "[a-z]*{1}", None, 3)}
    done.assert_clean()


def test_a_partition_column_may_be_renamed_behind_what_is_read(spark: SparkSession, tmp_path: Path) -> None:
    columns = "`a``u` STRING, at TIMESTAMP, n INT, d STRING"
    mapped = "PARTITIONED BY (d) TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    done = somebody_elses(spark, tmp_path, columns, mapped)
    done.change(source=APPENDS | {"key": ["a`u"]}, limits={"max_versions_per_run": 1}, sessions={"change_feed": False})
    done.source(f"INSERT INTO {{}} SELECT 'a', TIMESTAMP'{minute(0)}', 1, 'x'").init().run()
    done.source(f"INSERT INTO {{}} SELECT 'a', TIMESTAMP'{minute(1)}', 2, 'x'")
    done.source("ALTER TABLE {} RENAME COLUMN d TO day").source(
        f"INSERT INTO {{}} SELECT 'a', TIMESTAMP'{minute(2)}', 4, 'y'"
    )
    done.run()
    done.assert_sessions("start | end | total \n 0 | 2 | 7")
    done.assert_clean()


def test_a_column_that_comes_later_is_null_before_it(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path).add("a@0").init()
    done.run()
    done.add("a@1").source("ALTER TABLE {} ADD COLUMN more STRING")
    done.source(f"INSERT INTO {{}} SELECT 'a', TIMESTAMP'{minute(2)}', 5, 'x'").run()
    done.assert_sessions("u | count | total \n a | 3 | 7")
    done.assert_clean()


def test_a_column_without_a_type_is_null(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, x VOID").add("a@0").init()
    done.run()
    done.add("a@1=2").run()
    done.assert_sessions("u | count | total \n a | 2 | 3")
    done.assert_clean()


@pytest.mark.parametrize(
    "change", ["DELETE FROM {} WHERE n = 1", "UPDATE {} SET n = 2", "INSERT OVERWRITE {} SELECT * FROM {}"]
)
def test_a_change_of_rows_stops_the_run_and_a_rebuild_goes_on_behind_it(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    done = somebody_elses(spark, tmp_path).add("a@0 b@5=3").init()
    done.run()
    done.source(change).add("a@8=4")
    with pytest.raises(SourceError, match="version 2 of the source updates, deletes or overwrites rows"):
        done.run()
    done.rebuild().assert_clean()
    done.add("a@9=5").run()
    done.assert_clean()


def test_a_log_that_was_cleaned_up_is_named(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path).add("a@0").init()
    done.run()
    done.add("a@1").add("a@2")
    done.tables.events.table.checkpoint()
    (Path(done.config.source.table) / "_delta_log" / "00000000000000000002.json").unlink()
    with pytest.raises(SourceError, match="log no longer has version 2"):
        done.run()


def test_files_that_were_vacuumed_are_named(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path).add("a@0").init()
    done.run()
    done.add("a@1")
    for file in Path(done.config.source.table).glob("*.parquet"):
        file.unlink()
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()


def test_a_writer_may_say_that_a_file_has_no_deletion_vector(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path).add("a@0").init()
    done.run()
    done.add("a@1")
    entry = Path(done.config.source.table) / "_delta_log" / "00000000000000000002.json"
    entry.write_text(entry.read_text().replace('"dataChange":true', '"dataChange":true,"deletionVector":null'))
    done.run()
    done.assert_sessions("u | count \n a | 2")


def test_an_empty_value_of_a_partition_is_null(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path, f"{EVENTS}, d DATE, p INT", "PARTITIONED BY (d, p)")
    done.change(source=APPENDS, aggregates=[{"name": "days", "fn": "count", "of": "d"}])
    for at in (0, 1):
        done.source(f"INSERT INTO {{}} SELECT 'a', TIMESTAMP'{minute(at)}', 1, NULL, NULL")
        if not at:
            done.init()
            done.run()
    entry = Path(done.config.source.table) / "_delta_log" / "00000000000000000002.json"
    entry.write_text(entry.read_text().replace('"d":null,"p":null', '"d":"","p":""'))
    entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)  # Hadoop's sum of what was there before
    done.run()
    done.assert_sessions("u | count | days \n a | 2 | 0")


def test_parts_that_are_never_null_are_read_from_files_too(spark: SparkSession, tmp_path: Path) -> None:
    columns = "u STRING NOT NULL, at TIMESTAMP, s STRUCT<x: INT NOT NULL, l: ARRAY<INT>>"
    done = somebody_elses(spark, tmp_path, columns)
    done.change(source=APPENDS, aggregates=[{"name": "total", "fn": "sum", "of": "s.x"}])
    for at in (0, 1):
        values = f"'a', TIMESTAMP'{minute(at)}', named_struct('x', 2, 'l', array(1))"
        done.source(f"INSERT INTO {{}} SELECT {values}")
        if not at:
            done.init()
        done.run()
    done.assert_sessions("u | count | total \n a | 2 | 4")


def test_a_first_run_by_parts_begins_behind_what_cannot_be_read_as_appends(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path).add("a@0 b@5=3").source("DELETE FROM {} WHERE u = 'b'").add("a@1")
    done.change(source=APPENDS, limits={"max_versions_per_run": 10}).init().run()
    done.assert_sessions("u | count \n a | 2")
    done.runs("a@2").assert_sessions("u | count \n a | 3")


def test_a_column_that_is_named_as_one_of_a_change_feed_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path, f"{EVENTS}, _Change_Type STRING").add("a@0")
    with pytest.raises(SourceError, match=r"named like one of Delta's change feed: got '_Change_Type'"):
        done.init()


def test_an_empty_text_of_a_partition_is_a_text_as_to_spark(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path, "p STRING, at TIMESTAMP, n INT", "PARTITIONED BY (p)")
    done.change(source=APPENDS | {"key": ["p"]}, aggregates=[])
    place = done.config.source.table
    for at in (0, 5):
        done.source(f"INSERT INTO {{}} SELECT 'x', TIMESTAMP'{minute(at)}', 1")
        entry = sorted((Path(place) / "_delta_log").glob("*.json"))[-1]
        entry.write_text(entry.read_text().replace('"p":"x"', '"p":""'))
        entry.with_name(f".{entry.name}.crc").unlink(missing_ok=True)  # Hadoop's sum of what was there before
        (done.run if at else done.init().run)()
    assert [(row["p"], row["event_count"]) for row in done.tables.sessions.table.read().collect()] == [("", 2)]
    done.assert_clean()


def test_texts_of_a_fixed_length_are_compared_without_what_pads_them(spark: SparkSession, tmp_path: Path) -> None:
    done = somebody_elses(spark, tmp_path, "u CHAR(3), at TIMESTAMP, n INT, kind CHAR(5)")
    row = "('a', TIMESTAMP'{}', {}, 'buy')"
    for sections in (
        {"source": APPENDS | {"where": "kind = 'buy'"}},
        {"source": APPENDS | {"where": "decode(kind, 'buy', true, false)"}},
        {"source": APPENDS, "session": {"gap": "10m", "starts_when": "kind IN ('a', 'b')"}},
    ):
        done.change(**sections)
        with pytest.raises(ConfigError, match=r"must not compare CHAR\(n\) as it is") as told:
            done.init().run()
        assert told.value.remedy == "write rtrim(kind) = 'x'"
    others = "n BETWEEN 1 AND 5 AND nullif(n, 0) = 1 AND kind LIKE 'b%' AND length(kind) = 5"
    done.change(source=APPENDS | {"where": f"rtrim(kind) = 'buy' AND {others}"}, session={"gap": "10m"})
    for at in (0, 5):
        done.source(f"INSERT INTO {{}} VALUES {row.format(minute(at), 1)}")
        (done.run if at else done.init().run)()
    assert [(row["u"], row["event_count"]) for row in done.tables.sessions.table.read().collect()] == [("a  ", 2)]
    done.assert_clean()


def test_parts_that_are_never_null_are_told_apart_in_whatever_way_they_are_read(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = somebody_elses(spark, tmp_path, "u STRING, at TIMESTAMP, s STRUCT<x: STRUCT<a: INT NOT NULL>>")
    done.change(source=APPENDS, aggregates=[{"name": "kinds", "fn": "approx_count_distinct", "of": "s"}])
    for at in (0, 5):
        value = f"named_struct('x', named_struct('a', {at}))"
        done.source(f"INSERT INTO {{}} SELECT 'a', TIMESTAMP'{minute(at)}', {value}")
        (done.run if at else done.init().run)()
    done.assert_sessions("u | count | kinds \n a | 2 | 2")
    done.assert_clean()
