"""A mapping table says whose a device is: what it tells anew moves events like an UPDATE of the source would."""

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.verify import Asked
from sessionizer.jobs.commands.verify_windows import verify_windows
from sessionizer.jobs.run import side_tables
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError, SourceError, SourceMismatch, UsageError
from tests.exactness.play import minute
from tests.exactness.stitching import Materialised, Stitched, stitching
from tests.kills import killed_at
from tests.warehouse import SOURCE

Plays = Callable[..., Stitched]


@pytest.fixture
def play(spark: SparkSession, tmp_path: Path) -> Iterator[Plays]:
    with stitching(spark, tmp_path) as made:
        yield made


def test_a_device_that_is_mapped_later_moves_its_sessions_to_the_user(play: Plays) -> None:
    done = play().plays("d1@0=1 d1@5=2 d2@9=4 d3@100=8")
    done.assert_sessions(
        """
        who | start | end | count | total | final
        d1  | 0     | 5   | 2     | 3     | yes
        d2  | 9     | 9   | 1     | 4     | yes
        d3  | 100   | 100 | 1     | 8     | no
        """
    )
    done.plays("d1=ann d2=ann d9=cat")
    wanted = """
        who | start | end | count | total | final
        ann | 0     | 9   | 3     | 7     | yes
        d3  | 100   | 100 | 1     | 8     | no
        """
    done.assert_sessions(wanted)
    stitch = done.position().source_stitch
    assert stitch is not None
    assert (stitch.from_version, stitch.to_version) == (1, 1)
    assert not done.run()
    done.assert_clean()
    done.rebuild()
    done.assert_sessions(wanted)


def test_a_mapping_that_changes_or_goes_moves_them_again(play: Plays) -> None:
    done = play().plays("d1=ann d2=ann d1@0=1 d2@5=2 d1@100=4")
    done.remaps("d2", "bob").run()
    done.assert_sessions(
        """
        who | start | end | count | total
        ann | 0     | 0   | 1     | 1
        ann | 100   | 100 | 1     | 4
        bob | 5     | 5   | 1     | 2
        """
    )
    done.unmaps("d1").run()
    done.assert_sessions(
        """
        who | start | end | count | total
        bob | 5     | 5   | 1     | 2
        d1  | 0     | 0   | 1     | 1
        d1  | 100   | 100 | 1     | 4
        """
    )
    done.assert_clean()


def test_of_several_rows_the_smallest_user_counts_and_rows_without_one_are_none(play: Plays) -> None:
    done = play().plays("d1=- d1=bob d1@0 d1@100")
    assert {row["who"] for row in done.told("who")} == {"bob"}
    done.plays("d1=ann d1=cat")
    assert {row["who"] for row in done.told("who")} == {"ann"}
    done.unmaps("d1", "ann").run()
    assert {row["who"] for row in done.told("who")} == {"bob"}
    done.plays("d1=bob")
    assert {row["who"] for row in done.told("who")} == {"bob"}
    assert done.position().events["events_read"] == 0
    done.assert_clean()


def test_events_that_come_with_the_mapping_are_of_the_user_at_once(play: Plays) -> None:
    """They are news, not corrections: one that is late is late."""
    done = play().plays("d1@0=1 x@100=1 | d1=ann d1@3=2 d1@101=4 d1@102=8")
    done.assert_sessions(
        """
        who | start | end | count | total
        ann | 0     | 0   | 1     | 1
        ann | 101   | 102 | 2     | 12
        x   | 100   | 100 | 1     | 1
        """
    )
    done.assert_rejected("who | reason | kept | event_time \n ann | late | out | 3")
    done.plays("d1=abe")  # the late one is told by its new user, and never late as an update
    done.assert_rejected("who | reason")
    assert {(row["who"], row["count"]) for row in done.told("who | count")} == {("abe", "2"), ("x", "1")}
    done.assert_clean()


@pytest.mark.broad
def test_what_is_deleted_goes_with_the_user_that_it_had(play: Plays) -> None:
    done = play().plays("d1=ann d1@0=1 d1@3=2 d2@5=4 x@100=9")
    done.remaps("d1", "bob").goes("events", 2).run()
    done.assert_sessions(
        """
        who | start | end | count | total
        bob | 0     | 0   | 1     | 1
        d2  | 5     | 5   | 1     | 4
        x   | 100   | 100 | 1     | 9
        """
    )
    done.becomes("events", 1, u="d2").maps("d2=bob").run()
    done.assert_sessions(
        """
        who | start | end | count | total
        bob | 0     | 5   | 2     | 5
        x   | 100   | 100 | 1     | 9
        """
    )
    done.goes("events", 4).unmaps("d2").run()
    assert {row["who"] for row in done.told("who")} == {"d2", "x"}
    done.assert_clean()


