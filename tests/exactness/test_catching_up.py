"""What one command reads, and when it is over: sources may be written to faster than it reads them."""

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from sessionizer.jobs.commands.look_back import LookBack, backfill
from sessionizer.jobs.run.driver import increments
from sessionizer.jobs.run.phases import RunOptions, RunReport
from sessionizer.lib.durations import HOUR, MINUTE
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables.delta import Superseded
from sessionizer.tables.rejected_events import RejectedEvents
from tests.exactness.play import Play, at

pytestmark = pytest.mark.broad

Plays = Callable[..., Play]


def while_written_to(done: Play, events: list[str], override: WatermarkOverride | None = None) -> list[RunReport]:
    """What a run reads while each of its increments takes as long as it takes to write the next of these events."""
    left = iter(events)

    def meanwhile(_: RunReport) -> None:
        if (event := next(left, None)) is not None:
            done.add(event)

    asked = RunOptions(now=done.now) if override is None else RunOptions(now=done.now, override=override)
    return increments(done.kind, asked, done=meanwhile)


def test_a_run_ends_with_what_was_there_when_it_began(play: Plays) -> None:
    done = play("a@0").add("a@5").add("a@10").change(limits={"max_versions_per_run": 1})
    reports = while_written_to(done, ["a@15", "a@20", "a@25", "a@30"])
    assert [report.manifest.events["events_read"] for report in reports] == [1, 1]
    done.assert_sessions("u | start | end | count \n a | 0 | 10 | 3")
    done.run()
    done.assert_sessions("u | start | end | count \n a | 0 | 20 | 5")
    done.assert_clean()


def test_a_flush_is_made_behind_what_was_there(play: Plays) -> None:
    done = play("a@0").add("a@5").add("a@10").change(limits={"max_versions_per_run": 1})
    while_written_to(done, ["a@15", "b@100", "b@101"], WatermarkOverride(flush=True))
    done.assert_sessions("u | start | end | count | why \n a | 0 | 10 | 3 | flush")
    done.run()
    done.assert_rejected("u | event_time | reason \n a | 15 | late")
    done.assert_clean()


def test_a_source_that_is_written_to_is_not_quiet(play: Plays) -> None:
    quiet = {"allowed_lateness": "0s", "watermark": {"idle_after": "1m"}}
    done = play("a@0", time=quiet).add("a@5").at(1000)
    while_written_to(done, ["a@10"])
    done.at(1010).run()
    done.assert_sessions("u | start | end | count | final \n a | 0 | 10 | 3 | no")


@pytest.mark.parametrize("leaves", ["nothing", "the rest"])
def test_no_clock_goes_back_where_a_younger_command_overtakes(play: Plays, leaves: str) -> None:
    idle = {"idle_timeout": {"after": "90m", "clock": "processing_time"}, "allowed_lateness": "10h"}
    done = play("a@0", time=idle, limits={"max_versions_per_run": 1}).add("b@1").add("b@2").add("b@3")
    clock, younger = [done.now + HOUR], RunOptions(now=done.now + 2 * HOUR, once=leaves == "the rest")

    def meanwhile(_: RunReport) -> None:
        if len(clock) == 1:
            clock.append(done.now + 2 * HOUR + 1)
            increments(done.kind, younger)

    with patch("sessionizer.jobs.run.phases.wall_clock", lambda: clock[-1]):
        reports = increments(done.kind, RunOptions(), done=meanwhile)
    done.assert_sessions("u | start | end | count | why \n a | 0 | 0 | 1 | idle \n b | 1 | 3 | 3 | -")
    assert [r.manifest.now for r in reports] == ([clock[0]] if leaves == "nothing" else [clock[0], younger.now])
    done.assert_clean()


@pytest.mark.parametrize("beside", ["a run", "a backfill"])
def test_no_watermark_passes_what_came_while_another_command_went_on(play: Plays, beside: str) -> None:
    done = play("a@0", time={"allowed_lateness": "0s", "watermark": {"idle_after": "5m"}}).add("b@10")
    clock = [done.now + HOUR]

    def meanwhile(_: RunReport) -> None:
        if len(clock) == 1:
            clock.append(done.now + 2 * HOUR)
            if beside == "a run":
                increments(done.add("b@20").kind, RunOptions(now=done.now + HOUR + 10 * MINUTE))
            else:
                backfill(done.kind, LookBack(at(0), at(60), now=done.now + HOUR + 10 * MINUTE))
            done.add("c@30")

    with patch("sessionizer.jobs.run.phases.wall_clock", lambda: clock[-1]):
        assert len(increments(done.kind, RunOptions(), done=meanwhile)) == 1
    done.at(130).run()
    done.assert_rejected("u | event_time | reason")
    done.assert_sessions(
        "u | start | end | count \n a | 0 | 0 | 1 \n b | 10 | 20 | 2 \n c | 30 | 30 | 1"
        if beside == "a run"
        else "u | start | end | count \n a | 0 | 0 | 1 \n b | 10 | 10 | 1 \n c | 30 | 30 | 1"
    )


def test_a_run_that_is_overtaken_behind_its_commit_has_been_and_flushes_once(play: Plays) -> None:
    done, write, came = play("tick@100").add("a@5"), RejectedEvents.write, []

    def overtaken(*told: Any) -> None:
        came.append(told)
        if len(came) == 1:
            done.add("b@120")
            raise Superseded("upkeep came first")
        write(*told)

    with patch.object(RejectedEvents, "write", overtaken):
        reports = done.run(override=WatermarkOverride(flush=True))
    assert [(report.manifest.run_seq, report.manifest.events["events_read"]) for report in reports] == [(2, 1)]
    done.run()
    done.assert_rejected("u | event_time | reason \n a | 5 | late")
    done.assert_sessions("u | start | final | why \n tick | 100 | yes | flush \n b | 120 | no | -")
    done.assert_clean()


def test_who_is_silent_ends_however_often_others_write(play: Plays) -> None:
    ends = {"watermark": {"per": "key"}, "idle_timeout": {"after": "30m", "clock": "processing_time"}}
    done = play("z@0 a@1", time=ends, limits={"max_versions_per_run": 1})
    done.now += HOUR
    while_written_to(done.add("a@5").add("a@10"), ["a@15", "a@20", "a@25"])
    done.assert_sessions("u | start | end | final \n a | 1 | 10 | no \n z | 0 | 0 | yes")
