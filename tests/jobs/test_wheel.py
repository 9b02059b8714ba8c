"""The product as others install it: a wheel, in an environment that has nothing else, far from the checkout."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("sessionizer",)
CONFIG = """
source: {table: warehouse/events, key: [user]}
sessions: {table: warehouse/sessions}
aggregates: [{name: total, fn: sum, of: amount}]
spark: {spark.driver.memory: 1g}
"""
CLICKS = """user,event_time,amount
ann,2026-01-01T10:00:00Z,1
ann,2026-01-01T10:20:00Z,2
bob,2026-01-03T10:30:00Z,4
"""
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def call(*command: str | Path, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """A command that knows nothing of the checkout and of the environment that runs the tests."""
    hidden = ("PYTHON", "SESSIONIZER", "VIRTUAL_ENV", "SPARK", "PYSPARK")
    clean = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy of the sources, so that nothing of an earlier build gets into it."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in PACKAGES:
        shutil.copytree(ROOT / name, folder / "sources" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "sources" / name)
    call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, folder / "sources", cwd=folder)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the commands of an environment that holds the wheel with the extras `report` and `spark`."""
    folder = tmp_path_factory.mktemp("environment")
    call(sys.executable, "-m", "venv", folder, cwd=folder)
    pip = (folder / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    call(*pip, "-c", ROOT / "constraints.txt", f"{wheel}[report,spark]", cwd=folder)
    yield folder / "bin"
    shutil.rmtree(folder)


def test_the_wheel_has_every_file_of_the_packages_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        found = {name for name in archive.namelist() if ".dist-info/" not in name}
    files = {
        str(file.relative_to(ROOT))
        for name in PACKAGES
        for file in (ROOT / name).rglob("*")
        if file.is_file() and file.suffix != ".pyc"
    }
    assert found == files


def test_from_a_file_to_answers_far_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    sessionizer = installed / "sessionizer"
    (tmp_path / "sessionizer.yaml").write_text(CONFIG)
    (tmp_path / "clicks.csv").write_text(CLICKS)
    assert "ingest" in call(sessionizer, "--help", cwd=tmp_path).stdout
    assert json.loads(call(sessionizer, "schema", cwd=tmp_path).stdout)["title"] == "Config"

    load = ("ingest", "clicks.csv", "--format", "csv", "--schema", "amount double")
    for command in (load, ("init",), ("run",)):
        call(sessionizer, *command, cwd=tmp_path)
    query = 'SELECT "user", event_count, total FROM final_sessions'
    assert call(sessionizer, "sql", "--engine", "duckdb", "--csv", query, cwd=tmp_path).stdout.splitlines() == [
        "user,event_count,total",
        "ann,2,3.0",
    ]
    assert json.loads(call(sessionizer, "verify", "--json", cwd=tmp_path).stdout)["clean"]
    assert json.loads(call(sessionizer, "status", "--json", cwd=tmp_path).stdout)["sessions"]["open"] == 1
    call(sessionizer, "report", "-o", "page.html", cwd=tmp_path)
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_library_of_an_extra_is_asked_for_before_anything_starts(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "sessionizer.yaml").write_text(CONFIG)
    said = call(installed / "sessionizer", "check", cwd=tmp_path, code=2).stderr
    assert "pip install '.[quality]' in the checkout" in " ".join(said.split())
    assert "starting Spark" not in said