@pytest.mark.broad
def test_copies_are_told_by_user(play: Plays) -> None:
    """Two devices of one user have sent the same event; apart they are no copies of each other."""
    dedupe = {"source": {"dedupe": {"by": ["n"], "within": "1h"}}}
    done = play(**dedupe).plays("d1=ann d1@0=7 d2@3=7 x@100=1")
    assert {row["who"] for row in done.told("who")} == {"ann", "d2", "x"}
    done.plays("d2=ann")
    done.assert_rejected("who | reason | event_time \n ann | duplicate | 3")
    done.assert_clean()
    done.remaps("d1", "bob").run()
    done.assert_rejected("who | reason")
    assert {(row["who"], row["start"]) for row in done.told("who | start")} == {
        *(("ann", "3"), ("bob", "0"), ("x", "100"))
    }
    done.assert_clean()


@pytest.mark.broad
def test_a_mapping_in_quarantine_moves_nothing_until_it_is_readmitted(play: Plays) -> None:
    done = play(corrections="quarantine").plays("d1@0=1 d2@3=2 x@100=1 | d1=ann x@101=1 | d2=ann")
    before = """
        who | start | end | count | total
        d1  | 0     | 0   | 1     | 1
        d2  | 3     | 3   | 1     | 2
        x   | 100   | 101 | 2     | 2
        """
    done.assert_sessions(before)
    done.assert_rejected(
        """
        who | reason     | kept | source_version
        d1  | correction | in   | -2
        ann | correction | out  | -2
        d2  | correction | in   | -3
        ann | correction | out  | -3
        """
    )
    done.plays("d1@105=4")
    assert done.told("who | total")[0] == {"who": "ann", "total": "4"}
    done.assert_clean()
    done.maps("d2=abe")
    with pytest.raises(UsageError, match="version 3 of the mapping table takes rows away whose events are to stay"):
        done.rebuild()
    done.run()
    done.readmit()
    done.assert_rejected("who | reason")
    assert {(row["who"], row["total"]) for row in done.told("who | total")} == {
        *(("abe", "2"), ("ann", "1"), ("ann", "4"), ("x", "2"))
    }
    done.assert_clean()


def test_a_mapping_stops_the_run_where_corrections_fail(play: Plays) -> None:
    done = play(corrections="fail").plays("d1@0 | d2=bob d3@5")
    with pytest.raises(SourceError, match="versions 2 to 2 of the mapping table of the source update or delete rows"):
        done.plays("d1=ann")


@pytest.mark.broad
def test_late_events_are_taken_in_by_the_mapping_that_runs_have_read(play: Plays) -> None:
    done = play().plays("d1@0=1 x@100=1 | d1@4=2 | d1=ann")
    done.assert_rejected("who | reason")
    done.plays("d1@7=4 d2@8=8")
    done.maps("d2=ann")  # which no run has read
    done.backfill(0, 60)
    done.assert_sessions(
        """
        who | start | end | count | total
        ann | 0     | 7   | 3     | 7
        d2  | 8     | 8   | 1     | 8
        x   | 100   | 100 | 1     | 1
        """
    )
    done.assert_clean()
    done.run()
    done.assert_sessions("who | start | end | count \n ann | 0 | 8 | 4 \n x | 100 | 100 | 1")
    done.rebuild()
    done.assert_sessions("who | start | end | count \n ann | 0 | 8 | 4 \n x | 100 | 100 | 1")


