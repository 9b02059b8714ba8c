import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sessionizer.jobs.config_file import load_config
from sessionizer.lib.config import Aggregate, Config, StartTimestamp, StartVersion, json_schema, location_kind
from sessionizer.lib.durations import HOUR, MINUTE, SECOND
from sessionizer.lib.errors import ConfigError

Load = Callable[..., Config]
Refusal = Callable[..., str]


def text_of(rest: str = "", *, source: str = "", sessions: str = "") -> str:
    """The smallest config, with more fields in its two required sections, and further sections."""
    return (
        f"source: {{table: lake/events, key: [user_id], {source}}}\n"
        f"sessions: {{table: lake/sessions, {sessions}}}\n"
        f"{rest}\n"
    )


@pytest.fixture
def load(tmp_path: Path) -> Load:
    def load(text: str, **env: str) -> Config:
        file = tmp_path / "sessionizer.yaml"
        file.write_text(text)
        return load_config(file, env)

    return load


@pytest.fixture
def refusal(load: Load) -> Refusal:
    def refusal(text: str, **env: str) -> str:
        with pytest.raises(ConfigError) as error:
            load(text, **env)
        return str(error.value)

    return refusal


def assert_says(message: str, *fragments: str) -> None:
    assert [f for f in fragments if f not in message] == [], message


# What is accepted


def test_defaults_are_those_of_the_contract(load: Load) -> None:
    config = load(text_of())
    assert config.source.key == ("user_id",)
    assert (config.source.event_time, config.source.start, config.source.where) == (
        "event_time",
        "earliest",
        None,
    )
    assert (config.source.order_by, config.source.null_keys) == ((), "reject")
    assert config.sessions.partition_by == ("is_final",)
    assert (config.sessions.deletion_vectors, config.sessions.change_feed) == (False, True)
    assert config.sessions.commit == "auto"
    assert (config.session.gap, config.session.gap_boundary) == (30 * MINUTE, "joins")
    watermark = config.time.watermark
    assert (watermark.from_, watermark.per, watermark.delay) == ("max_event_time", "table", 0)
    assert (config.time.allowed_lateness, config.time.max_future_skew) == (24 * HOUR, HOUR)
    assert (config.late_events, config.invalid_events, config.corrections) == (
        "quarantine",
        "quarantine",
        "apply",
    )
    assert (config.limits.max_versions_per_run, config.limits.max_events_per_run) == (None, None)
    assert (config.aggregates, config.spark) == ((), {})


def test_every_field_of_this_release_can_be_set(load: Load) -> None:
    config = load("""
source:
  table: db.events
  key: []
  event_time: timestamp_millis(ts)
  start: {version: 3}
  where: "event_type <> 'ping'"
  order_by: [event_id]
  null_keys: group
sessions:
  table: db.sessions
  partition_by: [is_final, session_date]
  deletion_vectors: true
  change_feed: false
  commit: replace
session: {gap: 45m, gap_boundary: splits}
time:
  watermark: {from: min_event_time, per: table, delay: 5s}
  allowed_lateness: 1h
  lateness: event
  max_future_skew: 0s
aggregates:
  - {name: events, fn: count}
  - {name: pages, fn: set, of: page, at_most: 10}
  - {name: entry, fn: first, of: page, ignore_nulls: true}
outputs: {rejected_events: db.refused, runs: db.ledger}
limits: {max_versions_per_run: 10, max_events_per_run: 1000}
spark: {spark.sql.shuffle.partitions: 4, spark.ui.enabled: false, spark.memory.fraction: 0.50}
""")
    assert config.source.start == StartVersion(version=3)
    assert config.time.watermark.delay == 5 * SECOND
    assert [a.name for a in config.aggregates] == ["events", "pages", "entry"]
    assert config.outputs.runs == "db.ledger"
    assert config.spark == {
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
        "spark.memory.fraction": "0.50",
    }


def test_a_config_survives_being_written_and_read(load: Load) -> None:
    config = load(text_of("session: {gap: 1.5h}", source="start: {timestamp: 2026-01-01}"))
    assert Config.model_validate(json.loads(config.model_dump_json(by_alias=True))) == config


