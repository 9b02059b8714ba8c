"""Several sources that come, go, lag, or change their columns and keys beside each other."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionizer.jobs.commands.forget import forget
from sessionizer.jobs.run import side_tables
from sessionizer.lib.config import Config
from sessionizer.lib.durations import DAY
from sessionizer.lib.errors import ConfigError, SourceError, SourceMismatch, UsageError
from sessionizer.lib.time.watermarks import WatermarkOverride
from sessionizer.tables.increments import Increment, Increments
from sessionizer.tables.manifest import Manifest
from sessionizer.tables.position import Position
from sessionizer.tables.source import keeps_time, waiting
from tests.exactness.play import at
from tests.exactness.several import CALLS, CLICKS, Several, several
from tests.kills import killed_at

pytestmark = pytest.mark.broad

Plays = Callable[..., Several]


@pytest.fixture
def play(spark: SparkSession, tmp_path: Path) -> Iterator[Plays]:
    with several(spark, tmp_path) as made:
        yield made


def test_a_column_called_user_id_as_a_whole_is_no_key_by_sql(play: Plays) -> None:
    """Of one source, any other column may go; of several it is among their columns by this name alone."""
    events = {"schema": "`user.id` STRING, at TIMESTAMP, n INT, page STRING", "key": ["user.id"], "event_time": "at"}
    one = play({"clicks": events}, aggregates=[])
    one.config = one.alone("clicks")
    one.runs(clicks="a@0")
    one.reshaped("clicks", "`user.id` STRING, at TIMESTAMP, n INT").runs(clicks="a@5")
    assert [row["count"] for row in one.told("user.id | count")] == ["2"]
    both = play({"clicks": events, "calls": events}, aggregates=[])
    known = both.comes(clicks="a@0", calls="a@5").kind.tables.events
    assert known.schema.names == ["user.id", "at", "n", "page", "source"]


def test_other_keys_by_sql_are_refused_where_rows_that_last_are_told_by_them(play: Plays) -> None:
    calls = {"key": [{"name": "u", "expr": "caller"}], "start": "latest"}
    done = play({"clicks": CLICKS, "calls": CALLS | calls}).runs(clicks="a@0", calls="bob@5")
    done.assert_rejected("u | source | reason \n bob | calls | before_start")
    done.sources["calls"] = CALLS | calls | {"key": [{"name": "u", "expr": "trim(caller)"}]}
    done.config = done.configured()
    with pytest.raises(UsageError, match=r"keys by SQL of several sources have changed.*calls"):
        done.rebuild()
    done.sources["calls"] = CALLS | calls
    done.config = done.configured()
    done.rebuild()
    done.assert_sessions("u | start | count \n a | 0 | 1")


def test_what_came_before_the_start_of_the_only_source_stays_out_when_it_becomes_one_of_several(play: Plays) -> None:
    done = play({"clicks": CLICKS | {"start": "latest"}, "calls": CALLS})
    both, done.sections = done.config, {"aggregates": []}
    done.config = done.alone("clicks")
    done.runs(clicks="a@0", calls="a@5").runs(clicks="b@9")
    done.config = both
    with pytest.raises(UsageError, match="source has become sources"):
        done.rebuild()


def test_types_of_a_source_that_waits_for_its_start_are_those_of_no_rows(play: Plays) -> None:
    """A number as a double is another text, by which rejected rows are no longer known."""
    calls: dict[str, Any] = {"schema": "u STRING, begun TIMESTAMP, n INT", "key": ["u"], "event_time": "begun"}
    counted = [{"name": "clicks", "fn": "count", "source": "clicks"}]
    done = play(
        {"clicks": CLICKS, "calls": calls | {"start": {"version": 9}}},
        events={"dedupe": {"by": ["u"], "within": "1h"}},
        aggregates=counted,
    ).runs(clicks="a@0 a@0")
    for name, of in {"clicks": CLICKS, "calls": calls}.items():
        done.reshaped(name, of["schema"].replace("INT", "DOUBLE"))
    for job in (lambda: done.backfill(0, 60), done.run):
        job()
        done.assert_sessions("u | start | count \n a | 0 | 1")
        done.assert_rejected("u | source | reason \n a | clicks | duplicate")
        done.assert_clean()


def test_a_column_that_is_widened_in_all_sources_is_read_as_it_was_in_each(play: Plays) -> None:
    """The increments of two sources meet a change of columns at different times."""
    calls: dict[str, Any] = {"schema": "u STRING, begun TIMESTAMP, n INT", "key": ["u"], "event_time": "begun"}
    done = play({"clicks": CLICKS, "calls": calls}, events={"dedupe": {"by": ["n"], "within": "1h"}})
    done.runs(clicks="a@0=1", calls="a@5=2 a@5=2")
    done.reshaped("clicks", CLICKS["schema"].replace("INT", "BIGINT"))
    done.comes(calls="a@8=3 a@8=3").reshaped("calls", calls["schema"].replace("INT", "BIGINT"))
    done.run(once=True)
    assert {name: of.to_version for name, of in done.position().sources.items()} == {"clicks": 1, "calls": 1}
    done.assert_clean()
    done.goes("calls", 2).run()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 8 | 2 | 4")
    done.assert_rejected("u | source | reason | event_time \n a | calls | duplicate | 8")
    done.assert_clean()


def test_a_source_with_versions_that_no_run_has_read_is_not_idle(play: Plays) -> None:
    time = {"allowed_lateness": "0s", "watermark": {"idle_after": "2h"}}
    done = play(time=time, limits={"max_versions_per_run": 1}).at(720).runs(clicks="a@720", calls="a@719")
    done.comes(clicks="a@725 b@900").optimized("calls").comes(calls="a@722 b@890").at(900).run()
    done.assert_rejected("u")
    done.assert_sessions("u | start | end | count \n a | 719 | 725 | 4 \n b | 890 | 900 | 2")
    done.assert_clean()


def test_a_rebuild_takes_nothing_of_a_source_in_that_waits_for_its_start(play: Plays) -> None:
    done = play({"clicks": CLICKS, "calls": CALLS | {"start": {"version": 3}}}).comes(calls="a@1").runs(clicks="a@0")
    assert done.position().sources["calls"].to_version is None
    done.rebuild()
    done.assert_sessions("u | start | end | count \n a | 0 | 0 | 1")
    assert done.position().sources["calls"].to_version is None
    done.assert_clean()
    done.comes(calls="a@2").comes(calls="a@3").runs(calls="a@4")
    done.assert_sessions("u | start | end | count \n a | 0 | 4 | 2")
    done.assert_clean()


@pytest.mark.parametrize(("start", "counts"), [("latest", 2), ({"version": 1}, 3), ("earliest", 4)])
def test_a_source_that_is_added_begins_where_its_start_says(play: Plays, start: Any, counts: int) -> None:
    done = play({"clicks": CLICKS, "calls": CALLS | {"start": start}})
    done.config = done.configured("clicks")
    done.comes(calls="a@1").comes(calls="a@2").runs(clicks="a@0")
    done.config = done.configured()
    done.rebuild()
    done.run()
    done.runs(calls="a@3")
    done.assert_sessions(f"u | start | end | count \n a | 0 | 3 | {counts}")
    done.assert_clean()
    done.rebuild()
    done.assert_sessions(f"u | start | end | count \n a | 0 | 3 | {counts}")
    done.assert_clean()


def test_a_source_that_is_added_and_waits_begins_by_another_name_where_its_start_says(play: Plays) -> None:
    late = CALLS | {"start": "latest"}
    done = play({"clicks": CLICKS, "calls": late})
    done.config = done.configured("clicks")
    done.comes(calls="a@1").comes(calls="a@2").runs(clicks="a@0")
    done.sources["phone"] = late | {"table": str(done.folder / "calls")}
    for names in (("clicks", "calls"), ("clicks", "phone")):
        done.config = done.configured(*names)
        done.rebuild()
        done.assert_sessions("u | start | end | count \n a | 0 | 0 | 1")
    done.run()
    done.runs(calls="a@3")
    done.assert_sessions("u | start | end | count \n a | 0 | 3 | 2")
    done.assert_clean()


def test_a_source_that_is_added_waits_though_the_other_is_another_table_now(play: Plays) -> None:
    done = play({"clicks": CLICKS, "calls": CALLS | {"start": "latest"}, "others": CLICKS})
    done.config = done.configured("clicks")
    done.comes(calls="a@1", others="b@0").runs(clicks="a@0")
    done.sources["clicks"] = CLICKS | {"table": str(done.folder / "others")}
    done.config = done.configured("clicks", "calls")
    done.rebuild()
    done.assert_sessions("u | start | end | count \n b | 0 | 0 | 1")
    done.sources["calls"] = CALLS | {"start": "earliest"}
    done.config = done.configured("clicks", "calls")
    done.rebuild()
    done.assert_sessions("u | start | end | count \n a | 1 | 1 | 1 \n b | 0 | 0 | 1")
    done.assert_clean()


@pytest.mark.parametrize(
    ("read", "unread", "now", "expected"),
    [
        ({"clicks": "X"}, {}, {"clicks": "X", "calls": "Y"}, {"calls"}),
        ({"clicks": "X"}, {}, {"clicks": "X'", "calls": "Y"}, {"calls"}),
        ({"clicks": "X"}, {}, {"visits": "X", "calls": "Y"}, {"calls"}),
        ({"clicks": "X"}, {}, {"visits": "X'", "calls": "Y"}, set()),  # all are others: the table is begun anew
        ({"clicks": "X"}, {}, {"clicks": "X", "again": "X"}, {"again"}),
        ({"clicks": "X"}, {"calls": "X"}, {"clicks": "X", "calls": "X"}, {"calls"}),
        ({"clicks": "X"}, {"calls": "X"}, {"calls": "X"}, {"calls"}),
        ({"clicks": "X"}, {"calls": "X"}, {"clicks": "Z", "calls": "X"}, {"calls"}),
        ({"clicks": "X"}, {"calls": "Y"}, {"clicks": "X", "phone": "Y"}, {"phone"}),
        ({"clicks": "X"}, {"calls": "Y"}, {"clicks": "X", "calls": "Y'"}, {"calls"}),
        ({"clicks": "X"}, {"calls": "Y"}, {"calls": "X", "clicks": "Y"}, {"clicks"}),
        ({"clicks": "X"}, {"calls": "Y"}, {"phone": "Y"}, {"phone"}),
        ({}, {"": "X"}, {"": "X'"}, {""}),
        ({}, {}, {"": "X"}, set()),
    ],
)
def test_which_sources_wait_in_a_rebuild_goes_by_their_tables(
    read: dict[str, str], unread: dict[str, str], now: dict[str, str], expected: set[str]
) -> None:
    consumed = {name: SimpleNamespace(id=of, to_version=1) for name, of in read.items()}
    consumed |= {name: SimpleNamespace(id=of, to_version=None) for name, of in unread.items()}
    latest: Any = {name: SimpleNamespace(start="latest") for name in now}
    done: Any = SimpleNamespace(consumed=consumed)
    assert waiting(done, latest, now) == expected
    assert waiting(done, {name: SimpleNamespace(start="earliest") for name in now}, now) == set()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("read", "now", "expected"),
    [
        ({"a": "X", "b": "Y"}, {"a": "X", "b": "Y"}, set()),
        ({"a": "X", "b": "Y"}, {"a": "X", "c": "Z"}, set()),
        ({"a": "X", "b": "Y"}, {"a": "Z", "b": "Y"}, set()),  # another table in the place of one
        ({"a": "X", "b": "Y"}, {"c": "X", "b": "Y"}, {"a"}),
        ({"a": "X", "b": "Y"}, {"a": "Y", "b": "X"}, {"a", "b"}),
        ({"a": "X", "b": "Y"}, {"a": "Y"}, {"a", "b"}),  # rows of a are of X, which is no source any more
        ({"a": "X", "b": "X"}, {"a": "X", "c": "X"}, {"b"}),
        ({"a": "X", "b": "Y"}, {"a": "X", "b": "X"}, {"b"}),  # a copy in the place of another
        ({"a": "X", "b": "X"}, {"a": "X"}, set()),
        ({"a": "X", "b": "X"}, {"a": "X", "b": "Y"}, set()),
    ],
)
def test_rows_of_sources_are_known_by_their_names_only_where_these_stay(
    read: dict[str, str], now: dict[str, str], expected: set[str]
) -> None:
    consumed = {name: SimpleNamespace(id=of, to_version=1, version=1) for name, of in read.items()}
    done: Any = SimpleNamespace(consumed=consumed, called=lambda names, renamed: (names, renamed))
    assert Position(1, done).called(now).renamed == expected


@pytest.mark.parametrize(
    ("read", "unread", "now"),
    [
        ({"clicks": "X"}, {}, {"visits": "X", "zz": "X"}),
        ({"clicks": "X"}, {"calls": "X"}, {"visits": "X", "zz": "X"}),
        ({"": "X"}, {}, {"clicks": "X", "calls": "X"}),
        ({"clicks": "X", "calls": "X"}, {}, {"visits": "X", "zz": "X"}),
        ({"clicks": "X", "calls": "X"}, {}, {"visits": "X"}),
        ({"clicks": "X", "calls": "X"}, {}, {"": "X"}),
        ({"a": "X", "b": "X"}, {}, {"a": "Z", "c": "X"}),
    ],
)
def test_a_rebuild_is_refused_where_copies_of_a_table_have_other_names(
    read: dict[str, str], unread: dict[str, str], now: dict[str, str]
) -> None:
    consumed = {name: SimpleNamespace(id=of, to_version=1) for name, of in read.items()}
    consumed |= {name: SimpleNamespace(id=of, to_version=None) for name, of in unread.items()}
    done: Any = SimpleNamespace(consumed=consumed)
    with pytest.raises(SourceError, match="nobody knows which is which"):
        Position(1, done).called(now)


def test_a_copy_that_takes_a_name_has_nothing_of_what_the_name_said() -> None:
    """Its clock would be that of the table that is gone."""
    of = {name: SimpleNamespace(id=id_, to_version=1) for name, id_ in {"clicks": "X", "calls": "Y"}.items()}
    kept = {"clicks": of["clicks"], "-calls": of["calls"]}
    done: Any = Manifest.model_construct(None, **{"sources": of, "rule": {"sources": of}})  # type: ignore[arg-type]
    called: Any = Position(1, done).called({"clicks": "X", "calls": "X"}).manifest
    assert called.sources == called.rule["sources"] == kept


@pytest.mark.parametrize(
    ("read", "now", "expected"),
    [
        ({"clicks": ("X", 5)}, {"clicks": ("X", 5), "calls": ("Y", 0)}, True),
        ({"clicks": ("X", 5)}, {"visits": ("X", 6)}, True),
        ({"clicks": ("X", 5), "calls": ("Y", 3)}, {"clicks": ("Y", 3)}, True),
        ({"clicks": ("X", 5), "calls": ("Y", 3)}, {"clicks": ("Y", 3), "calls": ("X", 5)}, True),
        ({"clicks": ("X", 2), "calls": ("X", 4)}, {"clicks": ("X", 2), "calls": ("X", 4)}, True),  # one copied
        ({"clicks": ("X", 5)}, {"again": ("X", -1), "clicks": ("X", 5), "zz": ("X", -1)}, True),  # that wait
        ({"clicks": ("X", 5), "calls": ("Y", None)}, {"clicks": ("X", 5), "calls": ("Y", -1)}, True),
        ({"clicks": ("X", 5), "calls": ("X", None)}, {"calls": ("X", -1)}, True),
        ({"clicks": ("X", 5)}, {"clicks": ("X", 4)}, False),
        ({"clicks": ("X", 5)}, {"visits": ("X", 4)}, False),
        ({"clicks": ("X", 5), "calls": ("Y", 3)}, {"clicks": ("X'", 0), "calls": ("Y", 3)}, False),
        ({"clicks": ("X", 5)}, {"calls": ("Y", 0)}, False),
        ({"clicks": ("X", None)}, {"clicks": ("X'", 0)}, True),  # no run has had any time
    ],
)
def test_the_clock_goes_on_in_a_rebuild_where_tables_do(
    read: dict[str, tuple[str, int | None]], now: dict[str, tuple[str, int]], expected: bool
) -> None:
    consumed = {
        n: SimpleNamespace(id=of, to_version=at, version=-1 if at is None else at) for n, (of, at) in read.items()
    }
    ids, last = ({name: told[n] for name, told in now.items()} for n in (0, 1))
    done: Any = SimpleNamespace(consumed=consumed)
    assert keeps_time(done, last, ids) == expected  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clicks", "visits"])
def test_a_source_that_is_renamed_keeps_its_filter_and_its_start(play: Plays, name: str) -> None:
    sources = {"clicks": CLICKS | {"start": "latest", "where": "n > 1"}, "visits": CLICKS, "calls": CALLS}
    done = play(sources, aggregates=[])
    done.config = done.configured("clicks", "calls")
    done.comes(clicks="a@0=1").runs(calls="b@0").runs(clicks="a@5=2")
    done.sources[name] = done.sources["clicks"] | {"where": None, "table": str(done.folder / "clicks")}
    done.config = done.configured(name, "calls")
    with pytest.raises(UsageError, match=r"source.where has changed, and of the rows that it hid nobody knows"):
        done.rebuild()


@pytest.mark.slow
@pytest.mark.parametrize("now", [("clicks", "calls"), ("calls", "clicks"), ("visits", "calls"), ("clicks", "visits")])
def test_the_watermark_goes_by_tables_whatever_sources_are_called(play: Plays, now: tuple[str, str]) -> None:
    done = play(dict.fromkeys(("clicks", "calls", "visits"), CLICKS), aggregates=[])
    done.config = done.configured("clicks", "calls")
    done.runs(clicks="a@100", calls="b@50")
    tables = {name: {"table": str(done.folder / old)} for name, old in zip(now, ("clicks", "calls"), strict=True)}
    done.sources |= {name: CLICKS | table for name, table in tables.items()}
    done.config = done.configured(*now)
    done.rebuild()
    done.sources |= dict.fromkeys(("clicks", "calls"), CLICKS)
    done.comes(calls="b@75 c@49").run()
    done.assert_sessions("u | start \n a | 100 \n b | 50 \n b | 75")
    done.assert_rejected(f"u | event_time | reason | source \n c | 49 | late | {now[1]}")


@pytest.mark.slow
def test_a_source_that_takes_the_name_of_one_that_goes_has_none_of_its_rows(play: Plays) -> None:
    done = play({"clicks": CLICKS, "calls": CLICKS}, aggregates=[], corrections={"deletes": "ignore"})
    done.runs(clicks="x@0=1", calls="y@5=2 x@0=1").goes("clicks", 1).run()
    done.sources["clicks"] = CLICKS | {"table": str(done.folder / "calls")}
    done.config = done.configured("clicks")
    with pytest.raises(UsageError, match="several sources have changed, or the name of one"):
        done.rebuild()


@pytest.mark.slow
def test_the_filter_of_a_source_that_no_run_has_read_may_change_beside_one_with_a_start(play: Plays) -> None:
    late = CALLS | {"start": "latest"}
    done = play({"clicks": CLICKS | {"start": "latest"}, "calls": late | {"where": "n = 1"}}, aggregates=[])
    done.config = done.configured("clicks")
    done.comes(clicks="a@0", calls="b@1").runs(clicks="a@5")
    done.config = done.configured()
    done.rebuild()
    done.sources["calls"] = late | {"where": "n = 2"}
    done.config = done.configured()
    done.rebuild()
    done.runs(calls="b@6=1").runs(calls="b@7=2").assert_sessions("u | start | count \n b | 7 | 1")


@pytest.mark.slow
@pytest.mark.parametrize("deletes", ["ignore", "quarantine"])
@pytest.mark.parametrize("is_alone", [False, True])
def test_a_source_that_is_renamed_is_read_first_where_rows_have_gone(play: Plays, deletes: str, is_alone: bool) -> None:
    corrections = "quarantine" if deletes == "quarantine" else {"deletes": "ignore"}
    done = play({"clicks": CLICKS, "calls": CALLS, "visits": CLICKS}, aggregates=[], corrections=corrections)
    done.config = done.alone("clicks") if is_alone else done.configured("clicks", "calls")
    done.runs(clicks="a@0=1 a@5=2", calls="b@0=3").goes("clicks", 2)
    done.sources["visits"] = CLICKS | {"table": str(done.folder / "clicks")}
    done.config = done.configured("visits", "calls")
    with pytest.raises(UsageError, match="takes rows away whose events are to stay"):
        done.rebuild()


def test_a_source_that_waits_has_nothing_that_would_have_to_stay(play: Plays) -> None:
    done = play({"clicks": CLICKS, "calls": CALLS | {"start": {"version": 9}}}, corrections={"deletes": "ignore"})
    done.comes(calls="a@1=1 a@2=2").goes("calls", 2).runs(clicks="a@0")
    done.sources["calls"] = CALLS
    done.config = done.configured()
    done.rebuild()
    done.assert_sessions("u | start | end | count \n a | 0 | 1 | 2")
    done.assert_clean()


def test_a_source_that_is_added_leaves_the_others_the_tables_that_were_read(play: Plays) -> None:
    """What is deleted there and stays is known, or a run has to read it first; columns are told anew."""
    three = {"clicks": CLICKS, "calls": CALLS, "chats": CALLS}
    done = play(three, corrections={"deletes": "ignore"})
    done.config = done.configured("clicks", "calls")
    done.runs(clicks="a@0=1 a@5=2", calls="a@8=3").goes("clicks", 1).run()
    kept = "u | source | event_time | reason | kept \n a | clicks | 0 | ignored_delete | in"
    done.assert_rejected(kept)
    done.goes("clicks", 2)
    done.config = done.configured()
    with pytest.raises(UsageError, match="takes rows away whose events are to stay"):
        done.rebuild()
    done.config = done.configured("clicks", "calls")
    done.run()
    done.comes(chats="a@9=4", clicks="a@0=1")  # as the one that is gone: another event
    done.reshaped("clicks", "u STRING, at TIMESTAMP, n INT, side STRING")
    done.config = done.configured()
    done.rebuild()
    done.assert_sessions("u | start | end | count | total \n a | 0 | 9 | 5 | 11")
    done.assert_clean()


def test_sources_that_come_or_go_turn_no_clock_back(play: Plays) -> None:
    """From clicks alone, to clicks and calls, to clicks as the only source: it is 100 for them."""
    done = play()
    done.config = done.configured("clicks")
    done.runs(clicks="a@0 t@100").comes(calls="t@101")
    done.config = done.configured()
    done.rebuild()
    done.runs(clicks="a@5").assert_rejected("u | event_time | reason \n a | 5 | late")
    done.config = done.alone("clicks")
    done.rebuild()
    done.runs(clicks="b@6").assert_rejected("u | event_time | reason \n b | 6 | late")


def test_columns_of_a_source_whose_key_is_a_column_may_change_beside_one_with_a_key_by_sql(play: Plays) -> None:
    done = play().runs(clicks="a@0", calls="a@1")
    done.reshaped("clicks", "u STRING, at TIMESTAMP, n INT").runs(clicks="a@2")
    done.reshaped("calls", "caller STRING, begun TIMESTAMP, n INT, page STRING").runs(calls="a@3")
    with pytest.raises(SourceMismatch, match="keys by SQL go by whole rows"):
        done.reshaped("calls", "caller STRING, begun TIMESTAMP, n INT").run()


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({"where": "kind <> 'ping'"}, r"sources, clicks: source\.where does not fit"),
        ({"order_by": ["kind"]}, r"sources, clicks: source\.order_by names a column that"),
        ({"order_by": ["source"]}, r"sources, clicks: source\.order_by names a column that"),
    ],
)
def test_what_a_source_says_of_its_events_is_of_its_own_columns(play: Plays, said: dict, says: str) -> None:
    calls = CALLS | {"schema": "caller STRING, begun TIMESTAMP, n INT, kind STRING"}
    done = play({"clicks": CLICKS | said, "calls": calls}).comes(clicks="a@0", calls="a@8")
    with pytest.raises(SourceMismatch, match=says):
        done.init()


def test_a_column_whose_name_reads_as_sql_is_a_column_of_several_sources_too(play: Plays) -> None:
    clicks = CLICKS | {"schema": "u STRING, `event-time` TIMESTAMP, n INT", "event_time": "event-time"}
    done = play({"clicks": clicks, "calls": CALLS}).runs(clicks="a@0", calls="a@8")
    done.assert_sessions("u | start | end | count \n a | 0 | 8 | 2")


def test_the_start_of_a_source_is_taken_beside_a_commit_that_comes_alone(play: Plays) -> None:
    sources = {"clicks": CLICKS | {"start": {"version": 1}}, "calls": CALLS | {"start": "latest"}}
    done = play(sources, corrections={"deletes": "ignore"}).comes(clicks="a@0=1 a@9=2", calls="a@1")
    done.goes("clicks", 1).runs()
    assert {name: (of.began, of.to_version) for name, of in done.position().sources.items()} == {
        "calls": (1, 0),
        "clicks": (1, 1),
    }
    done.runs(calls="a@5")
    done.assert_rejected(
        """
        u | source | event_time | reason
        a | calls  | 1          | before_start
        a | clicks | 9          | before_start
        """
    )
    done.assert_sessions("u | start | end | count \n a | 5 | 5 | 1")
    done.assert_clean()


def test_one_source_with_a_name_is_checked_as_several_are(play: Plays) -> None:
    key = {"key": [{"name": "u", "expr": "1 / n"}]}
    done = play({"calls": CALLS | key}, events={"null_keys": "group"}, aggregates=[]).comes(calls="a@8")
    with pytest.raises(ConfigError, match="a key by SQL that may have no value does not go with null_keys: group"):
        done.init()


def test_an_error_of_the_change_feed_is_of_a_source_that_was_read(play: Plays) -> None:
    events = play().comes(clicks="a@0", calls="a@8").kind.tables.events
    one, none, lacks = Increment(0, 0), Increment(1, 0), "[DELTA_MISSING_CHANGE_DATA] Error getting change data"
    for text, calls, whose in (
        (lacks, none, "clicks"),
        (f"{lacks} of {events.tables['clicks'].location}", one, "clicks"),
        (lacks, one, "calls or clicks"),
    ):
        read = Increments({"calls": calls, "clicks": one})
        said = f"sources, {whose}: the source's changes of versions 0 to 0"
        with pytest.raises(SourceError, match=said), events.reading(read):
            raise PySparkException(text)


def test_the_watermark_is_advanced_by_hand_though_a_source_waits_for_its_start(play: Plays) -> None:
    done = play({"clicks": CLICKS | {"start": "latest"}, "calls": CALLS | {"start": {"version": 9}}})
    done.comes(clicks="a@0", calls="a@1").init().run(override=WatermarkOverride(advance_to=at(60)))
    assert done.position().watermark_after == at(60)
    done.comes(clicks="a@5 b@90")
    (report,) = done.run(override=WatermarkOverride(flush=True))
    assert report.manifest.arguments["flush"]
    done.assert_sessions("u | start | end | is_final \n b | 90 | 90 | yes")
    done.assert_rejected("u | source | event_time | reason \n a | clicks | 0 | before_start \n a | clicks | 5 | late")
    done.assert_clean()


def test_what_a_source_that_comes_to_others_has_from_before_what_is_forgotten_is_late(play: Plays) -> None:
    done = play({"clicks": CLICKS, "calls": CALLS})
    done.config = done.configured("clicks")
    done.comes(calls="a@5 b@1440").runs(clicks="a@0 tick@1441")
    assert forget(done.kind, DAY, done.now, done.said.append)
    done.config = done.configured("clicks", "calls")
    done.rebuild()
    done.assert_sessions("u | start | end | count \n b | 1440 | 1440 | 1 \n tick | 1441 | 1441 | 1")
    done.assert_rejected("u | source | event_time | reason \n a | calls | 5 | late")
    done.assert_clean()


def test_so_it_is_where_it_has_the_name_of_another_and_its_rebuild_was_cut_off(play: Plays) -> None:
    done = play({"clicks": CLICKS, "calls": CALLS})
    done.config = done.configured("clicks")
    done.comes(calls="a@5 b@1440").runs(clicks="a@0 tick@1441")
    assert forget(done.kind, DAY, done.now, done.said.append)
    told = done.configured().model_dump(mode="json", exclude_unset=True)
    for source, name in zip(told["sources"], ("web", "clicks"), strict=True):  # clicks is another table now
        source["name"] = name
    done.config = Config.model_validate(told)
    with killed_at(side_tables, "write"):
        done.rebuild()
    done.run()
    done.assert_rejected("u | source | event_time | reason \n a | clicks | 5 | late")
    done.assert_clean()
