"""Where no event comes for longer than `time.watermark.idle_after`, the watermark follows the clock of the runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.run import side_tables
from sessionizer.lib.time.watermarks import WatermarkOverride
from tests.exactness.play import Play, at
from tests.kills import killed_at

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]


def quiet(**more: Any) -> dict[str, Any]:
    return {"watermark": {"idle_after": "1h", **more}}


def test_the_sessions_of_the_evening_end_although_no_event_comes_any_more(play: Plays) -> None:
    done = play("a@0 b@5", now=10, time=quiet())
    assert done.at(70).run() == []  # an hour is not longer than an hour
    (report,) = done.at(71).run()
    assert (report.manifest.arguments["advance_to"], report.manifest.watermark_after) == (at(71), at(71))
    done.assert_sessions("u | start | status | why \n a | 0 | final | gap \n b | 5 | final | gap")
    assert done.at(500).run() == []
    done.runs("a@70 | a@510").assert_rejected("u | event_time | reason \n a | 70 | late")
    done.assert_clean()


def test_what_lies_behind_the_clock_by_less_than_the_delay_stays_open(play: Plays) -> None:
    done = play("a@0 b@300", now=310, time=quiet(delay="2h"))
    assert done.at(371).run() == []  # the watermark would be 251, which ends nothing
    assert done.position().watermark_after == at(180)
    done.assert_sessions("u | start | final \n a | 0 | yes \n b | 300 | no")
    done.at(431).run()
    done.assert_sessions("u | start | final \n a | 0 | yes \n b | 300 | yes")


def test_events_that_come_with_a_run_are_not_judged_by_its_clock(play: Plays) -> None:
    done = play("a@0 b@5", now=5000, time=quiet())
    done.assert_sessions("u | status \n a | open \n b | open")
    done.at(5050).runs("a@6").at(5100).run()  # the source was quiet from 5050 on
    done.assert_sessions("u | end | status \n a | 6 | open \n b | 5 | open")


def test_a_copy_that_takes_the_place_of_its_original_is_an_event_that_is_read(play: Plays) -> None:
    copies = {"dedupe": {"by": ["n"], "within": "1d"}}
    done = play("a@0=7 | a@5=7", now=10, source={"key": ["u"]} | copies, time=quiet())
    done.at(60).source(f"DELETE FROM {{}} WHERE at = timestamp_micros({at(0)})").run()
    assert done.at(75).run() == []
    done.assert_sessions("u | start | status \n a | 5 | open")
    done.at(121).run()
    done.assert_sessions("u | start | status \n a | 5 | final")


def test_a_run_that_was_cut_off_goes_by_the_clock_that_it_had(play: Plays) -> None:
    done = play("a@0", now=10, time=quiet()).at(100)
    with killed_at(side_tables, "enter"):
        done.run()
    assert done.at(900).run() == []
    assert done.position().watermark_after == at(100)
    done.assert_clean()


def test_what_is_asked_of_the_watermark_by_hand_does_not_hold_the_clock_up(play: Plays) -> None:
    done = play("a@0 b@50", now=60, time=quiet())
    done.at(180).run(override=WatermarkOverride(advance_to=at(55)))
    assert done.position().watermark_after == at(180)
    done.assert_sessions("u | start | final \n a | 0 | yes \n b | 50 | yes")
    done.at(190).run(override=WatermarkOverride(advance_to=at(200)))
    assert done.position().watermark_after == at(200)
    done.assert_clean()


def test_what_the_watermark_has_passed_is_no_news_where_the_clock_is_none(play: Plays) -> None:
    done = play("a@0", now=10, time=quiet() | {"allowed_lateness": "1d"}).at(180)
    done.run()
    assert done.at(240).run() == []
    assert done.run(override=WatermarkOverride(advance_to=at(50))) == []
    assert done.position().watermark_after == at(180)


def test_what_the_watermark_of_each_scope_has_passed_is_no_news(play: Plays) -> None:
    done = play("a@0 b@5", now=10, time=quiet(per=["u"]) | {"allowed_lateness": "1d"}).at(180)
    done.run()
    assert done.at(240).run(override=WatermarkOverride(advance_to=at(50))) == []
    assert len(done.run(override=WatermarkOverride(advance_to=at(200)))) == 1
    done.assert_clean()


def test_each_key_follows_the_clock_once_a_run(play: Plays) -> None:
    idle = {"idle_timeout": {"after": "30d", "clock": "processing_time"}}
    done = play("a@0 b@95", now=100, time=quiet(per="key", delay="1h") | idle)
    assert len(done.at(161).run()) == 1
    done.assert_sessions("u | start | final \n a | 0 | yes \n b | 95 | no")
    done.assert_clean()


def test_windows_end_where_the_source_is_quiet(spark: SparkSession, tmp_path: Path) -> None:
    sliding = {"table": str(tmp_path / "windows"), "time_difference": "10m", "grace": "0s", "aggregates": []}
    done = Play(spark, tmp_path, sliding=sliding, time=quiet()).at(10).add("a@0").init().slide()
    assert {row["is_final"] for row in done.told_windows("is_final")} == {"no"}
    done.at(100).slide()
    assert {row["is_final"] for row in done.told_windows("is_final")} == {"yes"}