@pytest.mark.broad
def test_readmitted_events_are_of_their_user(play: Plays) -> None:
    done = play().plays("d1=ann d1@0=1 x@100=1 | d1@4=2")
    done.readmit()
    done.assert_sessions("who | start | end | count | total \n ann | 0 | 4 | 2 | 3 \n x | 100 | 100 | 1 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_a_run_that_was_cut_off_is_finished_by_the_mapping_that_it_has_read(play: Plays, tmp_path: Path) -> None:
    traces = {"outputs": {"event_sessions": str(tmp_path / "event_sessions")}}
    done = play(**traces).plays("d1@0=1 d2@5=2 x@100=1").comes(events="d1@3=4").maps("d1=ann d2=ann")
    with killed_at(side_tables, "write"):
        done.run()
    done.maps("d1=abe d2=abe").backfill(200, 210)  # which finishes it first
    done.assert_sessions("who | start | end | count | total \n ann | 0 | 5 | 2 | 3 \n x | 100 | 100 | 1 | 1")
    done.assert_rejected("who | reason | event_time \n ann | late | 3")
    assert len(done.told("session_id", str(tmp_path / "event_sessions"))) == 3
    done.assert_clean()
    done.run()
    done.assert_sessions("who | start | end | count | total \n abe | 0 | 5 | 3 | 7 \n x | 100 | 100 | 1 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_a_restore_of_sessions_takes_the_position_in_the_mapping_back(play: Plays) -> None:
    done = play().plays("d1@0=1 d2@5=2 x@100=1 | d1=ann | d2=ann")
    table = done.table(done.config.sessions.table)
    table.go_back(table.version - 1)
    done.run()
    done.assert_sessions("who | start | end | count \n ann | 0 | 5 | 2 \n x | 100 | 100 | 1")
    done.assert_clean()


@pytest.mark.broad
def test_windows_are_of_the_users(play: Plays, tmp_path: Path) -> None:
    sliding: dict[str, Any] = {
        "table": str(tmp_path / "windows"),
        "time_difference": "10m",
        "grace": "0s",
        "aggregates": [],
    }
    done = play(sliding=sliding)
    done.comes(events="d1@0 d2@5 x@100")._changed("devices")
    done.init().slide()
    done.maps("d1=ann d2=ann").slide()
    assert {(row["who"], row["last_event_time"]) for row in done.told("who | last_event_time", sliding["table"])} == {
        *(("ann", "0"), ("ann", "5"), ("x", "100"))
    }
    assert verify_windows(done.spark, done.config, Asked()).clean


@pytest.mark.broad
def test_the_column_serves_wherever_one_of_the_source_does(play: Plays) -> None:
    done = play(aggregates=[{"name": "owners", "fn": "set", "of": "owner"}])
    stitch = {"table": str(done.folder / "devices"), "from": "u", "to": "user_id", "as": "owner"}
    source = {"key": ["owner"], "where": "owner <> 'bot'", "order_by": ["owner"], "stitch": stitch}
    done.change(source=source, time={"allowed_lateness": "0s", "watermark": {"per": ["owner"]}})
    done.plays("d1=ann d2=bot d1@0 d2@3 d3@5 d1@100")
    done.assert_sessions("owner | start | end | owners \n ann | 0 | 0 | ann \n ann | 100 | 100 | ann")
    done.remaps("d2", "ann").run()
    done.assert_sessions("owner | start | end | owners \n ann | 0 | 3 | ann \n ann | 100 | 100 | ann")
    done.assert_clean()


def refused(play: Stitched, **stitch: str) -> str:
    """What is said of a run with this stitch."""
    told = {"table": str(play.folder / "devices"), "from": "u", "to": "user_id", **stitch}
    play.config = play._config({"key": ["n"], "stitch": told})
    with pytest.raises(SourceMismatch) as said:
        play.init()
    return str(said.value)


def test_what_does_not_fit_is_refused(play: Plays) -> None:
    done = play()
    done.comes(events="d1@0").maps("d1=ann")
    assert "source.stitch gives a column a name that the source table has already: got 'n'" in refused(
        done, **{"as": "n"}
    )
    assert "source.stitch.to names a column that the mapping table does not have" in refused(done, to="user")
    assert "source.stitch.from names a column that the mapping table does not have" in refused(done, **{"from": "at"})
    assert "source.stitch.from names a column that the source table does not have" in refused(
        done, **{"from": "user_id"}
    )
    done.table(done.folder / "devices")._content.settings.pop(next(iter(SOURCE)))
    with pytest.raises(SourceError, match=r"mapping table must record its changes.*ALTER TABLE"):
        done.change().init()


def test_a_mapping_that_is_one_of_the_other_tables_is_refused(play: Plays, tmp_path: Path) -> None:
    for place in ("events", "sessions", "runs"):
        with pytest.raises(ValueError, match="must not be the same place"):
            play(source={"stitch": {"table": str(tmp_path / place), "from": "u", "to": "user_id"}})
    for name in ("__user", "_change_type", "user id"):
        with pytest.raises(ValueError, match="must"):
            play(source={"stitch": {"table": str(tmp_path / "devices"), "from": "u", "to": "user_id", "as": name}})


@pytest.mark.broad
def test_several_sources_have_a_mapping_each_or_share_one(play: Plays, tmp_path: Path) -> None:
    stitch = {"table": str(tmp_path / "devices"), "from": "u", "to": "user_id"}
    calls = {"name": "calls", "table": str(tmp_path / "calls"), "key": ["user_id"], "event_time": "at"}
    clicks = {"name": "clicks", "table": str(tmp_path / "events"), "key": ["user_id"], "event_time": "at"}
    done = play()
    done.sources["calls"] = {"schema": "user_id STRING, at TIMESTAMP, n INT"}
    done.there["calls"] = []
    done.config = Config.model_validate(
        {
            "sources": [{**clicks, "stitch": stitch}, calls],
            "sessions": {"table": str(tmp_path / "sessions")},
            "session": {"gap": "10m"},
            "time": {"allowed_lateness": "0s"},
        }
    )
    done.comes(events="d1@0 d1@30", calls="ann@5 ann@40").runs()
    done.assert_rejected("user_id | source | reason \n - | clicks | null_key \n - | clicks | null_key")
    done.plays("d1=ann")
    done.assert_rejected("user_id | source | reason")
    done.assert_sessions("user_id | start | end | count \n ann | 0 | 5 | 2 \n ann | 30 | 40 | 2")
    done.assert_clean()


@pytest.mark.broad
def test_another_stitch_is_another_rule(play: Plays) -> None:
    done = play().plays("d1=ann d1@0")
    table = str(done.folder / "devices")
    done.change(source={"stitch": {"table": table, "from": "u", "to": "user_id", "as": "owner"}, "key": ["owner"]})
    with pytest.raises(ConfigError, match="the rule has changed"):
        done.run()
    done.rebuild()
    done.assert_sessions("owner | start | end \n ann | 0 | 0")


RULES: list[dict[str, Any]] = [
    {"late_events": "amend"},
    {"late_events": "quarantine", "source": {"dedupe": {"by": ["n"], "within": "1h"}}},
    {"corrections": "quarantine"},
    {"late_events": "drop", "session": {"gap": "10m", "max_duration": "20m"}},
    {"session": {"gap": "10m", "changes_of": ["user_id"]}, "source": {"key": []}},
    {"time": {"lateness": "session", "revive": True, "allowed_lateness": "5m"}},
]
OF_SESSIONS = "session_id | start | end | expires_at | count | total | status | why | final | late"
OF_REJECTED = "event_time | reason | kept | event | event_hash | watermark | horizon"


@pytest.mark.broad
@pytest.mark.parametrize("seed", range(6))
def test_any_history_is_that_of_a_source_which_has_the_column_and_is_updated(play: Plays, seed: int) -> None:
    """The law: sessions, rejected events and watermarks are those of the source with a column, and UPDATEs of it."""
    chance, rule = Random(seed), RULES[seed % len(RULES)]
    one = play(**rule)
    two = Materialised(one.spark, one.folder / "materialised", one)
    one._changed("events")
    one._changed("devices")
    two._changed("events")
    one.init()
    two.init()
    n = 0
    for _ in range(6):
        for _ in range(chance.randint(0, 2)):
            n = any_change_of_events(one, two, chance, n)
        for _ in range(chance.randint(0, 2)):
            any_change_of_devices(one, chance)
        one.run()
        two.catch_up()
        two.run()
        assert one.told(OF_SESSIONS) == two.told(OF_SESSIONS)
        assert rejected_of(one) == rejected_of(two)
    one.assert_clean()
    for each in (one, two):
        each.readmit()
    assert one.told(OF_SESSIONS) == two.told(OF_SESSIONS)
    assert rejected_of(one) == rejected_of(two)
    one.assert_clean()


def rejected_of(done: Stitched) -> list[dict[str, Any]]:
    return done.told(OF_REJECTED, done.config.outputs.rejected_events)


def any_change_of_events(one: Stitched, two: Materialised, chance: Random, n: int) -> int:
    """Events more, one less or one that becomes another."""
    what, there = chance.choice(["comes", "comes", "goes", "becomes"]), [row["n"] for row in one.there["events"]]
    if what == "comes" or not there:
        events = []
        for _ in range(chance.randint(1, 4)):
            n += 1
            events.append(f"{chance.choice(['d1', 'd2', 'd3'])}@{chance.randint(0, 90)}={chance.choice([n, n, n - 1])}")
        one.comes(events=" ".join(events))
        two.wait(two.comes, events=" ".join(events))
        return n
    victim = chance.choice(there)
    if what == "goes":
        one.goes("events", victim)
        two.wait(two.goes, "events", victim)
        return n
    values: dict[str, Any] = {"at": minute(chance.randint(0, 90))} if chance.random() < 0.5 else {"u": "d2"}
    one.becomes("events", victim, **values)
    two.wait(two.becomes, "events", victim, **values)
    return n


def any_change_of_devices(one: Stitched, chance: Random) -> None:
    device, user = chance.choice(["d1", "d2", "d3"]), chance.choice(["ann", "bob"])
    match chance.choice(["maps", "maps", "remaps", "unmaps"]):
        case "maps":
            one.maps(f"{device}={user}")
        case "remaps":
            one.remaps(device, user)
        case "unmaps":
            one.unmaps(device)
