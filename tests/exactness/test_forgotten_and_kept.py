"""What upkeep forgets, and what it must keep: by date, beside live sessions, beside rejected events."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.forget import forget as forget_rows
from sessionizer.jobs.commands.look_back import LookBack
from sessionizer.jobs.commands.maintain import Asked as Upkeep
from sessionizer.jobs.commands.maintain import maintain
from sessionizer.jobs.plans import backfill as of_backfill
from sessionizer.jobs.run.kinds import ruled, sessions_of
from sessionizer.lib import columns as C
from sessionizer.lib.durations import DAY, MINUTE
from sessionizer.tables.delta import Superseded
from sessionizer.tables.queries.local import LocalTableSet
from sessionizer.tables.rejected_events import RejectedEvents
from tests import quick_tables
from tests.exactness.play import BY_N, STAYING, Play, at
from tests.exactness.slides import Slides, slides
from tests.exactness.test_forgetting import forget, keep

Plays = Callable[..., Play]
OF_KEYS: dict[str, Any] = {
    "allowed_lateness": "0s",
    "watermark": {"per": "key"},
    "idle_timeout": {"after": "365d", "clock": "processing_time"},
}


@pytest.fixture
def sliding(spark: SparkSession, tmp_path: Path) -> Callable[..., Slides]:
    return lambda **sections: Slides(spark, tmp_path, **sections)


@pytest.mark.broad
def test_late_sessions_of_one_time_are_forgotten_together(play: Plays) -> None:
    done = play("tick@1440", session={"gap": "10m", "max_events": 2}, late_events="separate")
    done.runs("a@0=1 a@0=2 a@0=3 a@9=4")
    done.assert_sessions("u | start | end | late \n a | 0 | 0 | yes \n a | 0 | 9 | yes \n tick | 1440 | 1440 | no")
    forget_rows(sessions_of(done.tables), 1425 * (at(1) - at(0)), done.now, done.said.append)
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.assert_sessions("u | start \n tick | 1440")
    done.assert_clean()


@pytest.mark.slow
@pytest.mark.parametrize("time", ["TIMESTAMP '0001-01-01 00:00:00'", "TIMESTAMP '9999-12-31 23:59:59'"])
def test_upkeep_by_date_takes_horizons_of_any_year(spark: SparkSession, tmp_path: Path, time: str) -> None:
    done = Play(
        spark,
        tmp_path,
        sessions={"partition_by": ["is_final", "session_date"]},
        time={"max_future_skew": "3000000d", "watermark": {"from": "min_event_time"}},
    ).add("a@5 b@6")
    done.source("DELETE FROM {}").source(f"INSERT INTO {{}} SELECT 'a', {time}, 1").init().flush()
    assert keep(done, "sessions") == 0


@pytest.mark.slow
def test_traces_are_forgotten_where_each_key_has_a_watermark(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(
        spark, tmp_path, time=OF_KEYS | {"allowed_lateness": "1h"}, outputs={"event_sessions": str(tmp_path / "traces")}
    ).runs("a@5 b@6 a@4000 b@4000")
    done.now = at(4000)
    assert keep(done, "event_sessions") == 2
    done.assert_clean()


@pytest.mark.slow
def test_upkeep_goes_on_where_keys_are_to_have_watermarks_once_all_is_made_anew(play: Plays) -> None:
    done = play("a@5 tick@4000").change(time=OF_KEYS)
    assert keep(done, "rejected_events") == 0


@pytest.mark.slow
def test_no_final_session_amid_another_one_is_forgotten(play: Plays) -> None:
    done = play("x@5 tick@100 a@85=1 | a@92=2 a@83=3 | tick@1531", time={"lateness": "session"})
    forget(done).source("UPDATE {} SET n = 5 WHERE n = 2").run()
    done.assert_sessions("u | start | end | count \n a | 83 | 92 | 2 \n a | 85 | 85 | 1", u="a")
    assert done.position().forgotten == at(95)


@pytest.mark.slow
def test_what_is_older_than_what_was_forgotten_keeps_no_copy_out_when_it_is_freed(play: Plays) -> None:
    done = play("x@0 a@12=7 | a@5=7 a@14=7 | tick@1441", source={"dedupe": {"by": ["n"], "within": "7d"}})
    forget(done).source("DELETE FROM {} WHERE u = 'a' AND minute(at) = 12").run()
    done.assert_sessions("u | start | count \n a | 14 | 1", u="a")
    done.assert_rejected("u | event_time | reason \n a | 5 | duplicate")
    done.assert_clean()


@pytest.mark.slow
def test_a_mark_keeps_to_the_horizons_that_there_were_whatever_the_config_says_now(play: Plays) -> None:
    done = play("b@5 a@0 a@3000", time={"watermark": {"per": ["u"]}})
    forget(done.change(time={"allowed_lateness": "0s"})).assert_sessions("u | start \n a | 0 \n a | 3000 \n b | 5")


@pytest.mark.slow
def test_a_flush_of_windows_goes_by_those_that_are_left(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@100=1 a@105=2", sliding={"grace": "1h"})
    done.source("DELETE FROM {} WHERE n = 2").flush()
    done.runs("a@108=3")
    done.assert_windows("a@100=1 a@108=3")


@pytest.mark.slow
def test_small_files_are_found_by_the_names_that_columns_have_in_the_log(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(
        spark,
        tmp_path,
        aggregates=[{"name": "of n", "fn": "sum", "of": "n"}],
        sessions={"partition_by": ["is_final", "session_date"]},
    ).runs("a@5 | b@6 | c@7 | d@8")
    table = done.tables.sessions.table
    assert table.small_files("session_date > DATE '1970-01-01'") == table.size()[0] > 1


@pytest.mark.slow
@pytest.mark.parametrize("cuts", [{}, {"max_duration": "1d"}], ids=["by gap", "cut"])
@pytest.mark.parametrize("left", [" a@105=10", ""], ids=["before others", "alone"])
def test_a_longer_gap_of_a_forgotten_event_makes_its_session_last(play: Plays, left: str, cuts: dict[str, Any]) -> None:
    by_n = BY_N["session"] | cuts
    done = play(f"a@0=5 a@5=5{left} tick@1530=10", session=by_n)
    assert keep(done) == 1
    assert done.position().forgotten == at(100)
    done.source("UPDATE {} SET n = 200 WHERE at = TIMESTAMP'2026-01-01 00:05:00'").run()
    wanted = "a | 0 | 105 | 205 | 3" if left else "a | 0 | 5 | 205 | 2"
    done.assert_sessions(f"u | start | end | expires_at | count \n {wanted} \n tick | 1530 | 1530 | 1540 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_windows_are_forgotten_by_whole_units_of_time(sliding: Callable[..., Slides]) -> None:
    done = sliding(sliding={"time_unit": "1h", "time_difference": "24h"}).runs("a@3000 a@9900 a@12000")
    done.runs("a@9825")  # late, and at 9780 by whole hours
    assert forget_rows(done.kind, 2190 * MINUTE, done.now, done.said.append) > 0
    manifest = done.kind.home.position().manifest
    assert manifest is not None
    assert manifest.forgotten == at(9780), "and not at 9810"
    done.readmit(0, 20_000)
    rows = done.told("u | window_start | window_end | count")
    done.assert_clean()
    done.rebuild()
    assert done.told("u | window_start | window_end | count") == rows
    done.assert_rejected("u | reason")


@pytest.mark.broad
def test_what_is_forgotten_is_so_by_the_units_of_a_rebuild(sliding: Callable[..., Slides]) -> None:
    """One minute of the hour of 9780 is older; all of it is, where windows go by whole hours."""
    done = sliding(sliding={"time_difference": "24h"}).runs("a@3000 a@9900 a@12000")
    assert forget_rows(done.kind, 2190 * MINUTE, done.now, done.said.append) > 0
    assert done.kind.home.position().manifest.forgotten == at(9810)  # type: ignore[union-attr]
    done.change(sliding={"time_difference": "24h", "time_unit": "1h"}).rebuild()
    assert done.kind.home.position().manifest.forgotten == at(9840)  # type: ignore[union-attr]
    done.runs("a@9825").assert_rejected("u | event_time | reason \n a | 9825 | late")
    rows = done.told("u | window_start | count")
    done.readmit(0, 20_000).rebuild()
    assert done.told("u | window_start | count") == rows
    done.assert_rejected("u | event_time | reason \n a | 9825 | late")
    done.assert_clean()


@pytest.mark.broad
def test_events_that_are_rejected_for_windows_are_forgotten_too(sliding: Callable[..., Slides]) -> None:
    done = sliding().runs("a@500").runs("a@5")
    asked: Any = Upkeep(keep={"rejected_window_events": 90 * DAY}, now=done.now + 10_000 * DAY)
    told = {one.table: one.forgotten_rows for one in maintain(done.spark, done.config, asked)}
    assert told["rejected_window_events"] == 1
    rows = quick_tables.read(done.tables.rejected_window_events.table.location, (C.REASON, C.EVENT))
    assert rows == [("late", None)]
    done.assert_clean()


@pytest.mark.slow
def test_upkeep_that_comes_between_a_run_and_its_rejects_loses_none(play: Plays) -> None:
    done, write, came = play("tick@100"), RejectedEvents.write, []

    def overtaken(*told: Any) -> None:
        came.append(told)
        if len(came) == 1:
            raise Superseded("upkeep came first")
        write(*told)

    with patch.object(RejectedEvents, "write", overtaken):
        done.runs("a@5")
    assert len(came) == 2
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_clean()


@pytest.mark.slow
def test_upkeep_goes_by_the_rule_that_the_rows_were_made_by(play: Plays) -> None:
    done = play("tick@100 a@85 | a@92 a@83 | tick@1541", time=STAYING).change(time=STAYING, late_events="amend")
    assert forget_rows(done.kind, 1450 * 60_000_000, done.now, done.said.append) == 0  # a's lies amid another one
    done.assert_sessions("u | start | count \n a | 83 | 2 \n a | 85 | 1 \n tick | 100 | 1 \n tick | 1541 | 1")


@pytest.mark.slow
def test_a_plan_of_a_backfill_leaves_late_events_out_that_have_been_forgotten(play: Plays) -> None:
    done = forget(play("a@0 tick@1500 | b@55 c@75"))
    span = LookBack(at(0), at(1500))
    plan = of_backfill.plan(LocalTableSet(done.config), ruled(done.config, windows=False), span)
    before = len(done.told("u"))
    done.backfill(0, 1500)
    assert (done.position().forgotten, plan.late) == (at(70), 1)
    assert len(done.told("u")) == before + 1
