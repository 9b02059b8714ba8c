"""A rebuild of another source, of one that went back, or beside what others left."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.rebuild_plan import plan
from sessionizer.jobs.run import side_tables
from sessionizer.jobs.run.kinds import kind_of
from sessionizer.lib.config import Config
from sessionizer.lib.errors import (
    TableError,
    UsageError,
)
from sessionizer.tables.delta import CHANGE_FEED, Commit, Table
from sessionizer.tables.event_outputs import EventOutput
from tests.exactness.play import Play
from tests.exactness.several import CALLS, CLICKS, Several, several
from tests.exactness.slides import Slides
from tests.kills import killed_at
from tests.machine.memory import THERE, in_memory

Plays = Callable[..., Play]
OF_KEYS: dict[str, Any] = {
    "allowed_lateness": "0s",
    "watermark": {"per": "key"},
    "idle_timeout": {"after": "365d", "clock": "processing_time"},
}


@pytest.mark.broad
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


@pytest.mark.broad
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


@pytest.mark.broad
def test_a_rebuild_follows_one_by_another_key_that_was_cut_off(play: Plays) -> None:
    done = play("tick@100 | a@5", corrections="quarantine")
    done.change(source={"key": ["u", "n"]})
    with killed_at(side_tables, "write"):
        done.rebuild()
    done.change(source={"key": ["u"]}).rebuild()
    done.assert_sessions("u | start \n a | 5 \n tick | 100")
    done.assert_clean()


@pytest.mark.slow
def test_a_rebuild_of_another_source_begins_with_no_watermark_of_a_key(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path, time=OF_KEYS).runs("a@600 b@600")
    shutil.rmtree(done.config.source.table)
    done.add("a@5").rebuild().assert_sessions("u | start | status \n a | 5 | open")
    done.runs("a@100").assert_sessions("u | start | status \n a | 5 | final \n a | 100 | open")
    done.assert_rejected("u | reason")


@pytest.mark.slow
def test_a_rebuild_of_a_source_that_went_back_leaves_out_what_lies_before_its_start(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Play(spark, tmp_path, source={"start": {"version": 1}}).add("c@4").init().add("a@100").add("a@300")
    done.run()
    log = Path(done.config.source.table) / "_delta_log"
    for file in [*log.glob(f"{done.tables.events.table.version:020d}*"), *log.glob(".*.crc")]:
        file.unlink()
    done.spark.catalog.clearCache()
    jvm: Any = done.spark._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    done.rebuild().assert_sessions("u | start \n a | 100")
    done.assert_rejected("u | reason \n c | before_start")
    done.assert_clean()


@pytest.mark.broad
def test_a_commit_that_changes_rows_waits_for_what_has_waited_longer(spark: SparkSession, tmp_path: Path) -> None:
    with several(spark, tmp_path) as made:
        done: Several = made(corrections={"deletes": "ignore"}).runs(clicks="a@5 b@6=2", calls="a@7")
        done.comes(calls="b@9").becomes("clicks", 2, u="c").comes(calls="c@12")
        read = [report.manifest.consumed for report in done.run()]
        came = [{name for name, of in one.items() if not of.is_passed} for one in read]
        assert came == [{"calls"}, {"clicks"}], "what comes last comes with what came before it"
        done.assert_sessions("u | start | end | count \n a | 5 | 7 | 2 \n b | 9 | 9 | 1 \n c | 6 | 12 | 2")
        done.assert_clean()


@pytest.mark.broad
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


@pytest.mark.broad
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


@pytest.mark.broad
def test_an_output_that_a_rebuild_made_anew_is_whole_however_it_ended(spark: SparkSession, tmp_path: Path) -> None:
    done = Play(spark, tmp_path).runs("a@0")
    done.change(outputs={"event_sessions": str(tmp_path / "event_sessions")}).init().runs("a@5")
    with killed_at(EventOutput, "note_whole"):
        done.rebuild()
    assert not done.tables.event_outputs["event_sessions"].is_whole
    done.runs("a@7").assert_clean()
    assert done.tables.event_outputs["event_sessions"].is_whole


@pytest.mark.broad
def test_a_plan_of_windows_tells_all_rows_where_a_key_has_become_of_another_type(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = Slides(spark, tmp_path).runs("7@5 8@6")
    rows = spark.read.format("delta").load(str(tmp_path / "events")).withColumn("u", F.col("u").cast("int"))
    rows.write.format("delta").option(CHANGE_FEED, "true").save(str(tmp_path / "others"))
    done.change(source={"table": str(tmp_path / "others")})
    found = plan(kind_of(done.spark, done.config, windows=True), done.said.append, now=done.now)
    assert (found.total("goes"), found.total("comes"), found.total("changes"), found.stays) == (2, 2, 0, 0)
