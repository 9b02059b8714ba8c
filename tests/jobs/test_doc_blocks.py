"""Every fenced block of the documentation runs as it stands; those that cannot are named here, with the reason."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sessionizer.jobs.commands.init import init
from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.quality.expectations import read_suite
from sessionizer.jobs.queries.sql import query_frame
from sessionizer.jobs.run.driver import increments
from sessionizer.jobs.run.kinds import kind_of
from sessionizer.jobs.run.phases import RunOptions
from sessionizer.lib.config import Config
from tests.doc_blocks import PAGES, ROOT, Block, blocks, blocks_of
from tests.shell import Shell
from tests.text_tables import clock

# What is checked in part, or not at all, and why.
OF_AIRFLOW, OF_A_CLUSTER = "needs Airflow: make test-airflow runs the DAGs", "needs a cluster of its own"
PARSED_ONLY = {
    **{f"docs/airflow.md bash {n}": OF_AIRFLOW for n in (1, 2, 3, 4, 5, 6, 8, 9, 10)},
    "docs/airflow.md bash 7": OF_A_CLUSTER,
    "docs/catalogs.md bash 1": "Spark's own command line, upon a metastore in a folder of somebody's",
    "docs/operations.md bash 6": OF_A_CLUSTER,
    "docs/operations.md bash 7": "a server: tests/connect_server.py starts one so",
    "docs/operations.md sql 1": "restores a table of somebody's to a version of theirs",
    "docs/airflow.md python 1": OF_AIRFLOW,
    "docs/airflow.md python 2": OF_AIRFLOW,
    "docs/sliding.md python 1": "reads changes since a version of somebody's table",
}
NOT_CODE = {
    "README.md mermaid 1": "a picture",
    "docs/architecture.md plain 1": "a picture",
    "docs/concepts.md text 1": "a picture",
    "docs/architecture.md plain 2": "a picture",
    "docs/metrics.md plain 1": "alerts in the language of Prometheus",
    "docs/operations.md ini 1": "a unit of systemd, with the command of a block beside it",
    "docs/quick-start.md plain 1": "a line of cron; its command is that of other blocks",
    "docs/airflow.md json 1": "an answer, in part",
    "docs/tables.md json 1": "an answer, in part",
}
OF_THE_DEMO = "docs/tables.md sql"  # whose queries test_demo.py asks
KINDS = ("bash", "yaml", "sql", "python")
SHELL = re.compile(r"(?:sessionizer|make|mkdir|cat|source|cd) ")
MINIMAL = """
source: {table: warehouse/events, key: [user_id]}
sessions: {table: warehouse/sessions}
session: {gap: 30m}
"""
LAKE = """
source: {table: warehouse/events, key: [user_id], event_time: at}
sessions: {table: warehouse/sessions}
session: {gap: 30m}
aggregates:
  - {name: pages, fn: count_distinct, of: page}
  - {name: orders, fn: count, of: "CASE WHEN amount > 0 THEN 1 END"}
  - {name: revenue, fn: sum, of: amount}
  - {name: entry_page, fn: first, of: page}
