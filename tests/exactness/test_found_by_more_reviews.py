"""What readers of the code have found where time passes, tables are other ones, or Python has no place for a value."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.forget import forget
from sessionizer.jobs.commands.maintain import Asked, maintain
from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.jobs.reporting.run_output import show
from sessionizer.jobs.run.kinds import kind_of
from sessionizer.lib import columns as C
from sessionizer.lib.durations import DAY, MINUTE
from sessionizer.lib.errors import RunFailed, SourceMismatch, TableError
from sessionizer.tables.delta import CHANGE_FEED, Commit, Table
from sessionizer.tables.delta.settings import having
from tests import quick_tables
from tests.exactness.play import TOTAL, Play, at
from tests.exactness.several import Several, several
from tests.exactness.slides import Slides
from tests.kills import killed_at
from tests.machine.memory import THERE

pytestmark = pytest.mark.broad
AT_ONCE = {
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
}


def test_a_rebuild_beside_other_rejected_events_loses_nothing_that_was_pruned(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, corrections={"deletes": "ignore"}).runs("a@0 a@5 b@100")
    done.source("DELETE FROM {} WHERE u = 'a'").run()
    done.change(outputs={"rejected_events": str(tmp_path / "others")}).init()
    with pytest.raises(TableError, match=r"is not the table that runs have written to.*in a table of its own"):
        done.rebuild()
    assert {row["u"] for row in done.told("u")} == {"a", "b"}


def test_a_commit_that_changes_rows_waits_for_what_has_waited_longer(spark: SparkSession, tmp_path: Path) -> None:
    with several(spark, tmp_path) as made:
        done: Several = made(corrections={"deletes": "ignore"}).runs(clicks="a@5 b@6=2", calls="a@7")
        done.comes(calls="b@9").becomes("clicks", 2, u="c").comes(calls="c@12")
        read = [report.manifest.consumed for report in done.run()]
        came = [{name for name, of in one.items() if not of.is_passed} for one in read]
        assert came == [{"calls"}, {"clicks"}], "what comes last comes with what came before it"
        done.assert_sessions("u | start | end | count \n a | 5 | 7 | 2 \n b | 9 | 9 | 1 \n c | 6 | 12 | 2")
        done.assert_clean()


def test_a_source_that_no_run_has_begun_may_be_made_again(spark: SparkSession, tmp_path: Path) -> None:
    with several(spark, tmp_path) as made:
        done: Several = made(corrections={"deletes": "ignore"})
        done.sources["calls"] = {**done.sources["calls"], "start": {"version": 5}}
        done.config = done.configured()
        done.runs(clicks="a@5")
        del THERE[str(done.folder / "calls")]
        done.optimized("calls")
        done.backfill(0, 10)
        done.assert_sessions("u | start | end | count \n a | 5 | 5 | 1")
        done.assert_clean()


def test_a_restore_is_not_followed_to_a_version_of_which_nobody_knows_what_was_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table = Table.__new__(Table)
    monkeypatch.setattr(Table, "field", "rejected_events", raising=False)
    monkeypatch.setattr(Table, "location", "/there", raising=False)
    monkeypatch.setattr(Table, "has_fence", lambda *_: False)
    acts = {5: 8, 7: 9, 9: 10}

    def oldest(first: int) -> None:
        monkeypatch.setattr(Table, "entry", lambda _, version: version if version >= first else None)
        known = [(version, number) for version, number in sorted(acts.items(), reverse=True) if version >= first]
        monkeypatch.setattr(Table, "_acts", lambda *_: iter(known))

    oldest(0)
    assert table.version_before(Commit("a", 1000), 5) == 4
    oldest(6)
    with pytest.raises(TableError, match="cannot follow the RESTORE"):
        table.version_before(Commit("a", 1000), 5)
    assert table.version_before(Commit("a", 1000), 8) == 6, "the number says that it is the next one"


def test_an_aggregate_whose_values_may_fail_is_taken_up_where_older_files_are_gone(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path).runs("a@0=1").runs("a@5=2")
    done.source("OPTIMIZE {}")
    with having(spark, AT_ONCE):
        done.source("VACUUM {} RETAIN 0 HOURS")
    inverse = {"name": "inverse", "fn": "sum", "of": "12 div (n - 5)"}
    done.change(aggregates=[*TOTAL, inverse]).runs("b@20=5 a@9=3 a@8=9")
    done.assert_rejected("u | reason \n b | expression_failed")
    assert done.row("a")["inverse"] == -3 - 4 - 6 + 3
    done.assert_clean()


def test_an_output_that_a_rebuild_made_anew_is_whole_however_it_ended(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path).runs("a@0")
    done.change(outputs={"event_sessions": str(tmp_path / "event_sessions")}).init().runs("a@5")
    with killed_at(Table, "change_setting"):
        done.rebuild()
    assert not done.tables.event_outputs["event_sessions"].is_whole
    done.runs("a@7").assert_clean()
    assert done.tables.event_outputs["event_sessions"].is_whole


@pytest.mark.parametrize("far", [1_767_225_600_000, -90_000_000_000])
def test_an_event_beyond_the_years_of_python_is_named_where_it_must_not_be(
    spark: SparkSession, tmp_path: Path, far: int
) -> None:
    source = {"event_time": "timestamp_seconds(n)"}
    fails: Any = {"invalid_events": "fail", "late_events": "fail"}
    schema = "u STRING, at TIMESTAMP, n BIGINT"
    done = Play(spark, tmp_path, schema, source=source, **fails).runs("tick@0=1767225600")
    with pytest.raises(RunFailed, match=rf"the first: (in_the_future|late): .*{far}"):
        done.runs(f"a@5={far}")


def test_a_note_on_what_failed_passes_values_that_python_cannot_hold(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    until = {"name": "until", "fn": "max", "of": "timestamp_seconds(n * 1000L)"}
    share = {"name": "share", "fn": "sum", "of": "1 div (n - 260000000)"}
    done = Play(spark, tmp_path, aggregates=[until, share]).add("a@5=260000000").init()
    show(done.kind, done.run())
    assert "aggregates.share.of" in capsys.readouterr().err


def test_a_key_of_which_several_texts_are_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    key = [{"name": "who", "expr": "collate(u, 'UTF8_LCASE')"}]
    with pytest.raises(SourceMismatch, match=r"equal only where they are the same.*lower\("):
        Play(spark, tmp_path, source={"key": key}).runs("Ann@5 ann@6")


@pytest.fixture
def slides(spark: SparkSession, tmp_path: Path) -> Callable[..., Slides]:
    return lambda **sections: Slides(spark, tmp_path, **sections)


def test_windows_are_forgotten_by_whole_units_of_time(slides: Callable[..., Slides]) -> None:
    done = slides(sliding={"time_unit": "1h", "time_difference": "24h"}).runs("a@3000 a@9900 a@12000")
    done.runs("a@9825")  # late, and at 9780 by whole hours
    assert forget(done.kind, 2190 * MINUTE, done.now, done.said.append) > 0
    manifest = done.kind.home.position().manifest
    assert manifest is not None
    assert manifest.forgotten == at(9780), "and not at 9810"
    done.readmit(0, 20_000)
    rows = done.told("u | window_start | window_end | count")
    done.assert_clean()
    done.rebuild()
    assert done.told("u | window_start | window_end | count") == rows
    done.assert_rejected("u | reason")


def test_a_plan_of_windows_tells_all_rows_where_a_key_has_become_of_another_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Slides(spark, tmp_path).runs("7@5 8@6")
    rows = spark.read.format("delta").load(str(tmp_path / "events")).withColumn("u", F.col("u").cast("int"))
    rows.write.format("delta").option(CHANGE_FEED, "true").save(str(tmp_path / "others"))
    done.change(source={"table": str(tmp_path / "others")})
    found = plan(kind_of(done.spark, done.config, windows=True), done.said.append, now=done.now)
    assert (found.total("goes"), found.total("comes"), found.total("changes"), found.stays) == (2, 2, 0, 0)


def test_events_that_are_rejected_for_windows_are_forgotten_too(slides: Callable[..., Slides]) -> None:
    done = slides().runs("a@500").runs("a@5")
    asked: Any = Asked(keep={"rejected_window_events": 90 * DAY}, now=done.now + 10_000 * DAY)
    told = {one.table: one.forgotten_rows for one in maintain(done.spark, done.config, asked)}
    assert told["rejected_window_events"] == 1
    rows = quick_tables.read(done.tables.rejected_window_events.table.location, (C.REASON, C.EVENT))
    assert rows == [("late", None)]
    done.assert_clean()


def test_an_aggregate_goes_with_its_column(spark: SparkSession, tmp_path: Path) -> None:
    pages = {"name": "pages", "fn": "count_distinct", "of": "page"}
    with several(spark, tmp_path) as made:
        done: Several = made(aggregates=[*TOTAL, pages]).runs(clicks="a@5=2", calls="b@7")
        done.reshaped("clicks", "u STRING, at TIMESTAMP, n INT").sections["aggregates"] = TOTAL
        done.config = done.configured()
        done.runs(clicks="a@6=3")
        done.assert_sessions("u | start | end | count | total \n a | 5 | 6 | 2 | 5 \n b | 7 | 7 | 1 | 1")
