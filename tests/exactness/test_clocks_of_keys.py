"""Watermarks and idle timeouts of keys: what is an arrival, what ends a key, and how it comes back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.lib.time.watermarks import WatermarkOverride
from tests.exactness.play import WAITING, WIDENING, WIDER, Play, at

Plays = Callable[..., Play]
OF_KEYS = {
    "watermark": {"per": "key"},
    "allowed_lateness": "1h",
    "idle_timeout": {"after": "30d", "clock": "processing_time"},
}
IDLE_KEYS = {"watermark": {"per": "key"}, "idle_timeout": {"after": "30m", "clock": "processing_time"}}
PATIENT_KEYS: dict[str, Any] = {
    "allowed_lateness": "0s",
    "watermark": {"per": "key"},
    "idle_timeout": {"after": "365d", "clock": "processing_time"},
}
IDLE = {"idle_timeout": {"after": "30m", "clock": "processing_time"}}


@pytest.mark.slow
def test_a_flush_ends_what_all_increments_of_the_run_have_made(play: Plays) -> None:
    done = play("a@5", limits={"max_versions_per_run": 1})
    done.add("b@7").add("c@8").flush()
    done.assert_sessions(
        """
        u | start | status | why
        a | 5     | final  | flush
        b | 7     | final  | flush
        c | 8     | final  | flush
        """
    )
    done.assert_rejected("u | reason")


@pytest.mark.broad
@pytest.mark.parametrize("tenant", ["${env:PATH}", "${system:line.separator}"])
def test_the_clock_of_a_tenant_that_spark_would_expand_is_its_own(
    spark: SparkSession, tmp_path: Path, tenant: str
) -> None:
    rules: dict[str, Any] = {
        "source": {"key": ["tenant", "u"]},
        "time": PATIENT_KEYS | {"watermark": {"per": ["tenant"]}},
    }
    done = Play(spark, tmp_path, "u STRING, at TIMESTAMP, n INT, tenant STRING", **rules)
    done.add("u | at | n | tenant \n a | 50 | 1 | t").init().run()
    for minutes in (50, 5):
        time = f"TIMESTAMP'2026-01-01' + INTERVAL {minutes} MINUTES"
        done.source(f"INSERT INTO {{}} VALUES ('u', {time}, 1, '{tenant}')").run()
    done.assert_rejected(f"u | tenant | event_time | reason \n u | {tenant} | 5 | late")
    done.assert_clean()


@pytest.mark.slow
def test_a_rebuild_does_not_set_the_clock_of_a_key_back(play: Plays) -> None:
    done = play("a@5 a@50", time=OF_KEYS)
    done.source("DELETE FROM {} WHERE at > TIMESTAMP'2026-01-01 00:30:00'").rebuild()
    done.assert_sessions("u | start | status | why \n a | 5 | closed | gap")


@pytest.mark.slow
def test_a_rebuild_leaves_flushed_sessions_of_a_key_final(play: Plays) -> None:
    done = play("a@5", time=OF_KEYS).flush().rebuild()
    done.assert_sessions("u | start | status \n a | 5 | final")


@pytest.mark.broad
@pytest.mark.parametrize("session", [{}, {"max_duration": "1h"}, {"starts_when": "n > 90"}], ids=str)
def test_what_a_flush_has_ended_is_told_so_as_long_as_it_ends_there(play: Plays, session: dict[str, str]) -> None:
    done = play("a@5=1 a@8=2 b@15=3", session=session).flush()
    told = done.told("u | start | end | status | why | run_id")
    assert [row["why"] for row in told] == ["flush", "flush"]
    assert done.backfill(0, 100).told("u | start | end | status | why | run_id") == told
    done.source("UPDATE {} SET n = 7 WHERE n = 1").run()
    done.assert_sessions("u | end | total | why \n a | 8 | 9 | flush \n b | 15 | 3 | flush")
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.assert_sessions("u | end | total | why \n a | 5 | 7 | gap \n b | 15 | 3 | flush")
    done.assert_clean()


@pytest.mark.broad
@pytest.mark.parametrize("beside", ["", "b@900=2"], ids=["alone", "beside a live one"])
def test_a_rebuild_leaves_them_final_where_the_key_has_become_wider(play: Plays, beside: str) -> None:
    done = play("a@5=1", time=PATIENT_KEYS, source={"key": ["n"]}).flush()
    if beside:
        done.runs(beside)
    done.source(WIDENING).source(WIDER).rebuild()
    done.assert_sessions("n | start | status \n 1 | 5 | final", n=1)
    done.source("INSERT INTO {} VALUES ('a', TIMESTAMP'2026-01-01 00:09:00', 1)").run()
    done.assert_rejected("n | event_time | reason \n 1 | 9 | late")
    done.assert_clean()


@pytest.mark.slow
def test_a_rebuild_leaves_flushed_sessions_of_a_key_final_that_only_quarantine_has(play: Plays) -> None:
    done = play("a@5", time=OF_KEYS, corrections="quarantine").flush()
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.rebuild().assert_sessions("u | start | status \n a | 5 | final")
    done.assert_clean()


@pytest.mark.slow
def test_a_key_without_a_live_session_is_forgotten(play: Plays) -> None:
    done = play("a@100=2", time=OF_KEYS | {"allowed_lateness": "90m"})
    done.source("DELETE FROM {} WHERE n = 2").run()
    done.runs("a@8").assert_sessions("u | start | status \n a | 8 | open")
    done.assert_rejected("u | reason")


@pytest.mark.slow
def test_a_key_that_was_ended_by_hand_comes_back_behind_its_final_sessions(play: Plays) -> None:
    done = play("a@5", time=OF_KEYS | {"allowed_lateness": "0s"})
    done.run(override=WatermarkOverride(advance_to=at(60)))
    done.runs("a@14 a@30").assert_sessions("u | start | status \n a | 5 | final \n a | 30 | open")
    done.assert_rejected(
        """
        u | event_time | reason | horizon
        a | 14         | late   | 15+1us
        """
    )


@pytest.mark.slow
def test_a_correction_is_no_arrival_of_the_key(play: Plays) -> None:
    done = play("a@0 a@1=2 a@100", now=100, time=IDLE_KEYS)
    done.at(120).source("DELETE FROM {} WHERE n = 2").run()
    done.at(135).run()
    done.assert_sessions("u | start | end | status \n a | 0 | 0 | final \n a | 100 | 100 | final")


@pytest.mark.slow
def test_a_backfill_is_no_arrival_of_the_key(play: Plays) -> None:
    done = play("a@0 a@100", now=100, time=IDLE_KEYS)
    done.at(120).backfill(0, 110).at(135).run()
    done.assert_sessions("u | start | status \n a | 0 | final \n a | 100 | final")


@pytest.mark.slow
def test_a_look_back_ends_no_key_for_want_of_events(play: Plays) -> None:
    done = play("a@0 a@100=2", now=100, time=IDLE_KEYS | {"allowed_lateness": "2h"})
    done.source("UPDATE {} SET n = 3 WHERE n = 1").at(120).run()
    done.at(155).backfill(0, 50).assert_sessions("u | start | final \n a | 0 | no \n a | 100 | no")
    done.run()
    done.assert_sessions("u | start | final \n a | 0 | yes \n a | 100 | yes")


@pytest.mark.slow
def test_a_backfill_by_clocks_of_keys_knows_the_key_of_an_event_that_only_waits(play: Plays) -> None:
    done = play("a@5 a@100", time=PATIENT_KEYS, **WAITING).flush()
    done.source("DELETE FROM {} WHERE at < TIMESTAMP'2026-01-01 00:06:00'").run()
    done.damage("DELETE FROM {} WHERE session_start < TIMESTAMP'2026-01-01 00:06:00'")
    done.backfill(0, 10).assert_sessions("u | start | final \n a | 5 | yes \n a | 100 | yes")


@pytest.mark.slow
def test_a_flush_ends_what_no_watermark_was_known_for(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, time={"watermark": {"per": ["u"]}, "max_future_skew": "1h"}).at(10)
    done.runs("a@0 c@200").at(4000).backfill(100, 300).flush()
    done.assert_sessions("u | start | status | why \n a | 0 | final | flush \n c | 200 | final | flush")


@pytest.mark.slow
def test_a_delete_ends_no_session_of_a_key_that_is_not_idle(play: Plays) -> None:
    of_keys = {"watermark": {"per": "key"}, "allowed_lateness": "1d"} | IDLE
    done = play("a@0 a@1=2", now=100, time=of_keys)
    done.at(120).runs("a@50")
    done.at(140).source("DELETE FROM {} WHERE n = 2").run()
    # The first session's last event came 40 minutes ago, the key's 20.
    done.assert_sessions("u | start | end | count | final \n a | 0 | 0 | 1 | no \n a | 50 | 50 | 1 | no")


@pytest.mark.slow
def test_a_backfill_is_no_arrival(play: Plays) -> None:
    done = play("a@5", now=720, time=IDLE)
    done.at(780).run()
    before = done.row("a")
    assert (before["status"], before["end_reason"]) == ("closed", "idle")
    done.at(785).backfill(0, 10)
    assert done.row("a") == before
