"""What is told before Spark starts: each thing that stands in the way, and that there is nothing to do."""

import json
import shutil
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import types as T

from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.preflight import check, check_all, nothing_new
from sessionizer.jobs.run.kinds import ruled
from sessionizer.lib.errors import ConfigError, SessionizerError, SourceMismatch, TableError
from sessionizer.lib.expressions import column_problems
from sessionizer.tables.queries.local import LocalTableSet
from tests.jobs.test_without_spark import process
from tests.warehouse import FIRST_EVENTS, Warehouse

NO_JAVA = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
NEWS = """
user | at    | n
dan  | 12:10 | 1
"""


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """One run, and nothing new behind it; with its config file."""
    made = Warehouse(spark, tmp_path_factory.mktemp("lake"))
    made.append(FIRST_EVENTS)
    made.init()
    made.run()
    fields = made.config.model_dump(mode="json", exclude_none=True, include={"source", "session", "sessions"})
    fields["aggregates"] = [a.model_dump(mode="json", exclude_defaults=True) for a in made.config.aggregates]
    (made.folder / "sessionizer.yaml").write_text(yaml.safe_dump(fields))
    return made


def caught_up(lake: Warehouse, **variables: str) -> bool:
    config = load_config(lake.folder / "sessionizer.yaml", env=variables)
    return nothing_new(LocalTableSet(config), ruled(config)) is not None


def problems(lake: Warehouse, **variables: str) -> str:
    with pytest.raises(SessionizerError) as caught:
        check(load_config(lake.folder / "sessionizer.yaml", env=variables), "rule", columns=True)
    return str(caught.value)


def test_a_run_that_would_find_nothing_new_starts_no_java(lake: Warehouse) -> None:
    done = process("-m", "sessionizer.jobs.cli", "run", "--json", cwd=lake.folder, **NO_JAVA)
    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (0, "", {"runs": [], "caught_up": True})
    done = process("-m", "sessionizer.jobs.cli", "run", cwd=lake.folder, **NO_JAVA)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Nothing new: the source is consumed up to version 0, the watermark is 2026-01-01 12")


def test_a_run_that_may_have_something_to_do_is_left_to_spark(lake: Warehouse, tmp_path: Path) -> None:
    assert caught_up(lake)
    idle = "{after: 1h, clock: processing_time}"  # the clock alone may end sessions
    assert not caught_up(lake, SESSIONIZER__TIME__IDLE_TIMEOUT=idle)
    assert not caught_up(lake, SESSIONIZER__TIME__WATERMARK="{idle_after: 1h}")
    by_events = {"after": "1h", "clock": "event_time"}
    assert not caught_up(lake, SESSIONIZER__TIME__IDLE_TIMEOUT=json.dumps(by_events))  # which is new
    shutil.copytree(lake.folder, tmp_path / "copy")
    copy = Warehouse(lake.spark, tmp_path / "copy", time={"idle_timeout": by_events})
    copy.append("user|at|n\nann|12:30|1")
    copy.run()
    assert nothing_new(LocalTableSet(copy.config), ruled(copy.config))


def test_new_events_a_lost_ledger_and_a_restore_are_left_to_spark(lake: Warehouse, tmp_path: Path) -> None:
    def copied(name: str) -> Warehouse:
        shutil.copytree(lake.folder, tmp_path / name)
        return Warehouse(lake.spark, tmp_path / name)

    def is_caught_up(warehouse: Warehouse) -> bool:
        return nothing_new(LocalTableSet(warehouse.config), ruled(warehouse.config)) is not None

    other = copied("other")
    assert is_caught_up(other)
    other.append(NEWS)
    assert not is_caught_up(other)
    other.run()
    assert is_caught_up(other)
    place = other.tables.sessions.table.sql_name()
    other.spark.sql(f"RESTORE {place} TO VERSION AS OF {other.tables.sessions.table.version - 1}")
    assert not is_caught_up(other)
    bare = copied("bare")
    for file in Path(bare.config.outputs.runs).rglob("*.json"):
        if int(file.stem) > 0:  # cut off before the ledger had the run
            file.unlink()
    for file in Path(bare.config.outputs.runs).rglob("*.crc"):
        file.unlink()
    assert not is_caught_up(bare)