def test_a_config_cannot_be_changed(load: Load) -> None:
    with pytest.raises(ValueError, match="frozen"):
        load(text_of()).session.gap = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("s3a://lake/events", "url"),
        ("file:/lake/events", "url"),
        ("dbfs:/lake/events", "url"),
        ("lake/events", "path"),
        ("/lake/events.delta", "path"),
        ("./events.delta", "path"),
        (".events", "path"),
        ("events", "path"),
        ("C:/lake", "path"),
        ("db.events", "name"),
        ("main.db.events", "name"),
    ],
)
def test_a_location_is_a_path_a_url_or_a_name(text: str, kind: str) -> None:
    assert location_kind(text) == kind


def test_paths_are_relative_to_the_folder_of_the_file(load: Load, tmp_path: Path) -> None:
    config = load(text_of("outputs: {runs: ../ledger}"))
    assert config.source.table == f"{tmp_path}/lake/events"
    assert config.outputs.runs == f"{tmp_path.parent}/ledger"


@pytest.mark.parametrize(
    ("sessions", "runs"),
    [
        ("/lake/sessions/", "/lake/runs"),
        ("s3a://lake/a/sessions", "s3a://lake/a/runs"),
        ("s3a://lake/sessions/", "s3a://lake/runs"),
        ("db.sessions", "db.runs"),
        ("main.`my.db`.sessions", "main.`my.db`.runs"),
    ],
)
def test_outputs_lie_beside_the_sessions_by_default(load: Load, sessions: str, runs: str) -> None:
    config = load(f"source: {{table: db.events, key: []}}\nsessions: {{table: '{sessions}'}}")
    assert config.outputs.runs == runs
    assert config.outputs.rejected_events == runs.replace("runs", "rejected_events")


def test_an_output_that_is_named_leaves_the_other_at_its_default(load: Load, tmp_path: Path) -> None:
    outputs = load(text_of("outputs: {runs: db.runs, rejected_events: null}")).outputs
    assert (outputs.runs, outputs.rejected_events) == ("db.runs", f"{tmp_path}/lake/rejected_events")


@pytest.mark.parametrize(
    "text", ["2026-01-31", "2026-01-31 00:00:00", "'2026-01-31T00:00:00Z'", "2026-01-31T02:00:00+02:00"]
)
def test_a_start_timestamp_is_utc_unless_it_says_otherwise(load: Load, text: str) -> None:
    config = load(text_of(source=f"start: {{timestamp: {text}}}"))
    assert config.source.start == StartTimestamp(timestamp=datetime(2026, 1, 31, tzinfo=UTC))


def test_plain_words_that_yaml_1_1_changes_stay_as_written(load: Load) -> None:
    config = load("source: {table: ./2026-01-31, key: [on, no, y]}\nsessions: {table: ./010}")
    assert config.source.key == ("on", "no", "y")
    assert (config.source.table[-10:], config.sessions.table[-3:]) == ("2026-01-31", "010")


# Variables


def test_variables_override_any_field(load: Load) -> None:
    config = load(
        text_of("session: {gap: 30m}", source="start: latest"),
        SESSIONIZER__SESSION__GAP="45m",
        SESSIONIZER__TIME__WATERMARK__DELAY="5m",
        SESSIONIZER__TIME__WATERMARK__FROM="min_event_time",
        SESSIONIZER__SOURCE__KEY='["tenant", "user_id"]',
        SESSIONIZER__SOURCE__ORDER_BY="[event_id]",
        SESSIONIZER__SOURCE__WHERE="name = 'a: b' # c",
        SESSIONIZER__SOURCE__START__VERSION="7",
        SESSIONIZER__SESSIONS__CHANGE_FEED="false",
        SESSIONIZER__AGGREGATES='[{"name": "n", "fn": "count"}]',
        SESSIONIZER__SPARK='{"spark.a": 1}',
        **{"SESSIONIZER__SPARK__spark.sql.shuffle.partitions": "4"},
        SESSIONIZER_HOME="/elsewhere",
        PATH="/bin",
    )
    assert config.session.gap == 45 * MINUTE
    assert (config.time.watermark.delay, config.time.watermark.from_) == (5 * MINUTE, "min_event_time")
    assert (config.source.key, config.source.order_by) == (("tenant", "user_id"), ("event_id",))
    assert config.source.where == "name = 'a: b' # c"
    assert config.source.start == StartVersion(version=7)
    assert config.sessions.change_feed is False
    assert [a.name for a in config.aggregates] == ["n"]
    assert config.spark == {"spark.a": "1", "spark.sql.shuffle.partitions": "4"}


