"""An aggregate that is added or dropped in the config of a table that lives: the next run takes it up by itself."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.look_back import LookBack, backfill, lacking
from sessionizer.jobs.commands.status import status
from sessionizer.jobs.queries.changes import Asked, document
from sessionizer.lib.errors import ConfigError, SourceMismatch, UsageError
from tests.exactness.play import TOTAL, Play, at, minute

Plays = Callable[..., Play]
LATE_TAKEN_IN: dict[str, Any] = {"late_events": "amend", "time": {"allowed_lateness": "20m"}}
KINDS = {"name": "kinds", "fn": "count_distinct", "of": "n"}
MOST = {"name": "most", "fn": "max", "of": "n"}
WIDE: list[dict[str, Any]] = [
    KINDS,
    {"name": "doubled", "fn": "sum", "of": "n * 2L"},
    {"name": "first_n", "fn": "first", "of": "n"},
    {"name": "p50", "fn": "approx_percentile", "of": "n", "percentile": 0.5},
    {"name": "product", "fn": "custom", "of": "n", "initial": "1L", "update": "acc * value", "merge": "left * right"},
    {"name": "values", "fn": "list", "of": "n", "at_most": 2},
    {"name": "share", "sql": "total / doubled"},
]
OF_WIDE = (
    "u | start | end | count | total | kinds | doubled | first_n | p50 | product | values | values_truncated | share"
)


@pytest.fixture(scope="module")
def before(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Play:
    """a's session at 0 is final; those of b and c are live: watermark 100, horizon 80."""
    return Play(spark, tmp_path_factory.mktemp("before"), **LATE_TAKEN_IN).runs("a@0=2 a@5=3 b@85=4 b@90=4 c@100=7")


def test_a_run_takes_new_aggregates_up_and_makes_live_sessions_again(before: Play, copied: Plays) -> None:
    play = copied(before, aggregates=[*TOTAL, *WIDE])
    version = play.tables.sessions.table.version
    (report,) = play.run()
    assert play.tables.sessions.table.version == version + 1
    assert report.manifest.sessions["updated"] == 2
    play.assert_sessions(
        f"""
        {OF_WIDE}
        a | 0  | 5   | 2 | 5 | - | -  | - | - | -  | -   | -  | -
        b | 85 | 90  | 2 | 8 | 1 | 16 | 4 | 4 | 16 | 4,4 | no | 0.5
        c | 100 | 100 | 1 | 7 | 1 | 14 | 7 | 7 | 7  | 7   | no | 0.5
        """
    )
    play.assert_clean()
    assert [row["total"] for row in document(play.kind, Asked("complete", run="1"))["rows"]] == [5, 8, 7]
    # The live sessions go on from what they remember now.
    play.runs("b@95=5 a@10=4").assert_sessions(
        f"""
        {OF_WIDE}
        a | 0  | 10  | 3 | 9  | 3 | 18 | 2 | 3 | 24 | 2,3 | yes | 0.5
        b | 85 | 95 | 3 | 13 | 2 | 26 | 4 | 4 | 80 | 4,4 | yes | 0.5
        c | 100 | 100 | 1 | 7 | 1 | 14 | 7 | 7 | 7  | 7   | no | 0.5
        """
    )
    play.assert_clean()


@pytest.mark.broad
def test_a_backfill_of_columns_fills_what_was_final_and_takes_nothing_in(before: Play, copied: Plays) -> None:
    play = copied(before, aggregates=[*TOTAL, KINDS], late_events="quarantine")
    play.runs("a@10=4 b@88=5")
    sessions = "u | count | total | kinds \n a | 2 | 5 | {} \n b | 3 | 13 | 2 \n c | 1 | 7 | 1"
    play.assert_sessions(sessions.format("-"))
    play.assert_clean()
    (since,) = status(play.spark, play.config)["filled_since"].items()
    assert since == ("kinds", {"run_seq": play.position().run_seq, "at": "2026-01-10T00:00:00Z"})
    span = lacking(play.kind, ("kinds",), None, None)
    assert span == (at(0), at(5) + 1)
    backfill(play.kind, LookBack(*span, columns=("kinds",), now=play.now))
    play.assert_sessions(sessions.format("2"))
    play.assert_rejected("u | reason \n a | late")
    play.assert_clean()
    assert lacking(play.kind, ("kinds",), None, None) is None
    with pytest.raises(UsageError, match="--columns must name aggregates of the config"):
        lacking(play.kind, ("kind",), None, None)
    play.damage("UPDATE {} SET kinds = NULL WHERE u = 'a'")  # what has been filled must stay so
    assert play.verify().differing == 1