def test_all_that_stands_in_the_way_is_told_at_once(lake: Warehouse) -> None:
    said = problems(
        lake,
        SESSIONIZER__SOURCE__KEY="[usr]",
        SESSIONIZER__SOURCE__EVENT_TIME="att",
        SESSIONIZER__SOURCE__ORDER_BY="[seq]",
        SESSIONIZER__AGGREGATES="[{name: total, fn: sum, of: nn}]",
    )
    first, *lines = said.splitlines()
    assert first == "5 things stand in the way:"
    for fragment in (
        "source.key names a column that the source table does not have: got 'usr'. did you mean user? The table has:",
        "source.order_by names a column that the source table does not have: got 'seq'. the table has: user, at, n",
        "source.event_time does not fit the source table: got 'att'. did you mean at?",
        "aggregates.total.of does not fit the source table: got 'nn'. did you mean n?",
        "the rule has changed since the sessions table was made",
    ):
        assert any(fragment in line for line in lines), fragment


@pytest.mark.parametrize(
    ("variables", "kind", "says"),
    [
        ({"SOURCE__EVENT_TIME": "n"}, SourceMismatch, "source.event_time must be a TIMESTAMP"),
        ({"SOURCE__DEDUPE": "{by: [id], within: 1h}"}, ConfigError, "source.dedupe.by names a column"),
        ({"SESSION__GAP": "45m"}, ConfigError, "gap: '30m0s' → '45m0s'"),
        ({"SOURCE__TABLE": "/nowhere/events"}, TableError, "source.table does not exist"),
        ({"OUTPUTS__RUNS": "/nowhere/runs"}, TableError, "outputs.runs does not exist"),
        (
            {"OUTPUTS__RUNS": "/nowhere/runs", "OUTPUTS__REJECTED_EVENTS": "/nowhere/rejected"},
            TableError,
            "outputs.rejected_events and outputs.runs do not exist",
        ),
    ],
)
def test_one_thing_is_named_by_itself(
    lake: Warehouse, variables: dict[str, str], kind: type[SessionizerError], says: str
) -> None:
    env = {f"SESSIONIZER__{name}": value for name, value in variables.items()}
    config = load_config(lake.folder / "sessionizer.yaml", env=env)
    with pytest.raises((kind, ConfigError)) as caught:
        check(config, "rule", columns=True)
    assert says in str(caught.value)


def test_what_only_spark_can_tell_is_left_to_it(lake: Warehouse) -> None:
    file = lake.folder / "sessionizer.yaml"
    assert check(load_config(file, env={}), "rule", columns=True).tables is not None
    of_a_server = {"SESSIONIZER__SPARK": '{"spark.remote": "sc://there:15002"}'}
    elsewhere = {"SESSIONIZER__SOURCE__TABLE": "gs://lake/events"}
    for env in (of_a_server, elsewhere):
        assert check(load_config(file, env=env), "rule", columns=True).tables is None
        assert not check_all(load_config(file, env=env))
    for text in ("from_unixtime(att)", "CURRENT_TIMESTAMP", "at"):
        check(load_config(file, env={"SESSIONIZER__SOURCE__EVENT_TIME": text}), "source", columns=True)


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("[user.id]", "source.key names a field that the source table does not have: got 'user.id'"),
        ("[usr.id]", "source.key names a field that the source table does not have: got 'usr.id'"),
        ("[{name: who, expr: usr}]", "source.key.who does not fit the source table: got 'usr'. did you mean user?"),
        ("[{name: N, expr: user}]", "source.key gives a column a name that the source table has already: got 'N'"),
        ("[{name: who, expr: lower(usr)}]", None),
    ],
)
def test_of_keys_that_sql_makes_only_what_is_sure_is_told(lake: Warehouse, key: str, says: str | None) -> None:
    config = load_config(lake.folder / "sessionizer.yaml", env={"SESSIONIZER__SOURCE__KEY": key})
    if says is None:
        check(config, "source", columns=True)
        return
    with pytest.raises(SourceMismatch) as caught:
        check(config, "source", columns=True)
    assert says in str(caught.value)