def test_variables_alone_can_make_a_config(load: Load) -> None:
    required = {"SOURCE__TABLE": "db.events", "SOURCE__KEY": "[]", "SESSIONS__TABLE": "db.sessions"}
    config = load("", **{f"SESSIONIZER__{field}": value for field, value in required.items()})
    assert config.outputs.runs == "db.runs"


def test_an_empty_variable_unsets_a_field(load: Load) -> None:
    assert load(text_of(source="where: a"), SESSIONIZER__SOURCE__WHERE="").source.where is None


@pytest.mark.parametrize(
    ("variable", "value", "fragments"),
    [
        ("SESSIONIZER__SESSION__GAP", "45", ["session.gap (set by SESSIONIZER__SESSION__GAP)", "'45m'"]),
        ("SESSIONIZER__SESION__GAP", "45m", ["sesion", "SESSIONIZER__SESION__GAP", "Did you mean session?"]),
        ("SESSIONIZER__GAP", "45m", ["gap (set by SESSIONIZER__GAP)", "Did you mean session.gap?"]),
        ("SESSIONIZER__", "1", ["(set by SESSIONIZER__)", "not a known key"]),
        ("SESSIONIZER__SOURCE__KEY", "[user", ["SESSIONIZER__SOURCE__KEY", "not valid YAML"]),
        ("SESSIONIZER__SOURCE__KEY", "user_id", ["source.key", "must be a list", "[user_id]"]),
    ],
)
def test_a_wrong_variable_is_named(refusal: Refusal, variable: str, value: str, fragments: list[str]) -> None:
    assert_says(refusal(text_of(), **{variable: value}), *fragments)


# What is refused


