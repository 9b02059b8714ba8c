"""What is read stays data, what is secret stays unseen, and a query changes nothing."""

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console

from sessionizer.jobs import console
from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.masking import masked
from sessionizer.jobs.queries import sql, sql_duckdb
from sessionizer.jobs.starting.remote import ALWAYS, taken_over
from sessionizer.lib.admission.validate import validate
from sessionizer.lib.aggregates.binding import bind
from sessionizer.lib.config import Aggregate
from sessionizer.lib.errors import ConfigError, RunFailed, SourceError, UsageError
from sessionizer.lib.expressions import expression
from sessionizer.lib.rule import Rule
from sessionizer.lib.time.watermarks import WatermarkState
from tests.shell import Shell
from tests.warehouse import Warehouse

# SQL in the config: an expression over one row, and nothing else.

ALONE = "must be computed from each row by itself"
REPEATS = "must give the same value whenever it is computed"
PARSES = "neither a column nor an SQL expression"
FITS = "does not fit the source table"
NAMES = "must name the columns that it means"


@pytest.fixture(scope="module")
def events(spark: SparkSession) -> DataFrame:
    spark.sql("SELECT 1 AS s").createOrReplaceTempView("elsewhere")
    return spark.createDataFrame(
        [], "user STRING, at TIMESTAMP, n INT, xs ARRAY<INT>, today STRING, w STRUCT<a: INT, b: INT>"
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("true; DROP TABLE sessions", PARSES),
        ("n > 0 UNION SELECT 1", PARSES),
        ("n > 0 LIMIT 1", PARSES),
        ("1 = 1) OR (1 = 1", PARSES),
        ("SELECT 1", PARSES),
        ("(SELECT max(s) FROM elsewhere) > 0", ALONE),
        ("EXISTS (SELECT 1 FROM text.`/etc/hostname`)", ALONE),
        ("n IN (SELECT s FROM elsewhere)", ALONE),
        ("window(at, '10 minutes', '5 minutes').start < at", ALONE),
        ("session_window(at, '5 minutes').start < at", ALONE),
        ("to_json(struct(*)) LIKE '%x%'", NAMES),
        ("hash(n, *) > 0", NAMES),
        ("hash(n, /* all */ *) > 0", NAMES),
        ("size(array(w.*)) > 0", NAMES),
        ("elsewhere.s > 0", FITS),
        ("sum(n) > 1", FITS),
        ("row_number() OVER (ORDER BY n) = 1", FITS),
        ("explode(xs) = 1", FITS),
        ("nobody > 1", FITS),
        ("no_such_function(n)", FITS),
        ("rand() > 0.5", REPEATS),
        ("uuid() = user", REPEATS),
        ("shuffle(xs)[0] = 1", REPEATS),
        ("monotonically_increasing_id() = 0", REPEATS),
        ("spark_partition_id() = 0", REPEATS),
        ("input_file_name() = user", REPEATS),
        ("java_method('java.lang.System', 'nanoTime') = user", REPEATS),
        ("try_reflect('java.lang.System', 'nanoTime') = user", REPEATS),
        ("now() > at", REPEATS),
        ("date_trunc('day', current_timestamp()) > at", REPEATS),
        ("curdate() > at", REPEATS),
        ("unix_timestamp() > n", REPEATS),
        ("current_user() = user", REPEATS),
        ("at > 'today'", REPEATS),
        ("at > TIMESTAMP'now'", REPEATS),
        ("to_date('yesterday') < at", REPEATS),
    ],
)
def test_an_expression_of_the_config_is_refused_unless_it_is_about_the_row(
    events: DataFrame, text: str, says: str
) -> None:
    with pytest.raises((ConfigError, SourceError)) as caught:
        expression(text, events, "source.where")
    assert str(caught.value).startswith(f"source.where {'is ' if says == PARSES else ''}{says}")
    assert caught.value.value == text
    assert caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        "user = 'today'",
        "today = 'now'",
        "user = '${env:HOME}'",
        "user <> ';DROP TABLE sessions'",
        "exists(xs, x -> x > 1)",
        "to_json(struct(user, at)) LIKE '%rand(*)%'",
        "n * n > 2.*n /* (* */",
        "replace(user, r'\\', '(*') > ''",
        "try_cast(user AS TIMESTAMP) > at",
        "n > 0 -- why not",
    ],
)
def test_an_expression_about_the_row_is_taken(events: DataFrame, text: str) -> None:
    assert events.select(expression(text, events, "source.where")).dtypes[0][1] == "boolean"


