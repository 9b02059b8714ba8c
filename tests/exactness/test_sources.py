"""Several sources in one session: their events are one bag, each has a position of its own, the slowest holds time."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.verify import Asked
from sessionizer.jobs.commands.verify_windows import verify_windows
from sessionizer.jobs.run import phases, side_tables
from sessionizer.jobs.run.driver import run
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib.config import Config
from sessionizer.lib.durations import HOUR
from sessionizer.lib.errors import ConfigError, SourceError, SourceMismatch, UsageError
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables.increments import NOTHING, Increment, Increments
from tests.exactness.play import at, minute
from tests.exactness.several import AGGREGATES, CALLS, CLICKS, Several, several
from tests.kills import killed_at

IDLING = {"idle_timeout": {"after": "20m", "clock": "processing_time"}}
Plays = Callable[..., Several]


@pytest.fixture
def play(spark: SparkSession, tmp_path: Path) -> Iterator[Plays]:
    with several(spark, tmp_path) as made:
        yield made


def test_events_of_two_sources_make_one_session(play: Plays) -> None:
    done = play().runs(clicks="a@0=1 a@16=2 b@50=4", calls="a@8=3 c@60=9 -@61=1")
    done.assert_sessions(
        """
        u | start | end | count | total | clicks | first_of | status
        a | 0     | 16  | 3     | 6     | 2      | clicks   | final
        b | 50    | 50  | 1     | 4     | 1      | clicks   | open
        c | 60    | 60  | 1     | 9     | 0      | calls    | open
        """
    )
    done.assert_rejected("u | source | reason | event_time \n - | calls | null_key | 61")
    done.runs(calls="b@58=5 c@70=1")
    done.assert_sessions(
        """
        u | start | end | count | total | clicks | first_of | status
        a | 0     | 16  | 3     | 6     | 2      | clicks   | final
        b | 50    | 58  | 2     | 9     | 1      | clicks   | open
        c | 60    | 70  | 2     | 10    | 0      | calls    | open
        """
    )
    read = {name: (of.from_version, of.to_version) for name, of in done.position().sources.items()}
    assert read == {"calls": (1, 1), "clicks": (1, 0)}
    done.assert_clean()


def test_a_source_that_lags_holds_the_watermark_until_it_is_idle(play: Plays) -> None:
    time = {"allowed_lateness": "0s", "watermark": {"idle_after": "1h"}}
    done = play(time=time).at(20).runs(clicks="a@0")
    assert done.position().watermark_after is None  # calls may still bring anything
    done.at(81).runs(clicks="b@70")  # an hour after the first run nobody waits for them any more
    assert done.position().watermark_after == at(70)
    done.at(90).runs(calls="c@40 b@75")
    done.assert_rejected("u | source | reason | event_time \n c | calls | late | 40")
    done.at(100).runs(clicks="d@95")
    assert done.position().watermark_after == at(75)  # calls have come back, and are behind
    done.assert_sessions("u | start | end | status \n a | 0 | 0 | final \n b | 70 | 75 | open \n d | 95 | 95 | open")
    done.at(151.5).backfill(0, 10)  # which moves no watermark, whatever its clock
    done.at(152).run()  # an hour after the last of them, and less after the last click
    assert done.position().watermark_after == at(95)
    done.assert_sessions("u | start | end | status \n a | 0 | 0 | final \n b | 70 | 75 | final \n d | 95 | 95 | open")
    assert done.run() == []


def test_an_idle_source_is_waited_for_no_longer_though_no_session_is_live(play: Plays) -> None:
    time = {"allowed_lateness": "0s", "watermark": {"idle_after": "1h"}}
    done = play(time=time).at(100).runs(clicks="a@110=1", calls="b@50=2")
    done.goes("clicks", 1).goes("calls", 2).at(101).run()
    done.at(130).comes(clicks="c@120=3").run()
    done.goes("clicks", 3).at(131).run()
    assert (done.position().watermark_after, done.position().live_sessions) == (at(50), 0)
    done.at(165).run()
    assert done.position().watermark_after == at(120)
    assert done.at(166).run() == []


def test_an_idle_source_is_waited_for_no_longer_where_the_clock_alone_would_change_no_row(play: Plays) -> None:
    time = {"allowed_lateness": "0s", "watermark": {"idle_after": "10m", "delay": "30m"}}
    done = play(time=time, session={"gap": "60m"}, events={"dedupe": {"by": ["u"], "within": "1h"}}).at(101)
    done.runs(clicks="a@90=1 a@100=2", calls="a@50=3")
    done.goes("clicks", 1).at(109).run()  # its copy counts as read by this run
    done.at(112).run()
    assert done.position().watermark_after == at(70)  # that of clicks; the clock waits for ten minutes behind the copy
    for now in (112, 120):  # by then the clock would be at 90, which ends nothing
        assert done.at(now).run() == []
    done.at(121).runs(calls="c@60=4")
    done.assert_rejected("u | source | reason | event_time \n c | calls | late | 60")
    done.assert_clean()


def test_a_source_is_not_idle_for_want_of_what_comes_while_a_run_reads_others(play: Plays) -> None:
    time = {"allowed_lateness": "0s", "watermark": {"idle_after": "1h"}}
    done = play(time=time, limits={"max_versions_per_run": 1}).at(60).runs(clicks="a@40", calls="b@30")
    done.comes(calls="b@50").comes(calls="b@90")
    hours = count(at(100), HOUR)

    def meanwhile(_: RunReport) -> None:
        if len(done.there["clicks"]) == 1:
            done.comes(clicks="a@100")

    with patch.object(phases, "wall_clock", lambda: next(hours)):
        reports = run(done.spark, done.config, RunOptions(), done.said.append, meanwhile)
    assert [report.manifest.now for report in reports] == [at(100)] * 2
    assert done.position().watermark_after == at(40)
    done.at(110).run()
    done.assert_rejected("u")
    done.assert_clean()


def test_what_is_left_to_read_lies_behind_what_has_been_read() -> None:
    passed = {name: Increment(12, 11, mapping=Increment(3, 2)) for name in ("calls", "moved", "grown")}
    ends = {
        "calls": Increment(12, 11, mapping=Increment(3, 2)),
        "moved": Increment(12, 11, mapping=Increment(4, 3)),
        "grown": Increment(13, 12, mapping=Increment(3, 2)),
        "waits": Increment(6, 5),
    }
    assert Increments(passed | {"waits": NOTHING}, ["told"]).awaiting(Increments(ends)).more == {
        "told",
        "moved",
        "grown",
    }


@pytest.mark.broad
@pytest.mark.parametrize("idle", [{}, {"idle_after": "1h"}])
def test_a_shorter_delay_moves_no_watermark_before_something_is_read(play: Plays, idle: dict[str, str]) -> None:
    times = {"allowed_lateness": "0s", "watermark": {"delay": "30m", **idle}}
    done = play(time=times).runs(clicks="a@0 a@60", calls="b@60")
    done.sections["time"] = {"allowed_lateness": "0s", "watermark": idle}
    done.config = done.configured()
    assert done.run() == []


@pytest.mark.broad
@pytest.mark.parametrize(
    ("idling", "asked"),
    [({}, WatermarkOverride(advance_to=at(20))), (IDLING, WatermarkOverride()), (IDLING, WatermarkOverride(at(35)))],
)
def test_a_shorter_delay_moves_none_where_a_run_reads_nothing(
    play: Plays, idling: dict[str, Any], asked: WatermarkOverride
) -> None:
    done = play(time={"allowed_lateness": "0s", "watermark": {"delay": "30m"}, **idling}).at(61)
    done.runs(clicks="a@0 a@60", calls="b@60")
    done.sections["time"] = {"allowed_lateness": "0s", **idling}
    done.config = done.configured()
    done.at(62).run(override=asked)
    done.at(90).run()
    assert done.position().watermark_after == (asked.advance_to if asked.advance_to == at(35) else at(30))
    done.at(91).runs(clicks="c@40", calls="c@65")
    assert done.position().watermark_after == at(60)  # by the shorter one, as events have come
    done.assert_rejected("u")
    done.assert_clean()


@pytest.mark.broad
def test_rows_of_two_sources_are_never_the_same_row(play: Plays) -> None:
    """An event of each at one time of one key, of one content: one is deleted, one of the other is an original."""
    events = {"dedupe": {"by": ["n"], "within": "1h"}}
    done = play(events=events).runs(clicks="a@0=1 a@5=2 a@6=2", calls="a@5=2 b@100=7")
    done.assert_rejected("u | source | reason | event_time \n a | clicks | duplicate | 6")
    done.goes("calls", 2).becomes("clicks", 1, at=minute(3)).run()
    done.assert_sessions(
        "u | start | end | count | clicks | total \n a | 3 | 5 | 2 | 2 | 3 \n b | 100 | 100 | 1 | 0 | 7"
    )
    done.assert_clean()


@pytest.mark.broad
def test_a_run_of_two_sources_that_was_cut_off_is_finished(play: Plays) -> None:
    done = play(outputs={"event_sessions": "/tables/traces"}).runs(clicks="a@0 tick@90", calls="tick@80")
    done.comes(clicks="a@5=3 tick@101", calls="b@20=4 tick@100").goes("clicks", 3).comes(calls="c@99")
    with killed_at(side_tables, "write"):
        done.run()
    before = done.position()
    assert done.run() == []
    assert done.position() == before
    done.assert_rejected("u | source | reason | event_time \n b | calls | late | 20")
    done.assert_sessions(
        """
        u    | source | event_time
        a    | clicks | 0
        c    | calls  | 99
        tick | calls  | 80
        tick | calls  | 100
        tick | clicks | 90
        tick | clicks | 101
        """,
        "/tables/traces",
    )
    done.assert_clean()
    done.readmit()
    done.assert_rejected("u")
    done.backfill(0, 200)
    done.assert_clean()


@pytest.mark.broad
def test_a_source_more_or_less_asks_for_a_rebuild(play: Plays) -> None:
    done = play().runs(clicks="a@0", calls="a@8 tick@100")
    done.config = done.configured("clicks")
    with pytest.raises(ConfigError, match=r"the rule has changed .*sources"):
        done.run()
    done.rebuild()
    done.assert_sessions("u | start | end | count \n a | 0 | 0 | 1")
    assert list(done.position().sources) == ["clicks"]
    done.assert_clean()
    done.config = done.configured()
    done.rebuild()
    done.assert_sessions("u | start | end | count \n a | 0 | 8 | 2 \n tick | 100 | 100 | 1")
    done.runs(calls="a@120")
    done.assert_clean()


@pytest.mark.parametrize(
    ("clicks", "calls", "says"),
    [
        ({"schema": "u STRING, at TIMESTAMP, n INT, source STRING"}, {}, "none must have a column source"),
        ({"schema": "u STRING, at TIMESTAMP, n BIGINT"}, {}, "must have one type in all"),
        ({}, {"key": [{"name": "u", "expr": "length(caller)"}]}, "must have one type in all"),
        ({}, {"event_time": "cast(begun AS STRING)"}, "event_time must have one type in all sources"),
        ({}, {"key": [{"name": "n", "expr": "caller"}]}, "must give the same key columns"),
    ],
)
def test_sources_that_do_not_go_together_are_refused(play: Plays, clicks: dict, calls: dict, says: str) -> None:
    with pytest.raises((SourceMismatch, ConfigError, ValueError), match=says):
        play({"clicks": CLICKS | clicks, "calls": CALLS | calls}).runs()


def test_what_is_of_one_source_alone_is_refused_or_says_which(play: Plays) -> None:
    done = play().comes(clicks="a@0", calls="a@8").init()
    with pytest.raises(UsageError, match="--to-version is of one source"):
        done.run(to_version=0)
    done.table(done.folder / "calls").go_back(0)
    done.sources["calls"] = CALLS | {"where": "1 / (n - n) > 0 OR nothing"}
    done.config = done.configured()
    with pytest.raises(SourceError, match=r"source\.where does not fit"):
        done.run()


def test_sliding_windows_are_of_all_sources(play: Plays) -> None:
    sliding = {
        "table": "/tables/windows",
        "time_difference": "10m",
        "grace": "1h",
        "time_unit": "1m",
        "aggregates": [{"name": "clicks", "fn": "count", "source": "clicks"}],
    }
    done = play(sliding=sliding).comes(clicks="a@0=1", calls="a@5=2 b@60=3").init()
    done.slide()
    done.comes(calls="b@62=4", clicks="b@200=5").goes("calls", 3)
    done.slide()
    done.assert_sessions(
        """
        u | window_start | window_end | event_count | clicks
        a | -10          | 0          | 1           | 1
        a | -5           | 5          | 2           | 1
        a | 1            | 11         | 1           | 0
        b | 52           | 62         | 1           | 0
        b | 190          | 200        | 1           | 1
        """,
        "/tables/windows",
    )
    verdict = verify_windows(done.spark, done.config, Asked())
    assert verdict.clean, verdict


BY_HAND = {
    "schema": "u STRING, at TIMESTAMP, n INT, page STRING, source STRING",
    "key": ["u"],
    "event_time": "at",
}
COMPARED = "session_id | u | start | end | expires_at | count | total | clicks | numbers"


@pytest.mark.broad
@pytest.mark.parametrize("seed", range(3))
def test_any_history_of_two_sources_makes_the_sessions_of_their_union(play: Plays, seed: int) -> None:
    """As by one table with the rows of both: however they are split between runs, and whatever is corrected."""
    chance = Random(seed)
    both = [*AGGREGATES[:2], {"name": "numbers", "fn": "list", "of": "n"}]
    kafka = {"lateness": "session", "revive": True, "allowed_lateness": "5m"}
    done = play(late_events="amend", aggregates=both, time=kafka if seed % 2 else {"allowed_lateness": "0s"}).runs()
    n, sources = 0, ("clicks", "calls")
    for _ in range(5):
        for name in chance.sample(sources, chance.randint(1, 2)):
            events = []
            for _ in range(chance.randint(1, 4)):
                n += 1
                events.append(f"{chance.choice('ab')}@{chance.randint(0, 90)}={n}")
            done.comes(**{name: " ".join(events)})
        victims = [row["n"] for row in done.there["calls"]]
        if victims and chance.random() < 0.6:
            n += 1
            done.goes("calls", chance.choice(victims))
        movers = [row["n"] for row in done.there["clicks"]]
        if movers and chance.random() < 0.6:
            done.becomes("clicks", chance.choice(movers), at=minute(chance.randint(0, 90)))
        done.run(once=chance.random() < 0.3)
    done.run()
    rows = [{**row, "source": "clicks"} for row in done.there["clicks"]]
    rows += [{"u": r["caller"], "at": r["begun"], "n": r["n"], "source": "calls"} for r in done.there["calls"]]
    counted = {"name": "clicks", "fn": "sum", "of": "CASE source WHEN 'clicks' THEN 1L ELSE 0L END"}
    whole = Several(done.spark, done.folder / "whole", {"union": BY_HAND}, aggregates=[counted])
    whole.config = Config.model_validate(
        {
            "source": {"table": str(whole.folder / "union"), "key": ["u"], "event_time": "at"},
            "sessions": {"table": str(whole.folder / "sessions")},
            "session": {"gap": "10m"},
            "aggregates": [both[0], counted, both[2]],
        }
    )
    whole.there["union"] = rows
    whole.now = done.now
    whole.runs(union="")
    assert done.told(COMPARED) == whole.told(COMPARED)
    done.assert_clean()


@pytest.mark.broad
def test_each_source_begins_where_its_start_says(play: Plays) -> None:
    done = play({"clicks": CLICKS, "calls": CALLS | {"start": "latest"}}).runs(clicks="a@0", calls="a@5=7")
    done.assert_sessions("u | start | end | count \n a | 0 | 0 | 1")
    done.assert_rejected("u | source | event_time | reason \n a | calls | 5 | before_start")
    done.runs(calls="a@8 tick@90", clicks="tick@91")
    wanted = "u | start | end | count | total \n a | 0 | 8 | 2 | 2 \n tick | 90 | 91 | 2 | 2"
    done.assert_sessions(wanted)
    done.assert_clean()
    done.rebuild()
    done.assert_sessions(wanted)
    done.assert_rejected("u | source | event_time | reason \n a | calls | 5 | before_start")


@pytest.mark.broad
def test_a_commit_that_changes_rows_comes_alone_among_all_sources(play: Plays) -> None:
    """Where deletes are ignored, what comes with one is judged by another policy."""
    done = play(corrections={"deletes": "ignore"}).runs(clicks="a@0=1 a@5=2", calls="b@0=3")
    reports = done.goes("clicks", 2).comes(calls="b@4=4").becomes("clicks", 1, at=minute(2)).run()
    read = [{name: of.to_version for name, of in report.manifest.sources.items()} for report in reports]
    assert read == [{"calls": 0, "clicks": 1}, {"calls": 1, "clicks": 1}, {"calls": 1, "clicks": 2}], "in their order"
    wanted = "u | start | end | count | total \n a | 2 | 5 | 2 | 3 \n b | 0 | 4 | 2 | 7"
    done.assert_sessions(wanted)
    done.assert_rejected("u | source | reason | kept \n a | clicks | ignored_delete | in")
    done.assert_clean()
    done.rebuild()
    done.assert_sessions(wanted)
    done.assert_clean()