def test_an_sql_that_fails_for_what_is_not_filled_yet_is_no_matter_of_verify(play: Plays) -> None:
    share = {"name": "share", "sql": "event_count / total"}
    done = play("a@0=0 tick@100=1").change(aggregates=[*TOTAL, share])
    done.runs("tick@101=1").assert_sessions("u | share \n a | - \n tick | 1")
    done.assert_clean()
    done.damage("UPDATE {} SET total = 0 WHERE u = 'tick'")
    assert done.verify().differing == 1


def test_no_backfill_of_columns_goes_over_late_sessions_apart_that_it_leaves_as_they_are(play: Plays) -> None:
    done = play("tick@100 | a@5", late_events="separate").change(aggregates=[*TOTAL, KINDS])
    done.run()
    done.assert_sessions("u | start | kinds \n a | 5 | - \n tick | 100 | 1")
    assert lacking(done.kind, ("kinds",), None, None) is None
    done.assert_clean()


@pytest.mark.broad
def test_a_dropped_column_stays_and_is_null_in_what_is_written_from_then_on(before: Play, copied: Plays) -> None:
    play = copied(before, aggregates=[])
    (report,) = play.run()  # nothing changes but what the table is as of
    assert (report.manifest.sessions["rows"], list(report.manifest.left)) == (0, ["total"])
    play.runs("b@91 d@101").assert_sessions("u | count | total \n a | 2 | 5 \n b | 3 | - \n c | 1 | 7 \n d | 1 | -")
    play.assert_clean()
    play.damage("UPDATE {} SET total = 5 WHERE u IN ('a', 'b')")  # of a it may be told, as it was before
    dropped = "what is written since an aggregate was dropped holds nothing of it"
    assert {name: rows for name, rows in play.verify().broken.items() if rows} == {dropped: 1}
    play.damage("UPDATE {} SET total = NULL WHERE u = 'b'")
    with pytest.raises(ConfigError, match="has a column that another definition has filled") as refused:
        play.change(aggregates=[MOST | {"name": "total"}]).run()
    assert '"fn": "sum"' in str(refused.value.value)
    play.change(aggregates=[MOST, *TOTAL]).run()
    told = "u | count | total | most \n a | {} \n b | 3 | 9 | 4 \n c | 1 | 7 | 7 \n d | 1 | 1 | 1"
    play.assert_sessions(told.format("2 | 5 | -"))
    play.assert_clean()
    play.runs("a@10").assert_sessions(told.format("3 | 6 | 3"))
    play.assert_clean()


@pytest.mark.broad
def test_a_run_that_dies_behind_its_commit_is_finished_by_its_own_aggregates(
    spark: SparkSession, tmp_path: Path
) -> None:
    updates: dict[str, Any] = {"outputs": {"session_updates": str(tmp_path / "play" / "updates")}}
    play = Play(spark, tmp_path / "play", **LATE_TAKEN_IN, **updates).runs("a@0=2 b@85=4 c@100=7")
    play.add("b@90=5 d@101").change(aggregates=[*TOTAL, *WIDE])
    play.run_cut_off()
    play.change(aggregates=[MOST]).run()  # and another one takes up what the config has come to be
    play.assert_rows(
        play.told_of(play.config.outputs.session_updates or "", "u | n | total | kinds"),
        "u | n | total | kinds \n a | 1 | 2 | - \n b | 1 | - | - \n b | 2 | - | - \n c | 1 | - | - \n d | 1 | - | -",
    )
    assert [row[0] for row in play.ledger("mode")] == ["run"] * 3
    assert [len(m.left) for m in play.tables.sessions.manifests()] == [8, 0, 0]
    play.assert_sessions("u | total | kinds | most \n a | 2 | - | - \n b | - | - | 5 \n c | - | - | 7 \n d | - | - | 1")
    play.assert_clean()


def test_what_a_run_has_not_taken_up_yet_stops_other_jobs(before: Play, copied: Plays) -> None:
    play = copied(before, aggregates=[*TOTAL, KINDS])
    for job in (play.verify, lambda: play.backfill(0, 10), play.readmit, lambda: lacking(play.kind, ("kinds",), 0, 1)):
        with pytest.raises(ConfigError, match=r"aggregates have come or gone .*\+kinds"):
            job()
    versions = play.versions()
    (report,) = play.run(dry_run=True)
    assert (report.manifest.sessions["updated"], play.versions()) == (2, versions)
    with pytest.raises(ConfigError, match="the rule has changed"):
        play.change(session={"gap": "20m"}).run()
    assert play.versions() == versions