def test_a_dollar_in_an_expression_is_text(spark: SparkSession) -> None:
    assert spark.sql("SELECT '${env:HOME} ${spark.app.name}'").collect()[0][0] == "${env:HOME} ${spark.app.name}"


OTHERWISE = {"true": "false", "false": "true", "UTC": "Asia/Tokyo", "LAST_WIN": "EXCEPTION"}


def test_what_an_expression_means_no_setting_of_a_session_tells(spark: SparkSession) -> None:
    notebook = spark.newSession()
    for name, value in ALWAYS.items():
        notebook.conf.set(name, OTHERWISE.get(value, "TIMESTAMP_NTZ"))
    taken_over(notebook)
    texts = ('"user"', "'${env:HOME}'", "unix_seconds(try_cast('1970-01-01T02:00:00+02:00' AS TIMESTAMP))", "USER_")
    (row,) = notebook.sql("SELECT 'ann' AS user_").selectExpr(*texts).collect()
    assert tuple(row) == ("user", "${env:HOME}", 0, "ann")


@pytest.mark.parametrize(
    ("aggregate", "says"),
    [
        ({"fn": "first", "of": "window(at, '10 minutes', '5 minutes').start"}, ALONE),
        ({"sql": "(SELECT max(s) FROM elsewhere)"}, ALONE),
        ({"sql": "unix_seconds(now())"}, REPEATS),
        ({"fn": "custom", "of": "n", "initial": "0", "update": "(SELECT 1)", "merge": "left + right"}, ALONE),
        ({"fn": "custom", "of": "n", "initial": "0", "update": "acc) -> 1", "merge": "left + right"}, PARSES),
        ({"fn": "custom", "of": "n", "initial": "0", "update": "acc + n", "merge": "left"}, "does not fit what it can"),
        ({"fn": "set", "of": "user", "at_most": 10**12}, "less than or equal"),
    ],
)
def test_an_aggregate_is_refused_unless_it_is_about_the_row(
    events: DataFrame, aggregate: dict[str, Any], says: str
) -> None:
    with pytest.raises((ConfigError, ValueError), match=says):
        bind(Rule(key=("user",), gap=1, event_time="at", aggregates=(Aggregate(name="a", **aggregate),)), events)


@pytest.mark.parametrize("time", ["now()", "(SELECT max(s) FROM elsewhere)", "window(at, '1 hour').start"])
def test_an_event_time_is_refused_unless_it_is_about_the_row(events: DataFrame, time: str) -> None:
    with pytest.raises(ConfigError, match=f"source.event_time ({ALONE}|{REPEATS})"):
        validate(events, Rule(key=("user",), gap=1, event_time=time), WatermarkState(now=0))


# What reaches a terminal.


def on_a_terminal(*parts: Any) -> str:
    """What a terminal is sent for these."""
    out = Console(file=io.StringIO(), force_terminal=True, color_system=None, markup=False, width=200)
    for part in parts:
        out.print(part)
    sent = out.file.getvalue()  # type: ignore[attr-defined]
    return str(sent)


def test_values_cannot_act_on_a_terminal() -> None:
    hostile = ("\x1b]0;owned\x07", "\x9b31m", "a\rb", "\u202egnp.exe", "[red]x[/]", ":bug:", "z\ud800")
    sent = on_a_terminal(console.table(["n", "\x1b[1mname"], [[i, text] for i, text in enumerate(hostile)]))
    assert not set(sent) & set("\x1b\x07\x9b\r\u202e\ud800")
    for shown in ("\\x1b]0;owned\\x07", "\\x9b31m", "a\\rb", "\\u202egnp.exe", "[red]x[/]", ":bug:", "z\\ud800"):
        assert shown in sent
    assert on_a_terminal(console.table(["text"], [["größer 日本語 👩‍👩‍👧 \u3000"]])).split()[1] == "größer"