def test_a_column_within_another_is_answered_with_how_to_make_it_one() -> None:
    columns = T.StructType([T.StructField("user", T.StructType([T.StructField("id", T.StringType())]))])
    (problem,) = column_problems(("User.Id",), columns, "source.order_by")
    assert "make it one of its own, as `ingest --rename User.Id=NEW` does" in str(problem)


GONE = {"SESSIONIZER__OUTPUTS__RUNS": "/nowhere/runs"}


def test_check_config_says_so_in_a_second(lake: Warehouse) -> None:
    done = process("-m", "sessionizer.jobs.cli", "check-config", cwd=lake.folder, **NO_JAVA)
    assert (done.returncode, done.stdout) == (0, "Nothing stands in the way in sessionizer.yaml.\n")
    wrong = {"SESSIONIZER__SOURCE__KEY": "[usr]", **NO_JAVA}
    done = process("-m", "sessionizer.jobs.cli", "check-config", cwd=lake.folder, **wrong)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean user?" in done.stderr
    gone = process("-m", "sessionizer.jobs.cli", "check-config", cwd=lake.folder, **NO_JAVA | GONE)
    assert (gone.returncode, "outputs.runs does not exist" in gone.stderr) == (2, True)
    done = process("-m", "sessionizer.jobs.cli", "check-config", "--file-only", "--json", cwd=lake.folder, **wrong)
    said = json.loads(done.stdout)
    assert (done.returncode, said["looked_at_tables"]) == (0, False)
    names = ("events", "sessions", "rejected_events", "runs")
    assert {name: said["tables"][name] for name in names} == {name: str(lake.folder / name) for name in names}


@pytest.mark.parametrize("command", ["verify", "backfill --from 2024-01-01 --to 2024-01-02 --dry-run"])
def test_what_needs_a_run_says_so_at_once_where_there_was_none(lake: Warehouse, tmp_path: Path, command: str) -> None:
    shutil.copytree(lake.folder, tmp_path / "lake")
    for file in (tmp_path / "lake" / "sessions" / "_delta_log").iterdir():
        if file.name.removeprefix(".").split(".")[0] != f"{0:020d}":  # what the run has committed
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    (tmp_path / "lake" / "sessionizer.yaml").write_text(
        (lake.folder / "sessionizer.yaml").read_text().replace(str(lake.folder), str(tmp_path / "lake"))
    )
    done = process("-m", "sessionizer.jobs.cli", *command.split(), cwd=tmp_path / "lake", **NO_JAVA)
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing has been consumed yet. `sessionizer run` comes first" in " ".join(done.stderr.split())


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["slide"], "the config has no sliding windows"),
        (["backfill", "--from", "2024-01-02", "--to", "2024-01-01"], "--from must be earlier than --to"),
        (["changes", "--mode", "append", "--windows"], "the config has no sliding windows"),
        (["changes", "--mode", "update", "--run", "77"], "there is no such run"),
        (["verify", "--from", "2024-01-02", "--to", "2024-01-02"], "--from must be earlier than --to"),
    ],
)
def test_what_was_asked_wrongly_is_told_at_once(lake: Warehouse, command: list[str], says: str) -> None:
    done = process("-m", "sessionizer.jobs.cli", *command, cwd=lake.folder, **NO_JAVA)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in " ".join(done.stderr.split())
