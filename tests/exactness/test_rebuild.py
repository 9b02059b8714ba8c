"""A rebuild by another rule: every table is as if the new rule had always been."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.rebuild_plan import plan, show
from sessionizer.jobs.commands.status import status
from sessionizer.jobs.run.kinds import kind_of
from sessionizer.lib.time.watermarks import WatermarkOverride
from tests.exactness.play import Play, UsageError, at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
ON_DEVICES = "u STRING, d STRING, at TIMESTAMP, n INT"
OF_KEYS = {"watermark": {"per": "key"}, "idle_timeout": {"after": "30d", "clock": "processing_time"}}


@pytest.fixture
def outputs(tmp_path: Path) -> dict[str, str]:
    return {name: str(tmp_path / name) for name in ("event_sessions", "session_updates")}


def test_the_optional_tables_get_the_columns_of_the_new_rule(play: Plays, outputs: dict[str, str]) -> None:
    done = play("a@5=3", outputs=outputs)
    amounts = [{"name": "amount", "fn": "sum", "of": "n"}, {"name": "most", "fn": "max", "of": "n"}]
    done.change(aggregates=amounts, source={"order_by": ["n"]}).rebuild().runs("a@6=2")
    done.assert_rows(
        done.told_of(outputs["session_updates"], "u | event_time | n | amount | most"),
        """
        u | event_time | n | amount | most
        a | 5          | 1 | 3      | 3
        a | 6          | 2 | 5      | 3
        """,
    )
    traced = done.told_of(outputs["event_sessions"], "u | event_time | n")
    done.assert_rows(traced, "u | event_time | n \n a | 5 | 3 \n a | 6 | 2")
    assert "event_hash" not in done.tables.event_outputs["event_sessions"].table.schema.names
    done.assert_clean()


def test_the_lengths_of_texts_that_a_source_names_are_its_own(spark: SparkSession, tmp_path: Path) -> None:
    schema = "u CHAR(5), at TIMESTAMP, n INT, page VARCHAR(5), w STRUCT<c: CHAR(3)> COMMENT 'theirs'"
    aggregates = [{"name": "page", "fn": "first", "of": "page"}, {"name": "w", "fn": "last", "of": "w"}]
    outputs = {name: str(tmp_path / name) for name in ("event_sessions", "session_updates")}
    by_merge: dict[str, Any] = {"source": {"order_by": ["page"]}, "late_events": "amend"}  # into final sessions
    done = Play(spark, tmp_path, schema, aggregates=aggregates, outputs=outputs, **by_merge)
    kept = "'delta.enableChangeDataFeed' = 'true', 'delta.deletedFileRetentionDuration' = 'interval 30 days'"
    done.source(f"CREATE TABLE {{}} ({schema}) USING delta TBLPROPERTIES ({kept})")
    row = "('{}', TIMESTAMP'2026-01-01 00:0{}:00', 1, '{}', named_struct('c', 'x'))"
    done.source(f"INSERT INTO {{}} VALUES {row.format('a', 5, 'home')}, ('a', NULL, 1, '', NULL)").init().run()
    done.source(f"INSERT INTO {{}} VALUES {row.format('a', 5, 'home').replace('00:05', '01:40')}").run()
    done.rebuild().assert_clean()
    written = [done.tables.sessions.table, done.tables.rejected_events.table]
    written += [output.table for output in done.tables.event_outputs.values()]
    assert [field.name for table in written for field in table.schema.fields if field.metadata] == []
    done.change(aggregates=[*aggregates, {"name": "last", "fn": "last", "of": "page"}])
    done.source(f"INSERT INTO {{}} VALUES {row.format('a', 4, 'early')}").run()
    assert [field.name for table in written for field in table.schema.fields if field.metadata] == []
    done.source("ALTER TABLE {} ALTER COLUMN page TYPE VARCHAR(20)")
    done.source(f"INSERT INTO {{}} VALUES {row.format('a', 6, 'longer than five')}, ('b', NULL, 1, '', NULL)").run()
    rows = done.tables.sessions.table.read().orderBy("session_start").collect()
    found = [(row["u"], row["event_count"], row["page"], row["last"], row["w"]["c"]) for row in rows]
    assert found == [("a    ", 3, "early", "longer than five", "x  "), ("a    ", 1, "home", "home", "x  ")]
    done.assert_clean()


@pytest.fixture
def on_devices(play: Plays, outputs: dict[str, str]) -> Play:
    """b has no device, and x was used by nobody; a's late event is in no session."""
    events = "u | d | at | n \n a | x | 100 | 3 \n - | x | 101 | 1 \n b | - | 102 | 1"
    return play(events, schema=ON_DEVICES, outputs=outputs).runs("u | d | at | n \n a | x | 5 | 1")


