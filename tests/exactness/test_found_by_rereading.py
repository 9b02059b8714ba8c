"""What a third look has found: changes of what has just come, updates that hang together, rules that change."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.forget import forget as forget_rows
from tests.exactness.play import Play, SessionizerError, SourceError, minute
from tests.exactness.test_forgetting import keep

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
WAITING: dict[str, Any] = {"corrections": "quarantine"}
STAYING: dict[str, Any] = {"allowed_lateness": "0s", "lateness": "session"}
OF_KEYS: dict[str, Any] = {
    "allowed_lateness": "0s",
    "watermark": {"per": "key"},
    "idle_timeout": {"after": "365d", "clock": "processing_time"},
}


def test_a_row_that_is_changed_just_after_it_came_stays_as_it_came_where_changes_wait(play: Plays) -> None:
    done = play("a@0=1", **WAITING)
    done.add("a@10=5 b@10=7 c@10=8").source("UPDATE {} SET n = 6 WHERE n = 5").source("DELETE FROM {} WHERE n = 7")
    done.source("UPDATE {} SET u = 'd' WHERE n = 8").run()
    done.assert_sessions(
        """
        u | start | end | count | total
        a | 0     | 10  | 2     | 6
        b | 10    | 10  | 1     | 7
        c | 10    | 10  | 1     | 8
        """
    )
    done.assert_rejected(
        """
        u | event_time | reason     | kept
        a | 10         | correction | in
        a | 10         | correction | out
        b | 10         | correction | in
        c | 10         | correction | in
        d | 10         | correction | out
        """
    )
    done.assert_clean()
    done.readmit().assert_sessions("u | start | total \n a | 0 | 7 \n d | 10 | 8")


@pytest.mark.parametrize(("there", "to"), [("a@6=3", "b"), ("b@6=3", "a")])
def test_updates_that_share_a_key_with_one_of_the_span_are_made_whole_too(play: Plays, there: str, to: str) -> None:
    done = play(f"a@5=2 {there} tick@600", **WAITING)
    done.source("UPDATE {} SET at = at + INTERVAL 300 MINUTES WHERE n = 2").source(
        f"UPDATE {{}} SET u = '{to}' WHERE n = 3"
    )
    done.run()
    done.readmit(300, 310).assert_sessions(f"u | start | total \n a | 305 | 2 \n {to} | 6 | 3 \n tick | 600 | 1")
    done.assert_rejected("u | event_time")
    done.assert_clean()


def test_a_backfill_by_clocks_of_keys_knows_the_key_of_an_event_that_only_waits(play: Plays) -> None:
    done = play("a@5 a@100", time=OF_KEYS, **WAITING).flush()
    done.source("DELETE FROM {} WHERE at < TIMESTAMP'2026-01-01 00:06:00'").run()
    done.damage("DELETE FROM {} WHERE session_start < TIMESTAMP'2026-01-01 00:06:00'")
    done.backfill(0, 10).assert_sessions("u | start | final \n a | 5 | yes \n a | 100 | yes")


def test_a_flush_ends_what_no_watermark_was_known_for(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, time={"watermark": {"per": ["u"]}, "max_future_skew": "1h"}).at(10)
    done.runs("a@0 c@200").at(4000).backfill(100, 300).flush()
    done.assert_sessions("u | start | status | why \n a | 0 | final | flush \n c | 200 | final | flush")


@pytest.mark.parametrize(
    "sections",
    [{"time": {"lateness": "event"}}, {"time": STAYING | {"revive": True}}, {"time": STAYING, "late_events": "amend"}],
    ids=["by event", "revived", "amended"],
)
def test_sessions_that_stayed_as_they_were_are_not_joined_by_another_rule(
    play: Plays, sections: dict[str, Any]
) -> None:
    done = play("tick@100 a@85 | a@92 a@83", time=STAYING)
    done.change(**sections).add("tick@101")
    with pytest.raises(SessionizerError, match="final sessions have stayed as they were"):
        done.run()
    done.rebuild().assert_sessions("u | start | end | count \n a | 83 | 92 | 3 \n tick | 100 | 101 | 2")
    done.assert_clean()


def test_no_correction_is_made_while_earlier_ones_wait_that_may_be_of_the_same_event(play: Plays) -> None:
    done = play("a@10=1 b@10=1", **WAITING).source("UPDATE {} SET n = 2 WHERE u = 'a'")
    done.run()
    done.change(corrections="apply").runs("b@15=4").source("UPDATE {} SET n = 3 WHERE u = 'a'")
    with pytest.raises(SourceError, match="earlier corrections, which may be of the same events, wait"):
        done.run()
    done.readmit().run()
    done.assert_sessions("u | count | total \n a | 1 | 3 \n b | 2 | 5")
    done.assert_clean()


def test_an_erasure_is_not_passed_over_while_an_update_of_the_same_event_waits(play: Plays) -> None:
    done = play("a@10=1 b@10=1", **WAITING).source("UPDATE {} SET n = 2 WHERE u = 'a'")
    done.run()
    done.change(corrections="apply").source("DELETE FROM {} WHERE u = 'a'")
    with pytest.raises(SourceError, match="earlier corrections, which may be of the same events, wait"):
        done.run()
    done.readmit().run()
    done.assert_sessions("u | count \n b | 1")


def test_what_waits_of_forgotten_events_is_made_as_well(play: Plays) -> None:
    done = play("a@0 b@1000 tick@1460", **WAITING).source("DELETE FROM {} WHERE u = 'a'")
    done.run()
    assert keep(done) == 1
    done.change(corrections="apply").source("DELETE FROM {} WHERE u = 'b'")
    with pytest.raises(SourceError, match="wait"):
        done.run()
    done.readmit().run()
    done.assert_sessions("u | start \n tick | 1460")
    done.assert_rejected("u | reason")
    done.assert_clean()


def test_what_waits_of_a_session_across_what_has_been_forgotten_is_made(play: Plays) -> None:
    done = play("a@0 b@7=2 b@13=1 tick@1446", **WAITING).source("UPDATE {} SET n = 5 WHERE u = 'b' AND n = 1")
    done.run()
    assert keep(done) == 1
    done.change(corrections="apply").source("DELETE FROM {} WHERE u = 'b'")
    with pytest.raises(SourceError, match="wait"):
        done.run()
    done.readmit().assert_sessions("u | start | total \n b | 7 | 7 \n tick | 1446 | 1")
    done.run()
    done.assert_sessions("u | start \n tick | 1446")
    done.assert_clean()


def test_upkeep_goes_by_the_rule_that_the_rows_were_made_by(play: Plays) -> None:
    done = play("tick@100 a@85 | a@92 a@83 | tick@1541", time=STAYING).change(time=STAYING, late_events="amend")
    assert forget_rows(done.kind, 1450 * 60_000_000, done.now, done.said.append) == 0  # a's lies amid another one
    done.assert_sessions("u | start | count \n a | 83 | 2 \n a | 85 | 1 \n tick | 100 | 1 \n tick | 1541 | 1")


MEANS = [
    ("DECIMAL(23,2)", "0.004545"),
    ("DECIMAL(38,18)", "0.0045454545454545454545"),
    ("DECIMAL(11,2)", "818181818.195455"),
]


@pytest.mark.parametrize(("kind", "mean"), MEANS)
def test_a_mean_of_decimals_has_all_its_digits(spark: SparkSession, tmp_path: Path, kind: str, mean: str) -> None:
    means = [{"name": "m", "fn": "avg", "of": "v"}]
    done = Play(spark, tmp_path, f"u STRING, at TIMESTAMP, v {kind}", aggregates=means)
    most = "900000000.01" if "11" in kind else "0"
    for ids in ("0, 2", "2, 11"):
        values = f"'a' AS u, TIMESTAMP'{minute(1)}' AS at, CAST(IF(id = 0, 0.05, {most}) AS {kind}) AS v"
        done.append_frame(spark.sql(f"SELECT {values} FROM range({ids})"))
        if not done.tables.sessions.table.exists():
            done.init()
        done.run()
    assert str(done.row("a")["m"]) == mean
    done.assert_clean()


def test_the_ledger_tells_what_became_of_recomputed_sessions(play: Plays) -> None:
    names = ("sessions_created", "sessions_extended", "sessions_split", "sessions_merged", "sessions_deleted")
    done = play("a@20 a@25 tick@200 | a@15", late_events="amend")
    assert done.ledger(*names)[-1] == (0, 1, 0, 0, 1)
    done.source(f"DELETE FROM {{}} WHERE at = TIMESTAMP'{minute(15)}'").run()
    assert done.ledger(*names)[-1] == (0, 1, 0, 0, 1)
    done.runs("a@33 a@40").source(f"DELETE FROM {{}} WHERE at = TIMESTAMP'{minute(33)}'").run()
    assert done.ledger(*names)[-1] == (0, 1, 1, 0, 0)