@pytest.mark.parametrize(
    ("rest", "fragments"),
    [
        ("session: {gap: 0s}", ["session.gap must be longer than 0s: got '0s'.", "30m"]),
        ("session: {gap: -1m}", ["session.gap", "'-1m'"]),
        ("session: {gap: 30}", ["session.gap: durations need a unit: got 30.", "'30s'"]),
        ("session: {gap: 1:30}", ["session.gap", "'1:30'"]),
        ("session: {gap: null}", ["session.gap: a duration is text"]),
        ("session: {gap: {at_least: 5m}}", ["session.gap.expr is missing"]),
        ("session: {gap: {expr: x, at_least: 0s}}", ["session.gap.at_least must be longer than 0s"]),
        ("session: {gapp: 30m}", ["session.gapp is not a known key", "Did you mean gap?"]),
        ("session: {boundary: joins}", ["session.boundary is not a known key", "gap_boundary"]),
        ("session: {max_duration: 0s}", ["session.max_duration must be longer than 0s"]),
        ("session: {gap: 106751991d}", ["session.gap must be at most 10000000d", "no times are so far apart"]),
        ("session: {gap_boundary: split}", ["session.gap_boundary must be joins or splits", "mean splits?"]),
        ("session: 30m", ["session must hold `key: value` lines", "'30m'"]),
        ("time:", ["time must hold", "null"]),
        ("gap: 30m", ["gap is not a known key", "Did you mean session.gap?"]),
        ("windows: 30m", ["windows is not a known key", "Known here: source, sessions, session"]),
        ("sliding: {}", ["sliding.table is missing"]),
        ("expectations: [a, b]", ["expectations must be text"]),
        ("time: {lateness: group}", ["time.lateness must be event or session: got 'group'"]),
        ("time: {revive: true}", ["time can have revive only with lateness: session"]),
        ("time: {watermark: {per: key}}", ["must have an idle_timeout with clock: processing_time", "after: 7d"]),
        ("time: {watermark: {per: user}}", ["time.watermark.per must be table or key: got 'user'"]),
        ("time: {watermark: {per: [tenant]}}", ["must name columns of source.key", "'tenant'", "user_id"]),
        ("time: {watermark: {per: []}}", ["time.watermark.per must name a key column"]),
        ("time: {idle_timeout: {after: 0s}}", ["time.idle_timeout.after must be longer than 0s"]),
        ("time: {watermark: {from_: max_event_time}}", ["time.watermark.from_", "Did you mean from?"]),
        ("time: {watermark: {delay: -5m}}", ["time.watermark.delay must not be negative: got '-5m'"]),
        ("time: {allowed_lateness: -1s}", ["time.allowed_lateness must not be negative"]),
        ("late_events: keep", ["late_events must be quarantine, drop, amend, separate or fail: got 'keep'"]),
        ("invalid_events: amend", ["invalid_events must be quarantine, drop or fail: got 'amend'"]),
        ("corrections: keep", ["corrections must be apply, quarantine or fail: got 'keep'"]),
        ("corrections: {deletes: quarantine}", ["corrections.deletes must be apply, ignore or fail: got 'quarantine'"]),
        ("corrections: {updates: ignore}", ["corrections.updates must be apply or fail: got 'ignore'"]),
        ("corrections: {erase_when: a > 1}", ["erase_when only with deletes: ignore", "a > 1"]),
        ("corrections: {erases: a > 1}", ["corrections.erases is not a known key"]),
        ("outputs: {session_updates: lake/sessions}", ["outputs.session_updates must not be the same place"]),
        ("outputs: {runs: lake/sessions}", ["sessions.table and outputs.runs must not be the same place"]),
        ("outputs: {runs: lake/events/runs/}", ["source.table and outputs.runs", "inside the other"]),
        (
            "limits: {max_events_per_run: 0}",
            ["limits.max_events_per_run must be a whole number of at least 1"],
        ),
        ("limits: {max_events_per_run: many}", ["limits.max_events_per_run", "'many'"]),
        ("limits: {max_events_per_run: true}", ["limits.max_events_per_run", "True"]),
        ("spark: {a: [1]}", ["spark.a must be text, a whole number, true or false", "[1]"]),
        ("aggregates: [{name: a, fn: sum}]", ["aggregates[0] must say of what: got 'sum'", "`of: `"]),
        ("aggregates: [{name: a, fn: median, of: x}]", ["aggregates[0].fn must be count, sum", "'median'"]),
        ("aggregates: [{name: a}]", ["aggregates[0] must have fn or sql: got 'a'", "`fn: `"]),
        ("aggregates: [{name: a, sql: x, fn: sum, of: x}]", ["must have nothing beside name and sql", "Remove fn, of"]),
        ("aggregates: [{name: a, sql: x, at_most: 2}]", ["must have nothing beside name and sql", "Remove at_most"]),
        (
            "aggregates: [{name: a, fn: approx_percentile, of: x}]",
            ["aggregates[0] must have percentile", "`percentile: `"],
        ),
        (
            "aggregates: [{name: a, fn: approx_percentile, of: x, percentile: 95}]",
            ["aggregates[0].percentile must be a number from 0 to 1: got 95. Write 0.95"],
        ),
        ("aggregates: [{name: a, fn: approx_percentile, of: x, percentile: p}]", ["a number from 0 to 1: got 'p'"]),
        ("aggregates: [{name: a, fn: max, of: x, percentile: 0}]", ["can have percentile only with approx_percentile"]),
        ("aggregates: [{name: a, fn: custom, of: x, initial: '0', merge: x}]", ["aggregates[0] must have update"]),
        ("aggregates: [{name: a, fn: sum, of: x, finish: acc}]", ["can have finish only with custom: got 'sum'"]),
        ("aggregates: [{name: a, fn: max, of: x, at_most: 1}]", ["aggregates[0] can have at_most only"]),
        ("aggregates: [{name: a, fn: set, of: x, at_most: 0}]", ["aggregates[0].at_most", "at least 1"]),
        (
            "aggregates: [{name: a, fn: max, of: x, ignore_nulls: true}]",
            ["ignore_nulls only with first and last and custom"],
        ),
        ("aggregates: [{name: _a, fn: count}]", ["must not have a name that starts with _: got '_a'"]),
        ("aggregates: [{name: '', fn: count}]", ["aggregates[0].name must not be empty"]),
        ("aggregates: [{name: a, fn: count}, {name: A, fn: count}]", ["aggregates must have names", "'A'"]),
        ("aggregates: [{name: Status, fn: count}]", ["aggregates must have names", "'Status'"]),
        ("aggregates: [{name: USER_ID, fn: count}]", ["aggregates must have names", "'USER_ID'"]),
        (
            "aggregates: [{name: a, fn: set, of: x, at_most: 1}, {name: a_truncated, fn: count}]",
            ["aggregates must have names", "'a_truncated'"],
        ),
        ("session: {gap: 1h}\nsession: {gap: 2h}", ["line 4", "'session' is there twice"]),
        ("session: {gap: 1h, gap: 2h}", ["line 3", "'gap' is there twice"]),
        ("session: {gap: 1h", ["not valid YAML", "line"]),
        ("session: {[gap]: 1h}", ["not valid YAML", "line 3"]),
        (f"limits: {{max_events_per_run: {'9' * 5000}}}", ["limits.max_events_per_run", "'999"]),
        ("session: !!python/name:os.system {}", ["not valid YAML"]),
    ],
)
def test_a_wrong_field_is_named_with_its_value_and_a_remedy(refusal: Refusal, rest: str, fragments: list[str]) -> None:
    assert_says(refusal(text_of(rest)), "sessionizer.yaml", *fragments)


