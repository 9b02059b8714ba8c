"""The layers: lib is pure, tables alone knows Delta, jobs composes, airflow_dags calls; jobs alone reads the clock.

Within lib admission (which events count) and windows (what they make) do not know each other; jobs/run brings them
together. Packages import each other one way.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PRODUCT = "sessionizer"
HOME = ROOT / PRODUCT
FORBIDDEN_IMPORTS = {
    "lib": {"tables", "jobs", "delta", "deltalake", "airflow", "airflow_dags"},
    "tables": {"jobs", "airflow", "airflow_dags"},
    "jobs": {"delta", "deltalake", "airflow", "airflow_dags"},
}
# What each package of lib may import of the others; modules of lib itself are `lib`.
ROOMS = {
    "lib.admission": {"lib", "lib.config", "lib.schema", "lib.time"},
    "lib.windows": {"lib", "lib.aggregates", "lib.config", "lib.time"},
    "lib.reading": {"lib", "lib.time", "lib.windows"},
    "lib.verifying": {"lib", "lib.admission", "lib.config", "lib.time"},
    "lib.aggregates": {"lib", "lib.config"},
    "lib.schema": {"lib"},
    "lib.time": {"lib"},
    "lib.config": {"lib"},
    "lib": {"lib.config", "lib.time"},
}
# Modules of jobs that know both halves: they make changes of the accepted bag, and windows of these.
COMPOSE = {"pipeline.py", "context.py", "kinds.py"}
# What verify shares with the run that it judges: words and comparisons, but nothing that makes sessions or the bag.
SHARED = {
    *(
        "lib.columns",
        "lib.rule",
        "lib.config",
        "lib.durations",
        "lib.expressions",
        "lib.canonical",
        "lib.compare",
        "lib.joins",
    ),
    *("lib.bags", "lib.admission.validate", "lib.admission.verdicts", "lib.time.micros", "lib.time.watermarks"),
}
STARTS_A_JOB = {"collect", "count", "first", "head", "take", "isEmpty", "toPandas", "localCheckpoint", "checkpoint"}
STARTS_A_JOB |= {"persist", "cache", "foreach", "show", "write"}
MOST_MODULES, MOST_LINES = 12, 300
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


def within(module: str) -> str:
    """The name within the product: `lib.rule` of `sessionizer.lib.rule`."""
    return module.removeprefix(f"{PRODUCT}.")


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (within(alias.name).split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "a relative import" if node.level else within(node.module or "").split(".")[0]


def modules_imported(tree: ast.AST) -> Iterator[str]:
    """Names within the product: `lib.time.watermarks`; of `from sessionizer.lib import columns` it is `lib.columns`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (within(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            module = within(node.module)
            names = (f"{module}.{alias.name}" for alias in node.names)
            yield from names if module in ROOMS else iter((module,))


def room_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if ".".join(parts[:2]) in ROOMS else parts[0]


def jobs_started(tree: ast.AST) -> Iterator[str]:
    """Methods without arguments of Column look the same, so F's functions and those of strings are left out."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in STARTS_A_JOB:
            owner = node.func.value
            if not (isinstance(owner, ast.Name) and owner.id == "F"):
                yield ast.unparse(node.func)


def product_files() -> list[Path]:
    return [file for layer in ("lib", "tables", "jobs") for file in sorted((HOME / layer).rglob("*.py"))]


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
    for file in sorted((HOME / layer).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        forbidden = FORBIDDEN_IMPORTS[layer] | {"a relative import"}
        found += [f"{file.name} imports {name}" for name in imported(tree) if name in forbidden]
        if layer != "jobs":
            found += [f"{file.name} reads the clock: {name}" for name in clocks_read(tree)]
    return found


@pytest.mark.parametrize("layer", sorted(FORBIDDEN_IMPORTS))
def test_each_layer_imports_only_what_it_may(layer: str) -> None:
    assert (HOME / layer / "__init__.py").is_file()
    assert offences(layer) == []


def test_admission_and_windows_do_not_know_each_other_and_packages_import_one_way() -> None:
    wrong = []
    for file in sorted((HOME / "lib").rglob("*.py")):
        tree, own = ast.parse(file.read_text(encoding="utf-8")), ".".join(file.relative_to(HOME).parts)
        room = room_of(own)
        rooms = {room_of(name) for name in modules_imported(tree) if name.split(".")[0] == "lib"}
        wrong += [f"{own} imports {other}" for other in rooms if other != room and other not in ROOMS[room]]
    assert wrong == []


def test_verify_shares_no_step_with_the_run() -> None:
    files = sorted((HOME / "lib" / "verifying").rglob("*.py"))
    known = {name for file in files for name in modules_imported(ast.parse(file.read_text(encoding="utf-8")))}
    own = {f"lib.verifying.{file.stem}" for file in files}
    ours = {"lib.config" if name.startswith("lib.config.") else name for name in known if name.startswith("lib")}
    assert ours <= SHARED | own
    command = ast.parse((HOME / "jobs" / "commands" / "verify.py").read_text(encoding="utf-8"))
    rooms = {room_of(name) for name in modules_imported(command)}
    assert not rooms & {"lib.admission", "lib.windows", "lib.aggregates"}


def test_only_the_run_knows_both_halves() -> None:
    knowing = set()
    for file in sorted((HOME / "jobs").rglob("*.py")):
        rooms = {room_of(name) for name in modules_imported(ast.parse(file.read_text(encoding="utf-8")))}
        knowing |= {file.name} if {"lib.admission", "lib.windows"} <= rooms else set()
    assert knowing <= COMPOSE | {"policies.py", "gaps.py"}
    assert "pipeline.py" in knowing


def test_lib_starts_no_job_of_its_own() -> None:
    found = []
    for file in sorted((HOME / "lib").rglob("*.py")):
        found += [f"{file.name}: {call}" for call in jobs_started(ast.parse(file.read_text(encoding="utf-8")))]
    # Counting in text, and a list's head in Java, start none.
    assert found == ["engine.py: plan.expressions().head"]


def test_no_package_and_no_module_is_too_large() -> None:
    folders = {file.parent for file in product_files()}
    modules = {folder: [f for f in folder.glob("*.py") if f.name != "__init__.py"] for folder in folders}
    assert {f"{folder}: {len(of)}" for folder, of in modules.items() if len(of) > MOST_MODULES} == set()
    lines = {file: len(file.read_text(encoding="utf-8").splitlines()) for file in product_files()}
    assert {f"{file}: {number}" for file, number in lines.items() if number > MOST_LINES} == set()


def test_the_dags_only_call_the_command_line() -> None:
    files = sorted((ROOT / "airflow_dags").rglob("*.py"))
    names = {(file.name, name) for file in files for name in imported(ast.parse(file.read_text(encoding="utf-8")))}
    assert {file.name for file in files} >= {"sessionize.py", "backfill.py", "maintain.py", "verify.py"}
    of_its_provider = {("lineage.py", "attrs"), ("lineage.py", "openlineage")}
    assert {(file, name) for file, name in names if name not in OF_AIRFLOW} == of_its_provider


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import sessionizer.tables.events", "tables"),
        ("from sessionizer.jobs.cli import main", "jobs"),
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
