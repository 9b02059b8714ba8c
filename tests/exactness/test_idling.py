"""Sessions idle by the last arrival of their key, however they were made."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.exactness.play import Play

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
OF_KEYS = {"watermark": {"per": "key"}, "idle_timeout": {"after": "30m", "clock": "processing_time"}}


def test_a_late_event_keeps_the_other_sessions_of_its_key_from_idling(play: Plays) -> None:
    done = play("a@0 a@100", now=100, time=OF_KEYS, late_events="amend")
    done.at(120).runs("a@5")
    done.at(140).run()
    # The key's last event came at minute 120.
    done.assert_sessions(
        """
        u | start | end | count | final
        a | 0     | 5   | 2     | yes
        a | 100   | 100 | 1     | no
        """
    )
    done.at(151).run()
    done.assert_sessions("u | start | final | why \n a | 0 | yes | gap \n a | 100 | yes | idle")


@pytest.mark.parametrize("has_traces", [False, True])
@pytest.mark.parametrize("look_back", [lambda done: done.readmit(0, 50), lambda done: done.backfill(0, 50)])
def test_so_does_one_that_a_look_back_takes_in(
    play: Plays, tmp_path: Path, look_back: Callable[[Play], Play], has_traces: bool
) -> None:
    names = ("event_sessions", "session_updates") if has_traces else ()
    done = play("a@0 a@100 b@100", now=100, time=OF_KEYS, outputs={name: str(tmp_path / name) for name in names})
    look_back(done.at(120).runs("a@5").at(125))
    done.at(135).run()
    told = "u | start | end | count | final \n a | 0 | 5 | 2 | yes \n a | 100 | 100 | 1 | no \n b | 100 | 100 | 1 | yes"
    done.assert_sessions(told)
    done.at(136).runs("a@105")
    done.assert_sessions("u | end | count | final \n a | 5 | 2 | yes \n a | 105 | 2 | no \n b | 100 | 1 | yes")
    done.assert_clean()


def test_a_correction_of_a_key_that_ended_makes_it_no_idler(play: Plays) -> None:
    done = play("a@0 a@1=2 a@100", now=100, time=OF_KEYS)
    done.assert_sessions("u | start | count | why \n a | 0 | 2 | gap \n a | 100 | 1 | -")
    done.at(131).run()
    done.at(132).source("DELETE FROM {} WHERE n = 2").run()
    done.assert_sessions("u | start | count | why \n a | 0 | 1 | gap \n a | 100 | 1 | idle")


def test_what_the_silence_of_its_key_has_ended_is_told_so_by_a_look_back(play: Plays) -> None:
    done = play("a@0=1 a@100=2", now=100, time=OF_KEYS)
    done.at(131).run()
    wanted = "u | start | why | final \n a | 0 | gap | yes \n a | 100 | idle | yes"
    done.assert_sessions(wanted)
    done.at(200).backfill(0, 120).assert_sessions(wanted)
    done.runs("a@190").backfill(0, 120).assert_sessions(f"{wanted} \n a | 190 | - | no")
    done.assert_clean()


def test_a_late_event_wakes_its_own_session_of_a_chain_alone(play: Plays) -> None:
    chains = {"gap": "5m", "max_duration": "10m"}
    idle = {"idle_timeout": {"after": "30m", "clock": "processing_time"}, "allowed_lateness": "1d"}
    done = play("a@0 a@4 a@8 a@12 a@16 a@20 a@24 a@28", now=28, session=chains, time=idle)
    done.at(68).run()
    last = "u | start | end | count | status | why \n a | 24 | 28 | 2 | closed | idle"
    done.assert_rows([row for row in done.told(last.partition("\n")[0]) if row["start"] == "24"], last)
    done.at(69).runs("a@1")
    done.assert_rows([row for row in done.told(last.partition("\n")[0]) if row["start"] == "24"], last)


def test_a_key_does_not_end_while_its_next_event_is_left_unread(play: Plays) -> None:
    done = play("a@0", now=0, time=OF_KEYS, limits={"max_versions_per_run": 1})
    done.at(40).add("b@39").add("a@5")
    done.run(to_version=1)  # and once more, as it is no limit
    done.assert_sessions("u | start | final \n a | 0 | no \n b | 39 | no")
    done.run()
    done.assert_sessions("u | start | count | final \n a | 0 | 2 | no \n b | 39 | 1 | no")
    done.at(71).run()
    done.assert_sessions("u | start | count | why \n a | 0 | 2 | idle \n b | 39 | 1 | idle")
    done.assert_clean()


def test_a_cut_off_run_that_left_events_unread_is_finished_as_it_began(play: Plays) -> None:
    done = play("a@0", now=0, time=OF_KEYS, limits={"max_versions_per_run": 1})
    done.at(40).add("b@39").add("a@5")
    done.run_cut_off()
    done.at(41).run()
    done.assert_sessions("u | start | count | final \n a | 0 | 2 | no \n b | 39 | 1 | no")
    done.assert_clean()


def test_late_events_apart_keep_no_session_of_their_key_from_idling(play: Plays) -> None:
    done = play("a@100", now=100, time=OF_KEYS, late_events="separate")
    done.at(135).runs("a@5")
    done.assert_sessions("u | start | final | late | why \n a | 5 | yes | yes | gap \n a | 100 | yes | no | idle")
    done.assert_clean()


def test_what_comes_before_and_behind_a_session_does_not_wake_it(play: Plays) -> None:
    idle = {"idle_timeout": {"after": "30m", "clock": "processing_time"}, "allowed_lateness": "1d"}
    waiting = idle | {"watermark": {"delay": "1h"}}
    done = play("a@5 a@6", now=10, session={"max_duration": "2m"}, time=waiting)
    done.at(50).runs("a@3 a@9")
    done.assert_sessions(
        """
        u | start | end | status | why
        a | 3     | 5   | open   | -
        a | 6     | 6   | closed | max_duration
        a | 9     | 9   | open   | -
        """
    )
    done.assert_clean()


@pytest.mark.parametrize(
    ("time", "told"),
    [
        ({"idle_timeout": {"after": "3m", "clock": "event_time"}}, "a | 95 | closed | idle \n tick | 100 | open | -"),
        ({"allowed_lateness": "0s"}, "a | 85 | final | gap \n tick | 100 | open | -"),
    ],
    ids=["idle_timeout", "allowed_lateness"],
)
def test_times_that_have_changed_end_sessions_though_nothing_comes(
    play: Plays, time: dict[str, Any], told: str
) -> None:
    last = 95 if "idle_timeout" in time else 85
    done = play(f"tick@100 a@{last}", time={"allowed_lateness": "1h"})
    done.change(time={"allowed_lateness": "1h"} | time).run()
    done.assert_sessions(f"u | start | status | why \n {told}")
    assert done.run() == []
    done.assert_clean()