@pytest.mark.parametrize(
    ("source", "sessions", "fragments"),
    [
        (
            "start: soon",
            "",
            ["source.start must be earliest, latest, {version: N} or {timestamp: T}", "'soon'"],
        ),
        ("start: {version: 1, timestamp: 2026-01-01}", "", ["source.start must be earliest, latest"]),
        ("start: {version: -1}", "", ["source.start.version must be a whole number of at least 0", "-1"]),
        ("start: {timestamp: yesterday}", "", ["source.start.timestamp must be an ISO 8601", "'yesterday'"]),
        ("where: ' '", "", ["source.where must not be empty"]),
        ("where: true", "", ["source.where must be text", "True", "quotes"]),
        ("dedupe: {by: [id]}", "", ["source.dedupe.within is missing"]),
        ("dedupe: {by: [], within: 1d}", "", ["source.dedupe.by"]),
        ("null_keys: drop", "", ["source.null_keys must be reject or group"]),
        ("", "change_feed: yes", ["sessions.change_feed must be true or false: got 'yes'"]),
        ("", "partition_by: [session_date]", ["sessions.partition_by must be [is_final] or"]),
        (
            "",
            "partition_by: [is_final, country]",
            ["sessions.partition_by[1] must be is_final or session_date"],
        ),
        ("event_time: {arrival: a b}", "", ["source.event_time.arrival", "a b"]),
        ("event_time: {came: at}", "", ["source.event_time.came is not a known key"]),
    ],
)
def test_a_wrong_field_of_a_required_section_is_named(
    refusal: Refusal, source: str, sessions: str, fragments: list[str]
) -> None:
    assert_says(refusal(text_of(source=source, sessions=sessions)), *fragments)


@pytest.mark.parametrize(
    ("key", "fragments"),
    [
        ("user_id", ["source.key must be a list", "[user_id]"]),
        ("[user_id, USER_ID]", ["source.key must name each column once", "'USER_ID'"]),
        ("[Run_Id]", ["source.key must not name a column that the written tables have", "'Run_Id'"]),
        ("[_state]", ["'_state'"]),
        ("[reason]", ["'reason'"]),
        ("[1]", ["source.key[0] must be text: got 1"]),
        ("['']", ["source.key[0] must not be empty"]),
        ("[user.id, device.id]", ["must name each column once", "'id'", "give it a name here: {name: …, expr: …}"]),
        ("[job.status]", ["must not name a column that the written tables have", "'status'"]),
        ("[user.__id]", ["source.key must make no column whose name begins with __", "'__id'"]),
        ("[{name: who}]", ["source.key[0].expr is missing"]),
        ("[{expr: a}]", ["source.key[0].name is missing"]),
        ("[{name: who, expr: a, type: int}]", ["source.key[0].type is not a known key"]),
        ("[id, {name: ID, expr: a}]", ["must name each column once", "'ID'"]),
        ("[{name: run_id, expr: a}]", ["'run_id'"]),
    ],
)
def test_a_wrong_key_is_refused(refusal: Refusal, key: str, fragments: list[str]) -> None:
    assert_says(refusal(f"source: {{table: db.e, key: {key}}}\nsessions: {{table: db.s}}"), *fragments)


@pytest.mark.parametrize(
    "table", ["''", "s3a://bucket", "s3a://bucket/", "/", "a..b", "a.b.c.d", "a b.c", "a.b-c", "a.1"]
)
def test_a_location_that_names_no_table_is_refused(refusal: Refusal, table: str) -> None:
    assert_says(refusal(f"source: {{table: db.e, key: []}}\nsessions: {{table: {table}}}"), "sessions.table must")