@pytest.mark.broad
def test_an_aggregate_that_events_fail_for_would_change_which_of_them_count(before: Play, copied: Plays) -> None:
    play, of = copied(before), "1 div (n - 5)"
    inverse = {"name": "inverse", "fn": "sum", "of": of}
    play.change(aggregates=[*TOTAL, inverse]).add("d@101=5").run()  # the first that it fails for is rejected
    play.assert_rejected("u | reason \n d | expression_failed")
    play.assert_clean()
    with pytest.raises(ConfigError, match="of` of inverse may be why events are rejected"):
        play.change(aggregates=TOTAL).run()
    fails = {"name": "fails", "fn": "sum", "of": "1 div (n - 7)"}
    with pytest.raises(ConfigError, match="of` of fails fails for events that are in sessions"):
        play.change(aggregates=[*TOTAL, inverse, fails]).run()


@pytest.mark.broad
def test_an_aggregate_that_a_copy_alone_fails_for_would_keep_it_out_where_its_original_goes(play: Plays) -> None:
    done = play("a@0=1 a@1=7", aggregates=TOTAL, source={"dedupe": {"by": ["u"], "within": "1h"}})
    done.assert_rejected("u | reason \n a | duplicate")
    with pytest.raises(ConfigError, match="fails for events that are in sessions, or copies of these"):
        done.change(aggregates=[*TOTAL, {"name": "fails", "fn": "sum", "of": "1 div (n - 7)"}]).run()


@pytest.mark.broad
def test_a_restore_to_before_takes_the_column_back_and_the_next_run_up_again(before: Play, copied: Plays) -> None:
    play = copied(before, aggregates=[*TOTAL, KINDS])
    version = play.tables.sessions.table.version
    play.runs("b@95=5")
    play.by_hand(f"RESTORE TABLE {{}} TO VERSION AS OF {version}")
    assert "kinds" not in play.tables.sessions.table.schema.names
    play.run()
    play.assert_sessions("u | count | kinds \n a | 2 | - \n b | 3 | 2 \n c | 1 | 1")
    play.assert_clean()


# The same with other rules


RULES: dict[str, dict[str, Any]] = {
    "max_duration": {"session": {"max_duration": "12m"}},
    "content": {"session": {"max_events": 2, "starts_when": "n = 9"}},
    "content and gaps of their own": {
        "session": {"gap": {"expr": "make_dt_interval(0, 0, 10 + n, 0)"}, "changes_of": ["n > 3"]},
        "late_events": "quarantine",
    },
    "max_duration and gaps of their own": {
        "session": {"gap": {"expr": "make_dt_interval(0, 0, 10 + n, 0)"}, "max_duration": "12m"}
    },
    "a watermark per key": {
        "time": {
            "watermark": {"per": "key"},
            "allowed_lateness": "20m",
            "idle_timeout": {"after": "30d", "clock": "processing_time"},
        }
    },
    "late events apart": {"late_events": "separate"},
    "revive": {"time": {"lateness": "session", "revive": True, "allowed_lateness": "20m"}},
    "merge": {"sessions": {"commit": "merge"}},
    "no keys": {"source": {"key": []}},
    "deletion vectors": {"sessions": {"commit": "merge", "deletion_vectors": True}},
}


@pytest.mark.broad
@pytest.mark.parametrize("name", RULES)
def test_any_rule_takes_new_aggregates_up(spark: SparkSession, tmp_path: Path, name: str) -> None:
    rule = LATE_TAKEN_IN | RULES[name]
    play = Play(spark, tmp_path / "play", **rule)
    play.runs("a@0=2 a@5=3 b@70=4 b@78=4 b@83=9 b@90=4 c@100=7 | b@95 a@3=1")
    before = told_of_live(play, "total")
    play.change(aggregates=[*TOTAL, *WIDE[:4]]).run()
    assert told_of_live(play, "total") == before
    play.assert_clean()
    play.runs("b@97=9 c@101 d@85 a@6=4 | b@96=2")
    play.assert_clean()
    play.source("DELETE FROM {} WHERE u = 'a' AND n = 3").run()
    play.backfill(0, 200).assert_clean()
    assert play.tables.sessions.table.read().where("kinds IS NULL AND NOT is_late").isEmpty()


def told_of_live(play: Play, *names: str) -> list[str]:
    return sorted(map(str, play.tables.sessions.live().select("session_id", "status", "event_count", *names).collect()))