sliding: {table: warehouse/windows, time_difference: 10m}
"""
CLICKS = [("ann", clock("10:00"), "/", 0.0), ("ann", clock("10:05"), "/pay", 12.5), ("alice", clock("12:00"), "/", 0.0)]
MORE_CLICKS = [("ann", clock("10:20"), "/", 0.0), ("bob", clock("12:10"), "/", 1.0)]


def named(found: list[Block]) -> list[object]:
    return [pytest.param(block, id=block.name) for block in found]


def test_each_block_is_of_a_kind_that_is_run_or_named_with_a_reason() -> None:
    every = {block.name: block for page in PAGES for block in blocks_of(page)}
    assert {name for name, block in every.items() if block.language not in KINDS} == set(NOT_CODE)
    assert set(PARSED_ONLY) <= set(every)
    fences = sum(len(re.findall(r"^ *```", page.read_text(encoding="utf-8"), re.MULTILINE)) for page in PAGES)
    assert fences == 2 * len(every)


@pytest.mark.parametrize("block", named(blocks("bash")))
def test_shell_is_such_and_starts_what_is_there(block: Block) -> None:
    done = subprocess.run(["bash", "-n"], input=block.text, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    outside = re.sub(r"<<'END'.*?^END$", "", block.text, flags=re.DOTALL | re.MULTILINE)
    foreign = [line for line in outside.replace("\\\n", " ").splitlines() if line and not SHELL.match(line)]
    assert bool(foreign) == (block.name in PARSED_ONLY), foreign
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(re.findall(r"\bmake ([a-z-]+)", outside)) <= set(targets)


@pytest.mark.parametrize("block", named(blocks("yaml")))
def test_configs_load_whole_or_pasted_to_a_small_one(block: Block, tmp_path: Path) -> None:
    parts, file = yaml.safe_load(block.text), tmp_path / "sessionizer.yaml"
    if isinstance(parts.get("expectations"), list):
        file.write_text(block.text)
        assert read_suite(file)
        return
    assert set(parts) <= set(Config.model_fields)
    file.write_text(block.text if "source" in parts else MINIMAL + block.text)
    loaded = load_config(file, env={}).model_dump(mode="json")
    assert all(loaded[name] is not None for name, value in parts.items() if value is not None)


def test_the_config_of_the_quick_start_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    (block,) = (b for b in blocks("bash", "docs/quick-start.md") if "sessionizer.yaml" in b.text)
    subprocess.run(["bash", "-e"], input=block.text, text=True, cwd=tmp_path, check=True)
    config = load_config(tmp_path / "sessionizer.yaml", env={})
    assert (config.source.key, [a.name for a in config.aggregates]) == (("user_id",), ["pages", "revenue"])


@pytest.mark.parametrize("block", named(blocks("python")))
def test_python_compiles(block: Block) -> None:
    compile(block.text, block.name, "exec")


@pytest.mark.parametrize("block", named(blocks("json")))
def test_answers_that_are_cut_are_json_but_for_the_cuts(block: Block) -> None:
    json.loads(re.sub(r'(?:, )?(?:"\w+": )?…', "", block.text))


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a config and tables that the pages talk of: two runs of sessions, one of windows."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "sessionizer.yaml").write_text(LAKE)
    config = load_config(folder / "sessionizer.yaml", env={})
    for number, rows in enumerate((CLICKS, MORE_CLICKS)):
        frame = spark.createDataFrame(rows, "user_id STRING, at TIMESTAMP, page STRING, amount DOUBLE").coalesce(1)
        frame.write.format("delta").mode("append").save(config.source.table)
        if number == 0:
            init(spark, config, None, lambda _: None)
        list(increments(kind_of(spark, config), RunOptions()))
    list(increments(kind_of(spark, config, windows=True), RunOptions(once=True)))
    with pytest.MonkeyPatch.context() as patched:
        patched.chdir(folder)
        yield folder


@pytest.mark.parametrize(
    "block", named([b for b in blocks("sql") if b.name not in PARSED_ONLY and OF_THE_DEMO not in b.name])
)
def test_queries_are_answered(lake: Path, spark: SparkSession, block: Block) -> None:
    query_frame(spark, load_config(lake / "sessionizer.yaml", env={}), block.text).collect()


def test_what_changes_a_table_is_sql_of_spark(spark: SparkSession) -> None:
    for block in blocks("sql"):
        if block.name in PARSED_ONLY:
            spark._jsparkSession.sessionState().sqlParser().parsePlan(block.text.strip())


@pytest.mark.broad
def test_python_runs_in_the_order_of_the_pages(lake: Path, spark: SparkSession) -> None:
    days = [
        spark.createDataFrame(rows, "user_id STRING, at TIMESTAMP, page STRING, amount DOUBLE")
        for rows in (CLICKS, MORE_CLICKS)
    ]
    known = {"spark": spark, "monday": days[0], "tuesday": days[1].where(F.col("user_id") != "nobody")}
    for block in blocks("python"):
        if block.name not in PARSED_ONLY:
            exec(compile(block.text, block.name, "exec"), known)
    assert (lake / "report.html").exists()


@pytest.mark.broad
def test_the_quick_start_from_its_first_line_to_its_last(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """But for the installation, which has made what runs here."""
    shell = Shell(capsys, monkeypatch, tmp_path)
    _, *following = blocks("bash", "docs/quick-start.md")
    for block in following:
        other = "\n".join(line for line in block.lines if not line.startswith("sessionizer "))
        done = subprocess.run(["bash", "-e"], input=f"{other}\npwd", text=True, capture_output=True, check=True)
        monkeypatch.chdir(done.stdout.splitlines()[-1])
        for words in block.commands:
            code, _, err = shell(*words)
            assert code == 0, (words, err)
    found = shell.json("sessions")
    assert [(row["user_id"], row["session_start"][11:16], row["pages"]) for row in found] == [
        ("ann", "10:00", 3),
        ("bob", "09:50", 3),
    ]
    assert {file.name for file in Path.cwd().iterdir()} >= {"ann.svg", "report.html", "warehouse"}