@pytest.mark.parametrize(
    ("events", "sessions"),
    [
        ("lake/x", "./lake/../lake/x/"),
        ("file:///lake/x", "/lake/x"),
        ("s3a://lake/x", "s3a://lake/x/"),
        ("db.x", "DB.X"),
        ("db.x", "spark_catalog.`DB`.x"),
        ("lake", "lake/x"),
    ],
)
def test_no_two_tables_share_a_place(refusal: Refusal, events: str, sessions: str) -> None:
    message = refusal(f"source: {{table: '{events}', key: []}}\nsessions: {{table: '{sessions}'}}")
    assert_says(message, "source.table and sessions.table must not be the same place")


def test_places_that_only_begin_alike_are_different(load: Load) -> None:
    load("source: {table: lake/x, key: []}\nsessions: {table: lake/xy}")


def test_all_problems_are_listed_line_by_line(refusal: Refusal) -> None:
    message = refusal("source: {key: []}\nsession: {gap: 30}\nlate_event: quarantine")
    heading, *lines = message.splitlines()
    assert heading.endswith("has 4 problems:")
    assert [line.split()[1].rstrip(":") for line in lines] == [
        "source.table",
        "sessions",
        "session.gap",
        "late_event",
    ]
    assert_says(message, "Add it: Path, URL", "Did you mean late_events?")


def test_an_error_keeps_rule_value_and_remedy_apart(load: Load) -> None:
    with pytest.raises(ConfigError) as error:
        load(text_of("session: {gap: 0s}"))
    assert error.value.rule.endswith("session.gap must be longer than 0s")
    assert (error.value.value, error.value.remedy) == ("0s", "Use a duration such as 30m")
    assert error.value.exit_code == 2


@pytest.mark.parametrize("text", ["- a", "text", "1"])
def test_a_file_without_fields_is_refused(refusal: Refusal, text: str) -> None:
    assert_says(refusal(text), "must hold `key: value` lines", "source:")


