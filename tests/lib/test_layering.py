"""The layers: lib is pure, tables alone knows Delta, jobs composes, airflow_dags calls; jobs alone reads the clock."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FORBIDDEN_IMPORTS = {
    "lib": {"tables", "jobs", "delta", "deltalake", "airflow", "airflow_dags"},
    "tables": {"jobs", "airflow", "airflow_dags"},
    "jobs": {"delta", "deltalake", "airflow", "airflow_dags"},
}
# Airflow's environment has neither this project nor Spark.
OF_AIRFLOW = {"airflow", "airflow_dags", *sys.stdlib_module_names}
FORBIDDEN_CALLS = {
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
    ("time", "time"),
    ("time", "time_ns"),
    ("F", "now"),
    ("F", "current_date"),
    ("F", "current_timestamp"),
    ("functions", "now"),
    ("functions", "current_date"),
    ("functions", "current_timestamp"),
}
CLOCKS = {("time", "time"), ("time", "time_ns")} | {call for call in FORBIDDEN_CALLS if call[0] == "functions"}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "a relative import" if node.level else (node.module or "").split(".")[0]


def clocks_read(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name | ast.Attribute):
            owner = node.value.id if isinstance(node.value, ast.Name) else node.value.attr
            if (owner, node.attr) in FORBIDDEN_CALLS:
                yield f"{owner}.{node.attr}"
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[-1]
            yield from (f"{module}.{alias.name}" for alias in node.names if (module, alias.name) in CLOCKS)


def offences(layer: str) -> list[str]:
    found = []
    for file in sorted((ROOT / layer).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        forbidden = FORBIDDEN_IMPORTS[layer] | {"a relative import"}
        found += [f"{file.name} imports {name}" for name in imported(tree) if name in forbidden]
        if layer != "jobs":
            found += [f"{file.name} reads the clock: {name}" for name in clocks_read(tree)]
    return found


@pytest.mark.parametrize("layer", sorted(FORBIDDEN_IMPORTS))
def test_each_layer_imports_only_what_it_may(layer: str) -> None:
    assert (ROOT / layer / "__init__.py").is_file()
    assert offences(layer) == []


def test_the_dags_only_call_the_command_line() -> None:
    files = sorted((ROOT / "airflow_dags").rglob("*.py"))
    names = {(file.name, name) for file in files for name in imported(ast.parse(file.read_text(encoding="utf-8")))}
    assert {file.name for file in files} >= {"sessionize.py", "backfill.py", "maintain.py", "verify.py"}
    assert {(file, name) for file, name in names if name not in OF_AIRFLOW} == set()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import tables.sessions", "tables"),
        ("from jobs.cli import main", "jobs"),
        ("def f():\n    import delta", "delta"),
        ("from . import errors", "a relative import"),
    ],
)
def test_the_check_sees_every_form_of_import(code: str, name: str) -> None:
    assert list(imported(ast.parse(code))) == [name]


@pytest.mark.parametrize(
    "code",
    [
        "datetime.now(UTC)",
        "datetime.datetime.now()",
        "from time import time",
        "time.time()",
        "F.current_timestamp()",
        "from pyspark.sql.functions import now",
    ],
)
def test_the_check_sees_a_clock_being_read(code: str) -> None:
    assert list(clocks_read(ast.parse(code)))
