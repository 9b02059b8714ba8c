"""Sliding windows by the same promises as sessions."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.chunks import chunks
from sessionizer.jobs.commands.forget import forget
from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.commands.report import by_duckdb, by_spark, write_report
from sessionizer.jobs.commands.status import status, status_without_spark
from sessionizer.jobs.plans.backfill import plan
from sessionizer.jobs.queries.changes import Asked as Changes
from sessionizer.jobs.queries.changes import changes, document
from sessionizer.jobs.queries.lookups import WindowLookUp, look_up
from sessionizer.jobs.run.context import RunContext
from sessionizer.jobs.run.kinds import ruled
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import ConfigError, RunFailed, TableError
from sessionizer.tables.queries.local import LocalTableSet
from tests.exactness.play import Play, at
from tests.exactness.slides import MINUTE, Slides, slides
from tests.warehouse import NOW

pytestmark = pytest.mark.slow


def sliding(folder: Path, **more: Any) -> dict[str, Any]:
    return {"table": str(folder / "windows"), "time_difference": "10m", "grace": "0s", "aggregates": []} | more


def test_an_aggregate_by_sql_may_name_the_columns_of_a_window(spark: SparkSession, tmp_path: Path) -> None:
    aggregates = [{"name": "is_left", "sql": "window_end = last_event_time"}]
    done = Play(spark, tmp_path, sliding=sliding(tmp_path, aggregates=aggregates)).add("a@500 a@505").init().slide()
    done.assert_rows(
        done.told_windows("window_end | event_count | is_left"),
        """
        window_end | event_count | is_left
        500        | 1           | yes
        505        | 2           | yes
        510+1000us | 1           | no
        """,
    )


def test_a_restore_of_the_windows_brings_back_what_later_runs_took_out_of_rejected_events(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, sliding=sliding(tmp_path)).add("tick@600").init().slide()
    done.add("a@500").slide()
    late = done.tables.windows.table.version
    done.source("DELETE FROM {} WHERE u = 'a'").slide()
    assert done.tables.rejected_window_events.table.read().count() == 0
    with done.tables.windows.table.lock():
        spark.sql(f"RESTORE delta.`{tmp_path / 'windows'}` TO VERSION AS OF {late}")
    done.slide(to_version=1)
    assert [row["reason"] for row in done.tables.rejected_window_events.table.read().collect()] == ["late"]
    done.slide()
    assert done.tables.rejected_window_events.table.read().count() == 0


@pytest.mark.parametrize(("before", "after"), [("table", ["u"]), (["u"], "table")])
def test_windows_keep_to_the_scopes_of_their_watermarks(
    spark: SparkSession, tmp_path: Path, before: object, after: object
) -> None:
    """In scopes of another kind the horizon would begin anew."""
    done = Play(spark, tmp_path, sliding=sliding(tmp_path), time={"watermark": {"per": before}})
    done.add("tick@600").init().slide().change(time={"watermark": {"per": after}})
    with pytest.raises(ConfigError, match="watermark_per: "):
        done.slide()


def test_scopes_remember_their_watermark_from_run_to_run(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, sliding=sliding(tmp_path), time={"watermark": {"per": ["u"]}})
    done.add("a@100 b@5").init().slide()
    for late in ("a@95", "a@96"):
        done.add(late).slide()
    rejected = done.told_of(str(tmp_path / "rejected_window_events"), "reason")
    assert [row["reason"] for row in rejected] == ["late"] * 2
    windows = [tuple(row.values()) for row in done.told_windows("u | window_end")]
    assert len(windows) == len(set(windows))


# By the same commands as sessions.


def test_every_run_has_a_row_in_the_ledger_of_windows(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@9=2 | a@30=3")
    done.source("DELETE FROM {} WHERE n = 3").run()
    ledger = done.told_of(
        str(tmp_path / "play" / "window_runs"),
        "run_seq | mode | events_read | accepted | windows_created | windows_deleted | live_windows",
    )
    done.assert_rows(
        ledger,
        """
        run_seq | mode | events_read | accepted | windows_created | windows_deleted | live_windows
        1       | run  | 2           | 2        | 3               | 0               | 2
        2       | run  | 1           | 1        | 1               | 0               | 1
        3       | run  | 0           | 0        | 0               | 1               | 0
        """,
    )


def test_a_run_that_died_behind_its_commit_is_entered_by_the_next(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1")
    done.add("a@100=2 -@7=3")
    done.run_cut_off()
    assert len(done.told_of(str(tmp_path / "play" / "window_runs"), "run_seq")) == 1
    done.run()
    assert len(done.told_of(str(tmp_path / "play" / "window_runs"), "run_seq")) == 2


def test_a_late_event_is_readmitted_into_final_windows(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@100=2 b@100=3 | a@12=4 b@60=5")
    done.assert_windows("a@5=1 a@100=2 b@100=3")
    done.readmit(10, 13)
    done.assert_windows("a@5=1 a@12=4 a@100=2 b@100=3")
    done.assert_rejected("u | reason\n b | late")
    done.readmit()
    done.assert_windows("a@5=1 a@12=4 a@100=2 b@60=5 b@100=3")


def test_a_backfill_makes_the_windows_of_its_span_and_keys_and_no_others(spark: SparkSession, tmp_path: Path) -> None:
    events = "a@5=1 a@9=2 a@22=3 a@40=4 b@9=5 b@40=6 c@100=7"
    done = slides(spark, tmp_path, events)
    run_ids = {(row["u"], row["window_end"]): row["run_id"] for row in done.told("u | window_end | run_id")}
    done.damage("UPDATE {} SET total = 99")
    done.damage("DELETE FROM {} WHERE u = 'a' AND hour(window_end) = 0 AND minute(window_end) = 16")
    assert done.verify().differing == len(done.found()) + 1
    done.backfill(10, 20, '{"u": "a"}')
    # Windows that end at 10 or later and start before 20, of a: those that end from 10 to 29.
    healed = {(u, end) for (u, end) in run_ids if u == "a" and 10 <= int(end or 0) < 30}
    rows = done.told("u | window_end | total | run_id")
    assert {(r["u"], r["window_end"]) for r in rows if r["total"] != "99"} == healed
    assert {(r["u"], r["window_end"]) for r in rows if r["run_id"] != run_ids[r["u"], r["window_end"]]} == healed
    done.backfill(0, 1440)
    done.assert_windows(events)


def test_a_backfill_of_days_makes_a_window_that_ends_on_a_day_without_events(
    spark: SparkSession, tmp_path: Path
) -> None:
    events = "a@5=1 a@8=2 a@2000=3"
    done = slides(spark, tmp_path, events)
    done.damage("DELETE FROM {} WHERE hour(window_end) = 0 AND minute(window_end) = 16")
    assert not done.verify(15).clean
    done.backfill(15, 3000)
    done.assert_windows(events)


def test_a_backfill_of_days_makes_a_window_of_events_that_stay_though_their_rows_are_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = slides(spark, tmp_path, "a@6=1 a@8=2 a@2000=3", corrections={"deletes": "ignore"})
    done.source("DELETE FROM {} WHERE n < 3").run()
    wanted = done.found()
    done.damage("DELETE FROM {} WHERE hour(window_end) = 0 AND minute(window_end) = 17")
    assert len(done.found()) == len(wanted) - 1
    done.backfill(17, 3000)
    assert done.found() == wanted
    done.assert_clean()


def test_a_plan_of_a_backfill_has_the_windows_that_begin_before_their_event(
    spark: SparkSession, tmp_path: Path
) -> None:
    """At 895 minutes one of the event at 905, and that of 595 ends in the span."""
    done = slides(spark, tmp_path, "a@595=1 | a@905=2")
    context = RunContext.look_back(done.kind, done.kind.home.position(), done.now, "backfill", {})
    for high, begin in ((1200, [600, 840, 900]), (900, [600, 840])):
        asked = LookBack(at(600), at(high), chunk=60 * MINUTE)
        told = plan(LocalTableSet(done.config), ruled(done.config, windows=True), asked)
        assert told.spans == chunks(context, at(600), at(high), 60 * MINUTE)
        assert [(low - at(0)) // MINUTE for low, _ in told.spans] == begin


def test_a_plan_has_the_windows_of_events_that_stay_by_whole_units(spark: SparkSession, tmp_path: Path) -> None:
    sliding = {"time_difference": "1d", "time_unit": "1h"}
    done = slides(spark, tmp_path, "a@645=1 a@4000=2", sliding=sliding, corrections={"deletes": "ignore"})
    done.source("DELETE FROM {} WHERE n = 1").run()
    context = RunContext.look_back(done.kind, done.kind.home.position(), done.now, "backfill", {})
    asked = LookBack(at(480), at(1920), chunk=30 * MINUTE)
    told = plan(LocalTableSet(done.config), ruled(done.config, windows=True), asked)
    wanted = chunks(context, at(480), at(1920), 30 * MINUTE)
    assert set(wanted) <= set(told.spans)
    assert at(600) in {low for low, _ in wanted}


def test_a_backfill_by_parts_of_a_unit_makes_the_window_that_ends_with_it(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@645", sliding={"time_difference": "2h", "time_unit": "1h"})
    told = done.told("window_start | window_end | count")
    assert len(told) == 1
    done.damage("DELETE FROM {}")
    backfill(done.kind, LookBack(at(540), at(720), chunk=30 * MINUTE, now=done.now))
    assert done.told("window_start | window_end | count") == told
    done.assert_clean()


def test_a_backfill_takes_out_windows_that_no_event_makes(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@100=2 b@5=3")
    done.damage("UPDATE {} SET window_start = window_start + INTERVAL 7 MINUTES WHERE hour(window_end) = 0")
    assert {row["kind"] for row in done.verify().wrong} == {"extra", "missing"}
    done.backfill(0, 50)
    done.assert_windows("a@5=1 a@100=2 b@5=3")


def test_what_a_backfill_only_looks_at_stays_open(spark: SparkSession, tmp_path: Path) -> None:
    """A shorter grace makes the windows of the past final, by the next run, not by a backfill of another day."""
    done = slides(spark, tmp_path, "a@5=1 a@100=2", sliding={"grace": "3h"})
    done.change(sliding={"grace": "0s"}).backfill(700, 800)
    assert {row["is_final"] for row in done.told("is_final")} == {"no"}
    done.add("b@100=3").run()
    assert {row["window_end"] for row in done.told("window_end", is_final=True)} == {"5"}


def test_a_rebuild_takes_all_in_and_follows_a_new_rule(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@100=2 | a@12=3")
    done.rebuild()
    done.assert_windows("a@5=1 a@12=3 a@100=2")
    done.assert_rejected("u | reason")
    done.change(sliding={"time_difference": "20m"})
    with pytest.raises(ConfigError, match="`sessionizer rebuild --windows` makes all windows anew by the new rule"):
        done.run()
    done.rebuild()
    assert done.told("window_end | event_count") == [
        {"window_end": "100", "event_count": "1"},
        {"window_end": "12", "event_count": "2"},
        {"window_end": "26", "event_count": "1"},
        {"window_end": "5", "event_count": "1"},
    ]
    done.assert_clean()


def test_copies_are_in_no_window_until_their_original_goes(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@7=1 a@8=2", source={"dedupe": {"by": ["n"], "within": "1h"}})
    done.assert_windows("a@5=1 a@8=2")
    done.add("a@20=1").run()
    done.assert_windows("a@5=1 a@8=2")
    done.source("DELETE FROM {} WHERE minute(at) = 5").run()
    done.assert_windows("a@7=1 a@8=2")


@pytest.mark.parametrize("seconds", ["07:59.999", "08:00.001"])
def test_copies_are_told_by_whole_units_of_time(spark: SparkSession, tmp_path: Path, seconds: str) -> None:
    """Times are truncated first: both are copies of minute 5, at most three minutes away, but 8:59 is, too."""
    done = slides(spark, tmp_path, "a@5=1", source={"dedupe": {"by": ["n"], "within": "3m"}})
    done.source(f"INSERT INTO {{}} VALUES ('a', TIMESTAMP '2026-01-01 00:{seconds}', 1)").run()
    done.source("INSERT INTO {} VALUES ('a', TIMESTAMP '2026-01-01 00:08:59.999', 1)").run()
    done.assert_windows("a@5=1")
    done.source("DELETE FROM {} WHERE minute(at) = 5").run()
    assert {len(numbers) for numbers in done.found().values()} == {1}
    done.assert_clean()


def test_corrections_in_quarantine_leave_the_windows_as_if_not_made(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@9=2 a@100=3", corrections="quarantine")
    done.source("DELETE FROM {} WHERE n = 1").source("UPDATE {} SET n = 7 WHERE n = 2").run()
    done.assert_windows("a@5=1 a@9=2 a@100=3")
    done.backfill(0, 1440)
    done.assert_windows("a@5=1 a@9=2 a@100=3")
    done.add("a@103=8").run()  # windows around what is gone are made again of what stays
    done.assert_windows("a@5=1 a@9=2 a@100=3 a@103=8")
    done.rebuild()
    done.assert_windows("a@5=1 a@9=2 a@100=3 a@103=8")
    done.readmit()
    done.assert_windows("a@9=7 a@100=3 a@103=8")


def test_late_to_the_unit(spark: SparkSession, tmp_path: Path) -> None:
    """An event within the minute of the horizon is judged by the whole minute, and so is its rejection."""
    done = slides(spark, tmp_path, "a@100=1", time={"watermark": {"delay": "30s"}})
    done.source("INSERT INTO {} VALUES ('a', TIMESTAMP '2026-01-01 01:39:45', 2)").run()
    done.assert_rejected("u | reason\n a | late")
    done.assert_windows("a@100=1")


def test_verify_finds_what_differs(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@9=2 b@5=3 a@700=4")
    for damage, kind, columns in (
        ("UPDATE {} SET total = 5 WHERE u = 'b'", "differs", ["total"]),
        (
            "UPDATE {} SET event_count = 5, is_final = false WHERE u = 'b'",
            "differs",
            ["event_count", "total", "is_final", "_state.numbers.ranked"],  # which no final row has
        ),
        ("DELETE FROM {} WHERE u = 'b'", "missing", []),
    ):
        done.damage(damage)
        (wrong,) = done.verify().wrong
        assert ((wrong["found"] or wrong["expected"])["u"], wrong["kind"]) == ("b", kind)
        assert sorted(wrong["columns"]) == sorted(columns) or kind == "missing"
        assert done.verify(600, 800).clean
        assert not done.verify(0, 20).clean
    done.backfill(0, 20).assert_clean()
    done.damage("INSERT INTO {} SELECT * FROM {} WHERE u = 'b'")
    assert done.verify().broken["each window is there once"] == 1


def test_a_suite_keeps_windows_from_being_written(spark: SparkSession, tmp_path: Path) -> None:
    suite = tmp_path / "suite.yaml"
    suite.write_text(
        "expectations:\n- type: expect_column_values_to_be_between\n  kwargs: {column: total, max_value: 5}\n"
    )
    done = slides(spark, tmp_path, "a@5=1", sliding={"expectations": str(suite)})
    done.add("a@7=9")
    with pytest.raises(RunFailed, match="the windows to be written break 1 expectation "):
        done.run()
    done.assert_windows("a@5=1")


def test_consumers_follow_the_windows(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@9=2 | a@100=3")
    shown = ("change", "window_end", "event_count", "is_final")
    told = document(done.kind, Changes("update", since_run="1"))
    assert told["last_run_seq"] == 2
    rows = [tuple(row[name] for name in shown) for row in told["rows"]]
    assert [row[0] for row in rows] == ["update", "update", "insert"]
    assert [row[2:] for row in rows] == [(2, True), (1, True), (1, False)]
    final = document(done.kind, Changes("append"))["rows"]
    assert [row["run_id"] for row in final] == [told["last_run"]] * 2
    assert len(document(done.kind, Changes("complete"))["rows"]) == len(done.found())
    done.source("DELETE FROM {} WHERE n = 3").run()
    assert [row["change"] for row in document(done.kind, Changes("update"))["rows"]] == ["delete"]


def test_the_windows_as_they_were_at_a_time(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 | a@100=3")
    made, first, second = sorted(entry.timestamp_us for entry in done.kind.home.table.history())
    assert [look_up(done.tables, WindowLookUp(at=us)).count() for us in (made, first, second)] == [0, 1, 2]
    with pytest.raises(TableError, match="the windows table has no version of that time"):
        look_up(done.tables, WindowLookUp(at=0))


def test_status_and_report_show_windows_beside_sessions(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@9=2 | a@100=3")
    Play.run(done)
    told = status_without_spark(done.config)
    assert told["sessions"] == {"open": 1, "closed": 0, "final": 1}
    assert told["windows"]["windows"] == {"open": 1, "final": 3}
    assert told["windows"]["runs"] == 2
    assert told["windows"]["oldest_open"]["window_end"] == "2026-01-01T01:40:00Z"
    with_spark = status(spark, done.config)
    for clock in ("watermark_lag_seconds", "oldest_waiting_seconds"):
        told["windows"].pop(clock), with_spark["windows"].pop(clock)
    assert with_spark["windows"] == told["windows"]
    page = tmp_path / "report.html"
    for engine in (by_duckdb(done.config), by_spark(spark, done.config)):
        figures = write_report(engine, done.config, page, NOW)
        assert figures["broken_rules"] == []
        assert "Busiest windows" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize("lateness", ["event", "session"])
def test_what_may_be_rejected_is_judged_by_verify(spark: SparkSession, tmp_path: Path, lateness: str) -> None:
    done = slides(spark, tmp_path, "a@5=1 a@100=2 | a@12=3", sliding={"lateness": lateness})
    done.assert_clean()
    done.damage("UPDATE {} SET event_time = event_time + INTERVAL 2 HOURS", "rejected_window_events")
    assert done.verify().broken["late events are older than the horizon of their run"] == 1


def test_windows_that_stayed_as_they_were_follow_no_other_lateness(spark: SparkSession, tmp_path: Path) -> None:
    done = slides(spark, tmp_path, "a@85=1 a@100=2 | a@92=3", sliding={"lateness": "session"})
    done.change(sliding={"lateness": "event"}).add("a@101=4")
    with pytest.raises(ConfigError, match="rebuild --windows"):
        done.run()
    done.rebuild()
    done.assert_windows("a@85=1 a@100=2 a@92=3 a@101=4")


def test_windows_are_forgotten_by_whole_units_of_the_rows_whatever_the_unit_will_be(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = slides(spark, tmp_path, "a@0=1 a@3000=2", sliding={"time_unit": "5m"})
    done.change(sliding={"time_unit": "1m"})
    assert forget(done.kind, DAY + MINUTE, done.now, done.said.append) > 0
    manifest = done.kind.home.position().manifest
    assert manifest is not None
    assert ((manifest.forgotten or 1) - at(0)) % (5 * MINUTE) == 0


def test_windows_of_another_key_are_none_that_a_follower_has_been_told(spark: SparkSession, tmp_path: Path) -> None:
    done = Slides(spark, tmp_path).runs("a@0=1 a@100=1 | a@200=1")
    by_n = Slides(spark, tmp_path, source={"key": ["n"]})
    by_n.rebuild()
    done.damage("RESTORE {} TO VERSION AS OF 1")
    by_n.rebuild()
    for run in ("2", "3"):  # all that are final, as those of before are of another key, or of another run
        _, rows = changes(by_n.kind, Changes("append", since_run=run))
        assert rows.count() == 2
