"""A quick start: the first process leaves an archive of its classes behind, and later ones begin with it."""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from sessionizer.jobs.spark import (
    COLLECTOR,
    HEAP,
    JAVA_OPTIONS,
    LOGS_KEPT,
    READ_BY_JAVA,
    _java_start,
    _log_file,
    cache_folder,
)
from sessionizer.jobs.starting import quick_start
from sessionizer.jobs.starting.quick_start import java_options

OLD = time.time() - 60


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(quick_start.SETTING, raising=False)


def option(folder: Path, jars: tuple[str, ...] = ()) -> str:
    return next((o for o in java_options(folder, jars, small=False).split() if o.startswith("-XX")), "")


def leave_draft(folder: Path, content: bytes, changed: float = OLD) -> Path:
    draft = Path(option(folder).split("=")[1])
    draft.write_bytes(content)
    os.utime(draft, (changed, changed))
    return draft


def test_the_first_process_writes_a_draft_and_the_next_one_takes_it_over(tmp_path: Path) -> None:
    assert option(tmp_path).startswith("-XX:ArchiveClassesAtExit=")
    draft = leave_draft(tmp_path, b"\xa8\xba\x0b\xf0 and all the rest")
    assert option(tmp_path).startswith("-XX:SharedArchiveFile=")
    assert not draft.exists()
    assert len(list(tmp_path.glob("*.jsa"))) == 1


def test_a_draft_that_is_being_written_is_left_alone(tmp_path: Path) -> None:
    draft = leave_draft(tmp_path, b"\0\0\0\0 so far", changed=time.time())
    assert option(tmp_path) == ""
    assert draft.exists()


def test_a_draft_that_was_cut_off_is_thrown_away(tmp_path: Path) -> None:
    draft = leave_draft(tmp_path, b"\0\0\0\0 so far")
    assert option(tmp_path).startswith("-XX:ArchiveClassesAtExit=")
    assert not draft.exists()


def test_other_jars_need_another_archive(tmp_path: Path) -> None:
    jar = tmp_path / "delta.jar"
    jar.write_bytes(b"1")
    names = {option(tmp_path), option(tmp_path, (str(jar),))}
    jar.write_bytes(b"22")
    names.add(option(tmp_path, (str(jar),)))
    assert len(names) == 3


def test_another_environment_needs_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Java compares the places of all jars with those of the archive, and says nothing where they differ."""
    names = set()
    for place in ("one", "other"):
        jar = tmp_path / place / "jars" / "spark-core.jar"
        jar.parent.mkdir(parents=True)
        jar.write_bytes(b"1")
        os.utime(jar, (OLD, OLD))
        monkeypatch.setenv("SPARK_HOME", str(tmp_path / place))
        names.add(option(tmp_path))
    jar.write_bytes(b"installed again")
    names.add(option(tmp_path))
    assert len(names) == 3


def test_only_the_latest_archives_are_kept(tmp_path: Path) -> None:
    for age in range(quick_start.KEPT + 2):
        old = tmp_path / f"classes-{age}.jsa"
        old.touch()
        os.utime(old, (OLD - age, OLD - age))
    option(tmp_path)
    leave_draft(tmp_path, b"\xa8\xba\x0b\xf0 and all the rest")
    ours = option(tmp_path).split("=")[1]
    kept = {str(file) for file in tmp_path.glob("*.jsa")}
    assert len(kept) == quick_start.KEPT
    assert {ours, str(tmp_path / "classes-0.jsa")} <= kept


def test_the_archive_can_be_switched_off_and_small_work_still_starts_quickly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(quick_start.SETTING, "off")
    assert java_options(tmp_path, (), small=False) == ""
    assert java_options(tmp_path, (), small=True) == quick_start.QUICK_COMPILER


@pytest.mark.parametrize("where", ["the config", "the environment"])
def test_the_collector_is_ours_unless_the_user_names_one(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    for name in READ_BY_JAVA:
        monkeypatch.delenv(name, raising=False)
    assert COLLECTOR in _java_start({}, {}, small=False)[JAVA_OPTIONS]
    if where == "the environment":
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-XX:+UseZGC")
    theirs = {JAVA_OPTIONS: "-XX:+UseZGC -Xss8m"} if where == "the config" else {JAVA_OPTIONS: "-Xss8m"}
    assert _java_start({}, theirs, small=False)[JAVA_OPTIONS] == theirs[JAVA_OPTIONS]


@pytest.mark.parametrize(
    ("settings", "is_ours"),
    [({}, True), ({"spark.driver.memory": "400m"}, False), ({JAVA_OPTIONS: "-Xmn99m"}, False)],
)
def test_java_begins_with_a_heap_that_small_runs_take_unless_the_user_says_how_much_there_is(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, str], *, is_ours: bool
) -> None:
    for name in READ_BY_JAVA:
        monkeypatch.delenv(name, raising=False)
    assert (HEAP in _java_start({}, settings, small=True)[JAVA_OPTIONS].split()) is is_ours


@pytest.mark.slow
def test_spark_itself_starts_with_classes_from_the_archive(tmp_path: Path) -> None:
    cache = tmp_path / "sessionizer" / cache_folder().name
    cache.mkdir(parents=True)
    for name in ("jars", "complete"):
        (cache / name).symlink_to(cache_folder() / name)
    log = tmp_path / "loaded.log"
    start = "from sessionizer.jobs.spark import spark_session; spark_session({named}).range(5).count()"
    told = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={log}"}
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", start.format(named="")], check=True, cwd=root, env=environment)
    written = wait_for_draft(cache)
    os.utime(written, (OLD, OLD))
    subprocess.run([sys.executable, "-c", start.format(named=told)], check=True, cwd=root, env=environment)
    from_archive = sum("shared objects file (top)" in line for line in log.read_text().splitlines())
    assert from_archive > 3_000


def wait_for_draft(cache: Path) -> Path:
    for _ in range(120):
        for draft in cache.glob("*.draft"):
            if any(draft.read_bytes()[:4]):
                return draft
        time.sleep(1)
    raise AssertionError(f"no archive came: {list(cache.iterdir())}")


def test_a_log_that_another_start_has_just_removed_stops_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    folder = _log_file().parent
    for number in range(LOGS_KEPT):
        (folder / f"spark-{number}.log").touch()
    (folder / "spark-gone.log").symlink_to(folder / "nowhere")  # listed, and not there to be looked at
    _log_file()
    assert len(list(folder.iterdir())) == LOGS_KEPT - 1  # and the one to come
    assert not (folder / "spark-gone.log").is_symlink()