def test_names_of_files_are_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    with console.progress("reading [/tmp/a].csv") as say:
        say("[/b] \x1b[2J s3a://user:pass@bucket/x")
    assert capsys.readouterr().err == "reading [/tmp/a].csv\n[/b] \\x1b[2J s3a://*****@bucket/x\n"


def test_an_error_is_fit_for_a_terminal_and_names_no_password() -> None:
    error = str(RunFailed("it \x1b[31m failed", value="jdbc:x://ann:hunter2@host/db", remedy="ask ftp://b:hunter2@h"))
    assert error == "it \\x1b[31m failed: got 'jdbc:x://*****@host/db'. ask ftp://*****@h."
    server = str(RunFailed("no server", value="sc://host:1/;token=hunter2;user_id=ann", remedy="ask ann"))
    assert server == "no server: got 'sc://host:1/;*****'. ask ann."
    assert "hunter2" not in str(RunFailed("long", value="x" * 100 + "://ann:hunter2" + "2" * 200 + "@host"))


def test_a_wrong_setting_of_spark_is_told_without_its_secret(tmp_path: Path) -> None:
    file = tmp_path / "sessionizer.yaml"
    secret = {"spark.hadoop.fs.s3a.secret.key": ["hunter2"], "spark.executor.memory": ["shown"]}
    file.write_text(yaml.safe_dump({"source": {"table": "e", "key": []}, "sessions": {"table": "s"}, "spark": secret}))
    with pytest.raises(ConfigError) as caught:
        load_config(file, {})
    assert "hunter2" not in str(caught.value)
    assert "shown" in str(caught.value)


# A lake whose values are hostile, and whose config has secrets.

SECRET = "hunter2hunter2"
SECRETS = {
    "spark.hadoop.fs.s3a.secret.key": SECRET,
    "spark.hadoop.fs.s3a.access.key": SECRET,
    "spark.hadoop.fs.s3a.session.token": SECRET,
    "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": SECRET,
    "spark.hadoop.fs.azure.sas.container.lake": SECRET,
    "spark.hadoop.fs.gs.auth.credentials": SECRET,
    "spark.ssl.keyStorePassword": SECRET,
    "spark.hadoop.connection": f"jdbc:postgresql://ann:{SECRET}@host/db",
    "spark.hadoop.other.connection": f"Server=x;Password={SECRET};",
}
HOSTILE = ("<script>alert(1)</script>", "\x1b[31mred", '=HYPERLINK("http://x")', "[red]x[/]", 'a,"b"\nc', "\u202eevil")


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    made = Warehouse(spark, tmp_path_factory.mktemp("safety"), time={"allowed_lateness": "1h"})
    made.append_frame(
        spark.createDataFrame([(name, "2026-01-01 10:00:00", 1) for name in HOSTILE], "user STRING, at STRING, n INT")
        .selectExpr("user", "CAST(at AS TIMESTAMP) AS at", "n")
        .coalesce(1)
    )
    fields = made.config.model_dump(mode="json", exclude_none=True, include={"source", "sessions", "aggregates"})
    (made.folder / "sessionizer.yaml").write_text(yaml.safe_dump(fields | {"spark": SECRETS}))
    return made.init()


@pytest.fixture
def shell(lake: Warehouse, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capsys, monkeypatch, lake.folder)


