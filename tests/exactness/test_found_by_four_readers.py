"""What four readers have found: what verify did not see, what stopped for good, keys of maps, names that change."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.forget import forget
from sessionizer.jobs.commands.maintain import Asked, maintain
from sessionizer.jobs.commands.status import status
from sessionizer.jobs.queries.sql import query_frame
from sessionizer.jobs.run.kinds import sessions_of
from sessionizer.jobs.run.phases import wall_clock
from sessionizer.lib.config import Config
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import ConfigError, SourceError, UsageError
from sessionizer.tables.delta.settings import having
from tests.exactness.play import Play, at, minute
from tests.exactness.several import CALLS, CLICKS, Several
from tests.exactness.test_found_by_further_eyes import BY_NAME
from tests.exactness.test_found_by_other_eyes import AT_ONCE
from tests.exactness.test_stitch_over_delta import Devices
from tests.machine.memory import in_memory

pytestmark = pytest.mark.broad

Plays = Callable[..., Play]
TYPES = ("MAP<BINARY, INT>", "MAP<STRUCT<x: INT, y: BINARY>, INT>", "ARRAY<MAP<ARRAY<DATE>, MAP<BINARY, INT>>>")
MAPS = (
    "map(X'00ff', 1, X'01', 2)",
    "map(named_struct('x', 1, 'y', X'01'), 1, named_struct('x', 0, 'y', X'02'), 2)",
    "array(map(array(DATE'2026-01-02'), map(X'01', 1)))",
)


# What verify sees, and a backfill mends.


def test_a_percentile_of_few_large_values_is_exact_for_verify_and_backfills(play: Plays) -> None:
    aggregates = [
        {"name": "middle", "fn": "approx_percentile", "of": "1.7e9 + n", "percentile": 0.5},
        {"name": "people", "fn": "approx_count_distinct", "of": "n"},
    ]
    done = play("a@0=1 a@1=2 a@2=3 tick@100", aggregates=aggregates)
    done.assert_clean()
    for damage in ("middle = 1.71e9", "people = 4"):
        done.damage(f"UPDATE {{}} SET {damage} WHERE u = 'a'")
        assert not done.verify().clean
        done.backfill(0, 20)
        assert (done.row("a")["middle"], done.row("a")["people"]) == (1.7e9 + 2, 3)
        done.assert_clean()


def test_sketches_of_many_values_may_be_near(play: Plays) -> None:
    aggregates = [
        {"name": "middle", "fn": "approx_percentile", "of": "n", "percentile": 0.5},
        {"name": "people", "fn": "approx_count_distinct", "of": "n"},
    ]
    events = [" ".join(f"a@{n / 100}={n}" for n in range(i, 900, 3)) for i in range(3)]
    done = play(" | ".join(events), time={"allowed_lateness": "1h"}, aggregates=aggregates)
    done.assert_clean()
    done.source("DELETE FROM {} WHERE n = 7").run()
    done.assert_clean()
    done.damage("UPDATE {} SET people = people + 200")
    assert not done.verify().clean


def test_numbers_of_updates_and_times_of_event_sessions_are_looked_at(
    spark: SparkSession, play: Plays, tmp_path: Path
) -> None:
    outputs = {name: str(tmp_path / name) for name in ("event_sessions", "session_updates")}
    done = play("a@0 a@5 tick@100", outputs=outputs)
    done.assert_clean()
    for table, damage in (
        ("session_updates", "n = n + 1, total = 0"),
        ("event_sessions", "event_time = event_time + INTERVAL 1 MINUTE"),
    ):
        before = spark.sql(f"DESCRIBE HISTORY delta.`{outputs[table]}`").first()
        assert before is not None
        done.damage(f"UPDATE {{}} SET {damage} WHERE u = 'a' AND event_time = TIMESTAMP '{minute(0)}'", table)
        if table == "session_updates":
            done.damage("UPDATE {} SET n = n + 1 WHERE u = 'a' AND n = 2", table)
        assert [name for name, number in done.verify().broken.items() if number], table
        spark.sql(f"RESTORE delta.`{outputs[table]}` TO VERSION AS OF {before['version']}")
        done.assert_clean()


def test_a_row_is_missed_whose_events_lie_on_both_sides_of_what_is_asked(play: Plays) -> None:
    done = play("a@0 a@9 tick@100")
    done.damage("DELETE FROM {} WHERE u = 'a'")
    assert not done.verify(3, 5).clean
    assert done.verify(20, 30).clean


def test_sessions_that_begin_at_one_time_are_numbered_as_they_end(play: Plays) -> None:
    users = " ".join(f"{name}@0=1 {name}@0=2 {name}@0.5=3" for name in "abcdefgh")
    done = play(users, session={"gap": "10m", "ends_when": "n = 1"}, source={"order_by": ["n"]})
    found = query_frame(done.spark, done.config, "SELECT * FROM numbered_sessions").where("session_number = 2")
    assert {row["previous_session_end"] <= row["session_start"] for row in found.collect()} == {True}
    assert found.count() == 8


# What stopped, or was told wrongly.


def test_expectations_of_values_do_not_stop_an_erasure(play: Plays, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    most = "{type: expect_column_max_to_be_between, kwargs: {column: total, max_value: 5}}"
    suite.write_text(f"expectations: [{most}]")
    done = play("a@0 b@50", expectations=str(suite)).source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    done.assert_sessions("u | start \n b | 50")


def test_the_watermark_of_a_scope_is_known_by_a_decimal_and_a_time(spark: SparkSession, tmp_path: Path) -> None:
    schema = "u STRING, at TIMESTAMP, n INT, tier DECIMAL(10, 2), since TIMESTAMP"
    watermark = {"watermark": {"per": ["tier", "since"]}, "allowed_lateness": "0s"}
    done = Play(spark, tmp_path, schema, source={"key": ["u", "tier", "since"]}, time=watermark)
    done.append([("a", minute(0), 1, 1, minute(7))], "u STRING, at TIMESTAMP, n INT, tier INT, since TIMESTAMP")
    done.init().run()
    told = status(done.spark, done.config)
    assert told["oldest_open"]["watermark_behind_seconds"] is not None, told["oldest_open"]


def test_a_collated_text_is_refused_where_distinct_values_are_sketched(spark: SparkSession, tmp_path: Path) -> None:
    people = {"name": "people", "fn": "approx_count_distinct", "of": "collate(u, 'UTF8_LCASE')"}
    with pytest.raises(ConfigError, match=r"aggregates\.people: several values are equal by STRING COLLATE UTF8_LCASE"):
        Play(spark, tmp_path, aggregates=[people]).add("a@0").init()


def test_what_is_encrypted_by_chance_is_no_key(spark: SparkSession, tmp_path: Path) -> None:
    key = "base64(aes_encrypt(u, '0000111122223333'{}))"
    by_ecb = key.format(", 'ECB'")
    with pytest.raises(ConfigError, match="must give the same value whenever it is computed"):
        Play(spark, tmp_path / "one", source={"key": [{"name": "who", "expr": key.format("")}]}).add("a@0").init()
    always = Play(spark, tmp_path / "two", source={"key": [{"name": "who", "expr": by_ecb}]})
    always.runs("a@0 a@5").assert_sessions("start | end | count \n 0 | 5 | 2")


# What is rejected.


@pytest.mark.parametrize(("kind", "value"), list(zip(TYPES, MAPS, strict=True)))
def test_rejected_events_with_maps_by_odd_keys_are_known_again(play: Plays, kind: str, value: str) -> None:
    done = play("tick@100", f"u STRING, at TIMESTAMP, n INT, m {kind}", corrections="quarantine")
    for time in (5, 101):
        done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(time)}', 1, {value})").run()
    done.source("DELETE FROM {} WHERE u = 'a' AND at > TIMESTAMP'2026-01-01 01:00'").run()
    done.backfill(100, 200)
    done.assert_rejected("u | reason | kept \n a | correction | in \n a | late | out")
    done.assert_sessions("u | start \n a | 101 \n tick | 100")
    done.assert_clean()
    done.readmit().assert_sessions("u | start \n a | 5 \n tick | 100")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_what_has_no_time_by_an_update_stays_while_it_waits(play: Plays) -> None:
    done = play("a@0=5 b@100", corrections="quarantine").source("UPDATE {} SET at = NULL WHERE n = 5")
    done.run()
    later = Asked(keep={"rejected_events": DAY}, now=wall_clock() + 9 * DAY)
    maintain(done.spark, done.config, later)
    done.assert_rejected("u | reason \n a | correction \n a | null_time")
    done.source(f"UPDATE {{}} SET at = TIMESTAMP'{minute(5)}' WHERE n = 5")
    with having(done.spark, AT_ONCE):
        done.source("VACUUM {} RETAIN 0 HOURS")
    with pytest.raises(SourceError, match="cannot be read"):
        done.run()
    done.rebuild().assert_sessions("u | start | count \n a | 5 | 1 \n b | 100 | 1")
    done.assert_clean()


def test_a_source_by_another_name_does_not_lose_what_stays_out(spark: SparkSession, tmp_path: Path) -> None:
    with in_memory():
        done = Several(spark, tmp_path, {"clicks": CLICKS, "calls": CALLS | {"start": "latest"}})
        done.runs(clicks="a@0", calls="bob@5")
        calls = done.sources.pop("calls")
        done.sources["phone"] = calls | {"table": str(tmp_path / "calls")}
        done.there["phone"] = []
        done.config = done.configured()
        with pytest.raises(UsageError, match=r"have changed, or the name of one.*calls"):
            done.rebuild()
        del done.sources["phone"]
        done.config = done.configured()
        done.rebuild()
        done.assert_sessions("u | start | count \n a | 0 | 1")


def test_late_sessions_of_one_time_are_forgotten_together(play: Plays) -> None:
    done = play("tick@1440", session={"gap": "10m", "max_events": 2}, late_events="separate")
    done.runs("a@0=1 a@0=2 a@0=3 a@9=4")
    done.assert_sessions("u | start | end | late \n a | 0 | 0 | yes \n a | 0 | 9 | yes \n tick | 1440 | 1440 | no")
    forget(sessions_of(done.tables), 1425 * (at(1) - at(0)), done.now, done.said.append)
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_sessions("u | start \n tick | 1440")
    done.assert_clean()


@pytest.mark.parametrize("time", ["(CAST (at AS TIMESTAMP))", "try_to_timestamp(`at`)", "at :: timestamp"])
def test_a_time_of_day_is_no_event_time(spark: SparkSession, tmp_path: Path, time: str) -> None:
    done = Play(spark, tmp_path, "u STRING, at STRING, n INT", source={"event_time": time})
    done.append([("a", "08:15:00", 1), ("b", "2026-01-01", 1), ("c", "T8:15", 1)], done.schema)
    done.init().run()
    done.assert_sessions("u | start \n b | 0")
    done.assert_rejected("u | reason \n a | null_time \n c | null_time")
    done.assert_clean()


# Columns of other names, read in parts.


def test_changes_of_a_mapping_table_are_read_around_a_column_of_another_name(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Devices(spark, tmp_path, start="latest").maps("d1=ann").mapping(BY_NAME)
    done.mapping("ALTER TABLE {} ADD COLUMNS (note STRING, cnt INT)")
    done.add("d1@0").init().run()
    done.runs("d1@10 d2@12")
    done.mapping("INSERT INTO {} VALUES ('d2', 'ann', 'new', 1)")
    done.mapping("ALTER TABLE {} RENAME COLUMN note TO remark")
    done.mapping("INSERT INTO {} VALUES ('d3', 'ann', 'newer', 2)")
    done.run()
    done.assert_sessions("who | start | end | count \n ann | 10 | 12 | 2")
    done.assert_clean()


def test_a_column_that_is_renamed_and_named_back_by_a_restore_is_read_around(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, note INT").add("u | at | n | note \n a | 0 | 1 | 1")
    done.source(BY_NAME).init().run()
    before = done.tables.events.table.version
    done.source("ALTER TABLE {} RENAME COLUMN note TO remark")
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(5)}', 1, 1)")
    done.source(f"RESTORE {{}} TO VERSION AS OF {before}")
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP'{minute(7)}', 1, 1)").run()
    done.assert_sessions("u | start | end | count \n a | 0 | 7 | 2")
    done.assert_clean()


def test_so_is_a_part_of_a_column(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, w STRUCT<a: INT>").runs("a@0").source(BY_NAME)
    done.run()
    before, row = (
        done.tables.events.table.version,
        "INSERT INTO {{}} VALUES ('a', TIMESTAMP'{}', 1, named_struct('a', 1))",
    )
    done.source("ALTER TABLE {} RENAME COLUMN w.a TO b").source(row.format(minute(5)))
    done.source(f"RESTORE {{}} TO VERSION AS OF {before}").source(row.format(minute(7))).run()
    done.assert_sessions("u | start | end | count \n a | 0 | 7 | 2")
    done.assert_clean()


# What verify must not miss in tables that are right.


def test_final_sessions_that_keep_a_number_of_events_are_no_difference(play: Plays, tmp_path: Path) -> None:
    outputs = {name: str(tmp_path / name) for name in ("event_sessions", "session_updates")}
    time = {"allowed_lateness": "0s", "lateness": "session"}
    done = play("tick@110 a@85 a@93 a@95 | a@112 a@103 | a@88 a@92 a@94.5 | a@115=2", outputs=outputs, time=time)
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.assert_clean()


def test_sources_that_swap_their_names_are_told(spark: SparkSession, tmp_path: Path) -> None:
    with in_memory():
        done = Several(spark, tmp_path, {"clicks": CLICKS, "calls": CALLS | {"start": "latest"}}, aggregates=[])
        done.runs(clicks="a@0", calls="bob@5")
        swapped = [{"clicks": "calls", "calls": "clicks"}[name] for name in done.sources]
        told = done.config.model_dump(mode="json", exclude_unset=True)
        for source, name in zip(told["sources"], swapped, strict=True):
            source["name"] = name
        done.config = Config.model_validate(told)
        with pytest.raises(UsageError, match=r"have changed, or the name of one.*calls, clicks"):
            done.rebuild()


def test_a_mapping_whose_column_goes_and_comes_back_is_not_gone_on_with(spark: SparkSession, tmp_path: Path) -> None:
    done = Devices(spark, tmp_path).maps("d1=ann").mapping(BY_NAME)
    done.runs("d1@0 tick@100")
    done.mapping("ALTER TABLE {} RENAME COLUMN user_id TO old").mapping("ALTER TABLE {} ADD COLUMN user_id STRING")
    done.mapping("UPDATE {} SET user_id = 'bob'")
    with pytest.raises(SourceError, match="the columns of these names were others before"):
        done.run()
    done.rebuild().assert_sessions("who | start \n bob | 0 \n tick | 100")


def test_a_time_of_day_is_no_event_time_of_one_of_several_sources(spark: SparkSession, tmp_path: Path) -> None:
    with in_memory():
        calls = {"schema": "u STRING, t STRING, n INT", "key": ["u"], "event_time": "CAST(t AS TIMESTAMP)"}
        done = Several(spark, tmp_path, {"clicks": CLICKS, "calls": calls}, aggregates=[]).comes(clicks="a@0")
        told = [{"u": name, "t": text, "n": 1} for name, text in (("b", "2026-01-01 00:05:00"), ("c", "08:15:00"))]
        done.there["calls"] += told
        done._changed("calls", insert=told)
        done.runs()
        done.assert_sessions("u | start \n a | 0 \n b | 5")
        done.assert_rejected("u | reason \n c | null_time")