def test_a_file_that_is_not_there_or_a_folder_or_binary_is_refused(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\xfa\x00\x80")
    for path, fragment in ((tmp_path / "no.yaml", "no config file"), (tmp_path, "folder"), (binary, "UTF-8")):
        with pytest.raises(ConfigError, match=fragment) as error:
            load_config(path, {})
        assert str(path) in str(error.value)


def test_a_file_is_found_by_the_other_suffix_of_yaml(tmp_path: Path) -> None:
    file = tmp_path / "sessionizer.yml"
    file.write_text(
        "source: {table: events, key: [u], event_time: at}\nsession: {gap: 5m}\nsessions: {table: sessions}\n"
    )
    assert load_config(tmp_path / "sessionizer.yaml", {}) == load_config(file, {})


# Keys that the source has not


def key_from(load: Load, key: str, rest: str = "") -> Config:
    return load(f"source: {{table: db.e, key: {key}}}\nsessions: {{table: db.s}}\n{rest}")


def test_a_key_is_a_column_a_field_within_one_or_sql_under_a_name(load: Load) -> None:
    source = key_from(load, "[tenant, User.id, {name: who, expr: 'coalesce(a, b)'}, '`a.b`', 'a b']").source
    assert source.key == ("tenant", "id", "who", "a.b", "a b")
    assert [(made.name, made.expr) for made in source.made] == [("id", "User.id"), ("who", "coalesce(a, b)")]
    assert source.own_key == ("tenant", "a.b", "a b")


def test_a_column_of_the_whole_name_comes_before_a_field(load: Load) -> None:
    config = key_from(load, "[user.id, device.id2]", "time: {watermark: {per: [User.Id]}}")
    assert (config.source.key, config.source.scope(("User.Id",))) == (("id", "id2"), ("id",))
    whole = config.over(["USER.ID", "device"])
    assert (whole.source.key, whole.source.own_key) == (("user.id", "id2"), ("user.id",))
    assert whole.source.scope(("User.Id",)) == ("User.Id",)
    assert whole.over(["USER.ID", "device"]) == whole
    assert config.over(["user", "device"]) == config


def test_a_watermark_may_be_of_keys_that_the_source_has_not(load: Load, refusal: Refusal) -> None:
    key = "[user.org, {name: who, expr: a}]"
    config = key_from(load, key, "time: {watermark: {per: [user.org, who]}}")
    assert config.rule_summary()["watermark_per"] == ["org", "who"]
    text = f"source: {{table: db.e, key: {key}}}\nsessions: {{table: db.s}}\ntime: {{watermark: {{per: [a]}}}}"
    assert_says(refusal(text), "time.watermark.per must name columns of source.key", "Use some of: org, who")


def test_the_name_of_a_made_key_is_of_no_aggregate(refusal: Refusal) -> None:
    text = "source: {table: db.e, key: [user.id]}\nsessions: {table: db.s}\naggregates: [{name: ID, fn: count}]"
    assert_says(refusal(text), "aggregates must have names that nothing else in the sessions table has", "'ID'")


# The fingerprint and the schema


@pytest.mark.parametrize(
    "changed",
    [
        text_of("session: {gap: 31m}"),
        text_of("session: {gap_boundary: splits}"),
        text_of("aggregates: [{name: n, fn: count}]"),
        text_of(source="where: a"),
        text_of(source="event_time: ts"),
        text_of(source="order_by: [id]"),
        text_of(source="null_keys: group"),
        "source: {table: lake/events, key: [user]}\nsessions: {table: lake/sessions}",
        "source: {table: lake/events, key: [{name: user_id, expr: user}]}\nsessions: {table: lake/sessions}",
    ],
)
def test_whatever_changes_a_session_row_changes_the_fingerprint(load: Load, changed: str) -> None:
    assert load(changed).fingerprint() != load(text_of()).fingerprint()


@pytest.mark.parametrize(
    "same",
    [
        text_of("session: {gap: 1800s}"),
        text_of("time: {allowed_lateness: 1h, watermark: {delay: 5m}}"),
        text_of("limits: {max_events_per_run: 5}\nspark: {a: 1}"),
        text_of(source="start: latest", sessions="change_feed: false"),
        "source: {table: db.e, key: [user_id]}\nsessions: {table: db.s}",
        "source: {table: db.e, key: ['`user_id`']}\nsessions: {table: db.s}",
    ],
)
def test_nothing_else_changes_the_fingerprint(load: Load, same: str) -> None:
    assert load(same).fingerprint() == load(text_of()).fingerprint()


def test_the_rule_summary_reads_like_the_file(load: Load) -> None:
    aggregates = "aggregates: [{name: b, fn: sum, of: x}, {name: a, fn: count}]"
    assert load(text_of(aggregates)).rule_summary() == {
        "key": ["user_id"],
        "event_time": "event_time",
        "where": None,
        "order_by": [],
        "null_keys": "reject",
        "gap": "30m0s",
        "gap_boundary": "joins",
        "aggregates": [{"name": "a", "fn": "count"}, {"name": "b", "fn": "sum", "of": "x"}],
    }


def test_what_makes_a_key_is_part_of_the_rule(load: Load) -> None:
    told = [key_from(load, key).rule_summary()["key"] for key in ("[{name: id, expr: user.id}]", "[user.id]")]
    assert told == [[{"name": "id", "expr": "user.id"}]] * 2
    made = [key_from(load, f"[{{name: who, expr: {expr}}}]").fingerprint() for expr in ("a", "b")]
    assert made[0] != made[1]


def test_the_schema_describes_every_field_and_writes_defaults_as_the_file_does() -> None:
    schema = json_schema()
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    objects: list[dict[str, Any]] = [schema, *schema["$defs"].values()]
    fields = {(o["title"], name): field for o in objects for name, field in o["properties"].items()}
    assert [name for name, field in fields.items() if "description" not in field] == []
    assert fields["SessionRule", "gap"]["default"] == "30m0s"
    assert fields["Watermark", "from"]["default"] == "max_event_time"
    assert json.loads(json.dumps(schema)) == schema


@pytest.mark.parametrize(
    ("of", "sql"), [("cart-total", "`cart-total`"), ("2024", "`2024`"), ("cart - total", "cart - total")]
)
def test_the_name_of_a_column_stands_for_it_in_what_is_of_one_source(of: str, sql: str) -> None:
    value = Aggregate(name="a", fn="sum", of=of, source="web").value(["cart", "total", "cart-total", "2024"])
    assert value == f"CASE WHEN source = 'web' THEN ({sql}\n) END"