@pytest.mark.parametrize("key", [["d"], ["u", "d"]])
def test_rejected_events_get_the_columns_of_the_new_key(on_devices: Play, key: list[str]) -> None:
    on_devices.damage("INSERT INTO {} (reason, ordinal) VALUES ('unreadable', 1)", "rejected_events")
    done = on_devices.change(source={"key": key}).rebuild()
    wrong = {
        "d": "d | event_time | reason \n - | - | unreadable \n - | 102 | null_key",
        "u": """
             u | d | event_time | reason
             - | - | -          | unreadable
             - | x | 101        | null_key
             b | - | 102        | null_key
             """,
    }
    done.assert_rejected(wrong[key[0]])
    done.assert_sessions(
        "d | start | end | count \n x | 5 | 5 | 1 \n x | 100 | 101 | 2"
        if key == ["d"]
        else "d | start | end | count \n x | 5 | 5 | 1 \n x | 100 | 100 | 1"
    )
    done.assert_clean()


def test_what_is_in_quarantine_gets_the_columns_of_the_new_key(play: Plays) -> None:
    events = "u | d | at | n \n a | x | 5 | 3 \n b | y | 5 | 7"
    done = play(events, schema=ON_DEVICES, corrections="quarantine")
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.change(source={"key": ["d"], "event_time": "at + INTERVAL 1 MINUTE"}).rebuild()
    done.assert_sessions("d | start | count \n x | 6 | 1 \n y | 6 | 1")
    done.assert_rejected("d | event_time | reason | kept \n y | 6 | correction | in")
    done.assert_clean()
    done.readmit().assert_sessions("d | start | count \n x | 6 | 1")
    done.assert_rejected("d | reason")


@pytest.mark.parametrize(("other", "time"), [("STRING", {}), ("INT", {}), ("BOOLEAN", {}), ("BOOLEAN", OF_KEYS)])
def test_the_key_gets_another_type_of_the_same_name(play: Plays, other: str, time: dict[str, Any]) -> None:
    sections = {"source": {"key": ["k's"]}, "aggregates": [], "time": time}
    done = play("k's | at \n 1 | 5 \n 1 | 6", schema="`k's` LONG, at TIMESTAMP", **sections)
    turned = {"STRING": "'1'", "INT": "1", "BOOLEAN": "true"}[other]
    source = done.config.source.table
    rows = done.spark.sql(f"SELECT CAST({turned} AS {other}) AS `k's`, at FROM delta.`{source}`")
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(source)
    done.rebuild().assert_sessions("count \n 2")
    assert done.tables.sessions.table.schema["k's"].dataType.simpleString().upper() == other
    done.assert_clean()


@pytest.mark.parametrize("change", ["DROP COLUMN n", "RENAME COLUMN n TO m"])
def test_what_is_in_quarantine_outlasts_a_column_that_nobody_uses(play: Plays, change: str) -> None:
    events = "u | d | at | n \n a | x | 5 | 3 \n b | y | 5 | 7 \n b | y | 5 | 8"
    done = play(events, schema=ON_DEVICES, corrections="quarantine", aggregates=[])
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')").run()
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    done.source(f"ALTER TABLE {{}} {change}").rebuild()
    done.assert_sessions("u | start | count \n a | 5 | 1 \n b | 5 | 2")
    done.assert_rejected("u | event_time | reason | kept \n b | 5 | correction | in \n b | 5 | correction | in")
    done.assert_clean()
    done.readmit().assert_sessions("u | start | count \n a | 5 | 1")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_a_rule_that_leaves_out_what_is_in_quarantine_waits_for_it(play: Plays) -> None:
    events = "u | d | at | n \n a | x | 5 | 9 \n b | y | 5 | 3"
    done = play(events, schema=ON_DEVICES, corrections="quarantine")
    done.source("DELETE FROM {} WHERE u = 'b'").run()
    with pytest.raises(UsageError, match="`sessionizer readmit` makes them first"):
        done.change(source={"where": "n > 5"}).rebuild()
    done.assert_rejected("u | reason \n b | correction")
    done.change().readmit()
    done.change(source={"where": "n > 5"}).rebuild().assert_sessions("u | start | total \n a | 5 | 9")
    done.assert_rejected("u | reason")
    done.assert_clean()


# Clocks


@pytest.mark.parametrize("source", [{}, {"key": ["d"]}])
def test_keys_get_clocks_of_their_own_with_the_new_rule(on_devices: Play, source: dict[str, Any]) -> None:
    done = on_devices.change(source=source, time=OF_KEYS).rebuild()
    done.runs("u | d | at | n \n a | x | 50 | 1")
    done.assert_sessions(
        "start | end \n 5 | 5 \n 100 | 101" if source else "start | end \n 5 | 5 \n 100 | 100 \n 102 | 102"
    )
    done.assert_clean()


