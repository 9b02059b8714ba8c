"""Several sources, as far as no Spark is needed: what the config says of them, and whose time the watermark follows."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sessionizer.jobs.config_file import load_config
from sessionizer.lib.config import Config
from sessionizer.lib.errors import ConfigError
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState, advance_each
from sessionizer.lib.windows.sliding.rule import SlidingRule

CLICKS = "{name: clicks, table: lake/clicks, key: [user_id], event_time: at, where: page <> '/ping'}"
CALLS = "{name: calls, table: lake/calls, key: [{name: user_id, expr: caller}], event_time: timestamp_millis(ms)}"


def config(tmp_path: Path, rest: str = "", sources: str = f"[{CLICKS}, {CALLS}]") -> Config:
    file = tmp_path / "c.yaml"
    file.write_text(f"sources: {sources}\nsessions: {{table: lake/sessions}}\n{rest}", encoding="utf-8")
    return load_config(file, {})


def test_each_source_says_what_its_events_are(tmp_path: Path) -> None:
    rule = Rule.of(config(tmp_path, "events: {dedupe: {by: [id], within: 1d}}"))
    assert (rule.key, rule.made, rule.sources, rule.origin) == (("user_id",), (), ("calls", "clicks"), ("source",))
    assert rule.event_time == "CASE source WHEN 'calls' THEN (timestamp_millis(ms)\n) WHEN 'clicks' THEN (at\n) END"
    assert rule.where == "CASE source WHEN 'clicks' THEN (page <> '/ping'\n) ELSE true END"
    assert rule.dedupe is not None
    assert rule.dedupe.by == ("source", "id")


def test_what_all_sources_say_alike_is_said_once(tmp_path: Path) -> None:
    one, other = ("{name: %s, table: lake/%s, key: [k], event_time: at, order_by: [%s, id]}" % (3 * (n,)) for n in "ab")
    rule = Rule.of(config(tmp_path, sources=f"[{other}, {one}]"))
    assert (rule.event_time, rule.where, rule.order_by) == ("at", None, ("a", "id", "b"))


def test_the_rule_follows_each_source_and_not_their_order(tmp_path: Path) -> None:
    whole = config(tmp_path)
    assert whole.rule_summary()["sources"] == {
        "clicks": {"key": ["user_id"], "event_time": "at", "where": "page <> '/ping'", "order_by": []},
        "calls": {
            "key": [{"name": "user_id", "expr": "caller"}],
            "event_time": "timestamp_millis(ms)",
            "where": None,
            "order_by": [],
        },
    }
    assert config(tmp_path, sources=f"[{CALLS}, {CLICKS}]").fingerprint() == whole.fingerprint()
    assert config(tmp_path, sources=f"[{CLICKS}]").fingerprint() != whole.fingerprint()
    assert (
        config(tmp_path, sources=f"[{CLICKS}, {CALLS.replace('caller', 'who')}]").fingerprint() != whole.fingerprint()
    )


def test_windows_follow_each_source_too(tmp_path: Path) -> None:
    sliding = "sliding: {table: lake/windows}"
    whole = SlidingRule.of(config(tmp_path, sliding))
    other = SlidingRule.of(config(tmp_path, sliding, f"[{CLICKS}, {CALLS.replace('caller', 'who')}]"))
    assert whole.fingerprint() != other.fingerprint()


def test_tables_and_errors_go_by_the_names_of_the_sources(tmp_path: Path) -> None:
    found = config(tmp_path)
    assert [name for name in found.tables if "source" in name] == ["sources.calls.table", "sources.clicks.table"]
    assert list(found.locations())[:2] == ["events_calls", "events_clicks"]


@pytest.mark.parametrize(
    ("sources", "rest", "says"),
    [
        ("[]", "", "source is missing. Add it"),
        (f"[{CLICKS}]", "source: {table: lake/events, key: []}", "source and sources must not both be there"),
        (f"[{CLICKS}, {CLICKS}]", "", "must each have a name of its own: got 'clicks'"),
        (f"[{CLICKS}, {CALLS.replace('name: calls', 'name: a b')}]", "", "must be of letters, digits and _"),
        (f"[{CLICKS}, {CALLS.replace('user_id', 'who')}]", "", "must give the same key columns, in the same order"),
        (f"[{CLICKS.replace('[user_id]', '[Source]')}]", "", "must have no key column of this name"),
        (f"[{CLICKS}, {CALLS.replace('lake/calls', 'lake/clicks')}]", "", "must not be the same place"),
        (f"[{CLICKS}]", "aggregates: [{name: n, fn: count, source: calls}]", "that stands in sources: got 'calls'"),
        (f"[{CLICKS}]", "aggregates: [{name: n, sql: '1', source: clicks}]", "must have nothing beside name and sql"),
        (f"[{CLICKS}]", "aggregates: [{name: user_id, fn: count}]", "names that nothing else in the sessions table"),
        (f"[{CLICKS}]", "time: {watermark: {per: [user_id]}}", "per must be table where there are several sources"),
        (f"[{CLICKS.replace('where', 'dedupe')}]", "", "sources[0].dedupe is not a known key"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, sources: str, rest: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        config(tmp_path, rest, sources)
    assert says in str(refused.value)


def test_what_is_of_several_sources_is_refused_of_one(tmp_path: Path) -> None:
    for rest in ("events: {null_keys: group}", "aggregates: [{name: n, fn: count, source: clicks}]"):
        file = tmp_path / "c.yaml"
        file.write_text(f"source: {{table: lake/e, key: [u]}}\nsessions: {{table: lake/s}}\n{rest}", encoding="utf-8")
        with pytest.raises(ConfigError, match="there is one"):
            load_config(file, {})


# Whose time the watermark follows

RULE = Rule(key=(), gap=1, sources=("a", "b"), watermark_delay=5)


def after(*runs: tuple[int, Mapping[str, int | None]], **rule: Any) -> list[int | None]:
    """The watermark after each run, by its clock and how far its events of each source came."""
    clock, found = WatermarkState(now=0), []
    for now, edges in runs:
        clock = advance_each(replace(clock, now=now), edges, replace(RULE, **rule))
        found.append(clock.watermark)
    return found


def test_the_watermark_follows_the_source_that_is_furthest_behind() -> None:
    assert after((0, {"a": 100, "b": 60}), (1, {"b": 80}), (2, {"b": 200}), (3, {"a": 90})) == [55, 75, 95, 95]


def test_a_source_without_any_event_holds_it() -> None:
    assert after((0, {"a": 100}), (1, {"a": 200}), (10**9, {"a": 300}), (10**9, {"b": 7})) == [None, None, None, 2]


def test_an_idle_source_is_left_out_after_longer_than_that_and_waited_for_again() -> None:
    runs = ((0, {"a": 100, "b": 60}), (10, {"a": 110}), (11, {"a": 120}), (12, {"b": 70}), (13, {"a": 130}))
    assert after(*runs, watermark_idle_after=10) == [55, 55, 115, 115, 115]
    assert after((0, {"a": 100}), (10, {"a": 110}), (11, {"a": 120}), watermark_idle_after=10) == [None, None, 115]


def test_where_all_are_idle_the_events_say_nothing() -> None:
    assert after((0, {"a": 100, "b": 60}), (11, {}), watermark_idle_after=10) == [55, 55]


def test_of_the_least_times_each_source_keeps_its_own() -> None:
    assert after((0, {"a": 3, "b": 9}), (1, {"a": 1, "b": 20}), (2, {"a": 30})) == [-2, -2, 15]


def test_a_source_of_which_something_is_left_is_no_idle_one() -> None:
    rule = replace(RULE, watermark_idle_after=10)
    first = advance_each(WatermarkState(now=0), {"a": 100, "b": 60}, rule)
    late = replace(first, now=11)
    assert advance_each(late, {"a": 120}, rule).watermark == 115
    waits = advance_each(late.awaiting(["b"]), {"a": 120}, rule)
    assert (waits.watermark, waits.sources["b"].came_at) == (55, 11)