@pytest.mark.slow
def test_no_secret_is_shown_or_stored_and_no_value_acts(shell: Shell, lake: Warehouse) -> None:
    now = ("--now", "2026-01-02T00:00:00Z")
    commands = (
        ("run", "--dry-run", *now),
        ("run", "--log-json", "--metrics-file", "metrics.prom", *now),
        ("status",),
        ("sessions", "--key", HOSTILE[1]),
        ("changes", "--mode", "update"),
        ("sql", "SELECT * FROM sessions"),
        ("sql", "--engine", "duckdb", "SELECT * FROM sessions"),
        ("verify",),
        ("report", "-o", "report.html"),
        ("sql", "SELECT nobody FROM sessions"),
        ("run", "--help"),
    )
    for command in commands:
        code, out, err = shell(*command)
        assert code == (2 if "nobody" in command[-1] else 0), err
        assert SECRET not in out + err
        assert not set(out + err) & set("\x1b\u202e")
        assert "Traceback" not in err
    for file in lake.folder.rglob("*"):
        if file.is_file() and file.name != "sessionizer.yaml":
            assert SECRET.encode() not in file.read_bytes(), file
    shown = yaml.safe_dump(masked(load_config(shell.folder / "sessionizer.yaml", {})))
    assert SECRET not in shown
    assert shown.count("'*****'") == len(SECRETS)
    page = (shell.folder / "report.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


@pytest.mark.slow
def test_csv_and_json_give_values_as_they_are(shell: Shell) -> None:
    query = "SELECT user FROM sessions ORDER BY user"
    _, out, _ = shell("sql", "--json", query)
    assert [row["user"] for row in json.loads(out)] == sorted(HOSTILE)
    for engine in ("spark", "duckdb"):
        _, out, _ = shell(
            "sql", "--csv", "--engine", engine, 'SELECT "user" FROM sessions' if engine == "duckdb" else query
        )
        assert '"=HYPERLINK(""http://x"")"\n' in out
        assert '"a,""b""\nc"\n' in out


CHANGES = (
    "INSERT INTO runs SELECT * FROM runs",
    "WITH x AS (SELECT 1) INSERT INTO runs SELECT * FROM runs",
    "FROM runs INSERT INTO runs SELECT *",
    "MERGE INTO sessions USING runs ON true WHEN MATCHED THEN DELETE",
    "UPDATE sessions SET total = 1",
    "DELETE FROM sessions",
    "TRUNCATE TABLE sessions",
    "DROP VIEW sessions",
    "CREATE TABLE x AS SELECT 1",
    "CREATE TEMP VIEW x AS SELECT 1",
    "SET x = 1",
    "ADD JAR '/x.jar'",
    "COPY (SELECT 1) TO 'stolen.csv'",
    "EXPORT DATABASE 'stolen'",
    "ATTACH 'stolen.db'",
    "INSTALL httpfs",
    "CALL x()",
    "EXECUTE IMMEDIATE 'DROP VIEW sessions'",
    "BEGIN SELECT 1; END",
    "SELECT 1; DROP VIEW sessions",
    "SELECT 1) UNION ALL SELECT * FROM (SELECT 2",
    "WITH d AS (DELETE FROM sessions RETURNING *) SELECT * FROM d",
    "SELECT TRANSFORM(user) USING 'touch stolen' FROM sessions",
    "SELECT * FROM runs WHERE run_id IN (SELECT TRANSFORM(user) USING 'touch stolen' AS (x) FROM sessions)",
    "MAP user USING 'touch stolen' FROM sessions",
    "SELECT java_method('java.lang.System', 'setProperty', 'a', 'b')",
    "SELECT " + ", ".join("1" * 300) + ", system.builtin.reflect('java.lang.System', 'exit', 1)",
    "SELECT * FROM read_csv('sessionizer.yaml')",
    "SELECT * FROM 'sessionizer.yaml'",
    "",
    ";",
)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["spark", "duckdb"])
def test_sql_is_a_query_and_nothing_else(lake: Warehouse, monkeypatch: pytest.MonkeyPatch, engine: str) -> None:
    monkeypatch.chdir(lake.folder)
    by_spark, by_duckdb = partial(sql.query_frame, lake.spark), sql_duckdb.checked_query
    asked = partial(by_spark if engine == "spark" else by_duckdb, lake.config)
    before, files = lake.versions(), sorted(lake.folder.rglob("*"))
    for query in CHANGES:
        with pytest.raises(UsageError):
            asked(query)
    assert lake.versions() == before
    assert sorted(lake.folder.rglob("*")) == files