def test_the_clocks_of_another_key_are_not_those_of_the_new_one(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, ON_DEVICES, time=OF_KEYS).runs("u | d | at | n \n a | x | 100 | 3")
    done.change(source={"key": ["d"]}).rebuild().runs("u | d | at | n \n b | x | 99 | 1 \n b | y | 5 | 1")
    done.assert_sessions("d | start | end \n x | 100 | 100 \n y | 5 | 5")
    done.assert_clean()


def test_tenants_are_judged_by_their_own_clocks_alone(play: Plays) -> None:
    done = play("tick@100 a@95").change(time={"watermark": {"per": ["u"]}}).rebuild()
    done.runs("a@150 | a@140")
    done.assert_rejected("u | event_time | horizon | reason \n a | 140 | 150 | late")
    done.assert_clean()


def test_the_clocks_of_other_scopes_are_left_behind(spark: SparkSession, tmp_path: Path) -> None:
    of_both = {"key": ["u", "d"]}
    done = Play(spark, tmp_path, ON_DEVICES, source=of_both, time={"watermark": {"per": ["u"]}})
    done.runs("u | d | at | n \n a | x | 100 | 3").change(time={"watermark": {"per": ["u", "d"]}}).rebuild()
    (scope,) = done.position().scopes_after or ()
    assert '"d":"x"' in scope


def test_a_dry_run_says_what_a_rebuild_would_do_and_writes_nothing(play: Plays) -> None:
    done = play("a@0 a@15 b@0 b@5 c@1500 tick@3000 | b@1")
    before = done.tables.sessions.table.version
    done.change(session={"gap": "20m"})
    found = plan(done.kind, done.said.append, now=done.now)
    assert found.changed == ["gap: '10m0s' → '20m0s'"]
    # a's two sessions become one, which is the first one's; b takes in what was late; the others expire later.
    assert (found.total("comes"), found.total("goes"), found.total("changes"), found.stays) == (0, 1, 4, 0)
    assert [day["day"] for day in found.days] == ["2026-01-01", "2026-01-02", "2026-01-03"]
    assert {row["what"] for row in found.examples} == {"goes", "changes"}
    assert done.tables.sessions.table.version == before
    assert status(done.spark, done.config)["rule_differs"] == found.changed
    done.rebuild()
    after = plan(done.kind, done.said.append, now=done.now)
    assert (after.changed, after.days, after.stays) == ([], [], 4)
    show(after)


def test_a_dry_run_compares_sets_and_tells_windows_of_another_key(play: Plays, tmp_path: Path) -> None:
    schema = "u STRING, d STRING, at TIMESTAMP, n INT"
    events = """
        u | d | at | n
        a | x | 0  | 1
        a | y | 5  | 1
        """
    of = [{"name": "names", "fn": "set", "of": "u"}]
    done = play(events, schema, aggregates=of, sliding={"table": str(tmp_path / "windows")})
    done.slide()
    done.change(aggregates=[{"name": "names", "fn": "set", "of": "d"}])
    assert plan(done.kind, done.said.append, now=done.now).total("changes") == 1
    done.change(aggregates=of, source={"key": ["d"]})
    found = plan(kind_of(done.spark, done.config, windows=True), done.said.append, now=done.now)
    assert (found.total("goes"), found.total("comes"), found.total("changes"), found.stays) == (3, 2, 0, 0)


def test_a_dry_run_names_columns_that_come_and_go(play: Plays) -> None:
    done = play("a@0 a@5").change(aggregates=[{"name": "largest", "fn": "max", "of": "n"}])
    found = plan(done.kind, done.said.append, now=done.now)
    assert (found.columns, found.stays, found.days) == (["+largest", "-total"], 1, [])


@pytest.mark.parametrize("override", [{"flush": True}, {"advance_to": at(50)}], ids=["flush", "advance"])
def test_time_moved_by_hand_before_the_start_has_come_is_no_dead_end(
    spark: SparkSession, tmp_path: Path, override: dict[str, Any]
) -> None:
    starts = {"start": {"version": 2}}
    done = Play(spark, tmp_path, source=starts).add("a@0").init()
    done.run(override=WatermarkOverride(**override))
    done.change(session={"gap": "5m"})
    if done.kind.home.position().manifest is not None:
        done.rebuild()
    done.add("a@4 a@60").runs("a@66").assert_sessions("u | start \n a | 66")
    done.assert_clean()


def test_a_start_that_becomes_latest_before_it_has_come_takes_its_position(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 5}}).add("a@0").init()
    done.run(override=WatermarkOverride(advance_to=at(1)))
    done.change(source={"start": "latest"}).run()
    done.runs("a@60").assert_sessions("u | start | count \n a | 60 | 1")
    assert done.run() == []