@pytest.mark.broad
def test_final_sessions_beside_live_ones_stay_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """With `lateness: session` and no revival a live session may lie within the gap of a final one."""
    rule: dict[str, Any] = {"time": {"lateness": "session", "allowed_lateness": "5m"}}
    play = Play(spark, tmp_path / "play", **rule).runs("a@0=2 t@14 | t@20 | a@8=3 a@16=4 t@21")
    final = play.told("u | start | end | count | total", is_final=True)
    play.change(aggregates=[*TOTAL, KINDS]).run()
    assert play.told("u | start | end | count | total", is_final=True) == final
    play.assert_sessions(
        "u | start | end | count | total | kinds \n a | 8 | 16 | 2 | 7 | 2 \n t | 14 | 21 | 3 | 3 | 1", is_final=False
    )
    play.assert_clean()


@pytest.mark.broad
def test_columns_renamed_on_the_way_are_read_first_by_the_aggregates_as_they_were(play: Plays) -> None:
    """By their new names nobody knows what older events were, nor for which of them a new `of` fails."""
    events = [{"name": "events", "fn": "count"}]
    done = play("a@0=7 tick@100=1", aggregates=events)
    done.source("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')").run()
    done.source("ALTER TABLE {} RENAME COLUMN n TO m")
    inverse = {"aggregates": [*events, {"name": "inverse", "fn": "sum", "of": "1 div (m - 7)"}]}
    with pytest.raises(SourceMismatch, match=r"renamed.*by the aggregates as they were"):
        done.change(**inverse).run()
    done.change(aggregates=events).run()
    with pytest.raises(ConfigError, match="inverse fails for events"):
        done.change(**inverse).run()


@pytest.mark.broad
def test_a_dropped_aggregate_that_comes_back_tells_nothing_of_events_that_have_changed(play: Plays) -> None:
    """Its column was of the events before the update, which changed nothing else that the row shows."""
    done = play("a@0=1 a@5=2 b@0=4 tick@100", aggregates=TOTAL)
    done.change(aggregates=[]).run()
    done.source("UPDATE {} SET n = 99 WHERE n = 2").run()
    done.change(aggregates=TOTAL).run()
    done.assert_sessions("u | total \n a | - \n b | 4 \n tick | 1")
    done.assert_clean()
    span = lacking(done.kind, ("total",), None, None)
    assert span is not None
    backfill(done.kind, LookBack(*span, columns=("total",), now=done.now))
    done.assert_sessions("u | total \n a | 100 \n b | 4 \n tick | 1")


@pytest.mark.broad
def test_the_first_local_time_of_a_table_may_come_with_a_new_aggregate(spark: SparkSession, tmp_path: Path) -> None:
    outputs = {"session_updates": str(tmp_path / "updates")}
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, local TIMESTAMP_NTZ", outputs=outputs)
    row = "INSERT INTO {{}} VALUES ('a', TIMESTAMP'{0}', 1, TIMESTAMP_NTZ'{0}')"
    done.source("CREATE TABLE {} (u STRING, at TIMESTAMP, n INT, local TIMESTAMP_NTZ) USING delta")
    done.source(row.format(minute(0))).init().run()
    done.change(aggregates=[*TOTAL, {"name": "last_local", "fn": "last", "of": "local"}])
    done.source(row.format(minute(5))).run()
    assert done.row("a")["last_local"] == minute(5).replace(tzinfo=None)
    done.assert_clean()
    done.change(aggregates=[*TOTAL, {"name": "locals", "fn": "list", "of": "local"}]).rebuild()
    done.assert_clean()


def test_parts_of_aggregates_may_have_any_name_where_the_table_is_made_with_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    odd = {"name": "odd", "fn": "set", "of": "array(named_struct('page id', n))"}
    Play(spark, tmp_path / "with", aggregates=[odd]).runs("a@5=1 a@6=2").assert_clean()
    other = Play(spark, tmp_path / "without", late_events="amend").runs("a@5=1 tick@100")
    with pytest.raises(ConfigError, match="a column of this name cannot be added to sessions") as told:
        other.change(aggregates=[*TOTAL, odd]).run()
    assert told.value.value == "page id"
    quoted = odd | {"of": "array(named_struct('page`id', n))"}  # which the change feed takes within a column
    other.change(aggregates=[*TOTAL, quoted]).runs("a@6=2").assert_clean()


@pytest.mark.broad
def test_somebody_may_drop_the_column_of_a_dropped_aggregate(play: Plays) -> None:
    done = play("a@5=2 tick@100").change(aggregates=[])
    done.run()
    done.damage("ALTER TABLE {} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    done.damage("ALTER TABLE {} DROP COLUMN total")
    done.runs("b@110").assert_clean()
