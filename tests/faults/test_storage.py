"""Full disks, missing files, files cut off: a named error, tables as they were, and after the repair a good run."""

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from sessionizer.jobs.cli import main
from sessionizer.jobs.failures import known_failure
from sessionizer.jobs.run import side_tables
from sessionizer.tables.delta import Table
from tests.faults.lakes import Contents, Stock, contents, lake_at, lost_and_doubled, waiting
from tests.jobs.driver import JOBS
from tests.kills import killed_at
from tests.processes import PATIENCE, ROOT
from tests.summary import Tally
from tests.warehouse import Warehouse

NOBODY = 65534
Harm = Callable[[Path], object]


class Shell:
    """Commands over a lake: exit code and what was told, in one line; never a traceback."""

    def __init__(self, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.capfd, self.monkeypatch = capfd, monkeypatch

    def __call__(self, lake: Warehouse, *command: str) -> tuple[int, str]:
        self.monkeypatch.setattr(sys, "argv", ["sessionizer", *(command or ("run",)), "-c", str(written(lake))])
        self.capfd.readouterr()
        with pytest.raises(SystemExit) as stopped:
            main()
        told = " ".join(self.capfd.readouterr().err.split())
        assert "Traceback" not in told
        return int(stopped.value.code or 0), told


def written(lake: Warehouse) -> Path:
    """The config file of a lake, beside it."""
    file = lake.folder.parent / f"{lake.folder.name}.yaml"
    file.write_text(yaml.safe_dump(lake.config.model_dump(mode="json", by_alias=True, exclude_unset=True)))
    return file


@pytest.fixture
def shell(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    return Shell(capfd, monkeypatch)


@pytest.fixture
def lake(stock: Stock, tmp_path: Path) -> Warehouse:
    stock.copy(waiting, tmp_path / "lake")
    return lake_at(stock.spark, tmp_path / "lake")


@pytest.fixture(scope="module")
def undisturbed(stock: Stock, tmp_path_factory: pytest.TempPathFactory) -> Contents:
    folder = tmp_path_factory.mktemp("undisturbed") / "lake"
    stock.copy(waiting, folder)
    JOBS["run"](stock.spark, lake_at(stock.spark, folder).config)
    return contents(folder)


def assert_right(lake: Warehouse, undisturbed: Contents, tally: Tally) -> None:
    lost, doubled = lost_and_doubled(undisturbed, contents(lake.folder))
    for name, number in {"faults tried": 1, "rows lost": lost, "rows doubled": doubled}.items():
        tally.add(name, number)
    assert (lost, doubled) == (0, 0)
    tally.add("faults survived")


# Files


def live_sessions(lake: Warehouse) -> Path:
    return next((lake.folder / "sessions" / "is_final=false").glob("*.parquet"))


def new_events(lake: Warehouse) -> Path:
    return max((lake.folder / "events").glob("*.parquet"), key=lambda file: file.stat().st_mtime_ns)


def last_entry(table: str) -> Callable[[Warehouse], Path]:
    return lambda lake: max((lake.folder / table / "_delta_log").glob("*.json"))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def cut_without_checksum(file: Path) -> None:
    """As on a store that keeps none."""
    cut(file)
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def emptied(file: Path) -> None:
    """As after a power failure."""
    file.write_bytes(b"")
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


MISSING, DAMAGED = "a table lacks a file", "damaged"
FEED = "the source's changes of versions 1 to 1 cannot be read"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "harm", "says"),
    [
        pytest.param(live_sessions, Path.unlink, MISSING, id="live sessions missing"),
        pytest.param(live_sessions, cut, DAMAGED, id="live sessions cut off"),
        pytest.param(new_events, Path.unlink, FEED, id="new events vacuumed"),
        pytest.param(new_events, cut, DAMAGED, id="new events cut off"),
        pytest.param(last_entry("sessions"), cut, DAMAGED, id="log of sessions cut off"),
        pytest.param(last_entry("sessions"), cut_without_checksum, DAMAGED, id="log of sessions torn"),
        pytest.param(last_entry("sessions"), emptied, DAMAGED, id="log of sessions emptied"),
        pytest.param(last_entry("events"), cut_without_checksum, DAMAGED, id="log of events torn"),
        pytest.param(last_entry("runs"), cut_without_checksum, DAMAGED, id="log of runs torn"),
        pytest.param(last_entry("rejected_events"), emptied, DAMAGED, id="log of rejected_events emptied"),
    ],
)
def test_a_file_that_is_missing_or_damaged_is_named_and_when_it_is_back_the_run_is_right(
    lake: Warehouse,
    shell: Shell,
    undisturbed: Contents,
    tally: Tally,
    which: Callable[[Warehouse], Path],
    harm: Harm,
    says: str,
) -> None:
    before = contents(lake.folder)
    shutil.copytree(lake.folder, lake.folder.with_name("as it was"))
    file = which(lake)
    harm(file)
    code, told = shell(lake)
    assert (code, says in told) == (3, True), told
    table = file.relative_to(lake.folder).parts[0]
    assert f"/{table}" in told or "the source" in told, "the table is named"
    as_it_was = lake.folder.with_name("as it was") / file.relative_to(lake.folder)
    for found in as_it_was.parent.glob(f"*{file.name}*"):  # with its checksum, if it has one
        shutil.copy(found, file.parent)
    lake.spark.catalog.clearCache()
    repaired = moved(lake)
    if table in ("sessions", "events"):  # others are written when sessions has its commit
        assert contents(repaired.folder) == before
    assert shell(repaired)[0] == 0
    assert_right(repaired, undisturbed, tally)


def moved(lake: Warehouse) -> Warehouse:
    """The same tables where no process remembers what it read of their logs."""
    folder = lake.folder.with_name("repaired")
    lake.folder.rename(folder)
    return lake_at(lake.spark, folder)


@pytest.mark.slow
def test_a_rebuild_needs_none_of_the_files_of_sessions(
    lake: Warehouse, shell: Shell, undisturbed: Contents, tally: Tally
) -> None:
    for file in (lake.folder / "sessions").rglob("*.parquet"):
        cut(file)
    assert shell(lake, "rebuild", "--yes")[0] == 0
    assert JOBS["verify"](lake.spark, lake.config)
    assert contents(lake.folder)["sessions"].total() == undisturbed["sessions"].total()
    tally.add("faults tried")
    tally.add("faults survived")


@pytest.mark.slow
def test_a_run_that_can_no_longer_be_finished_says_so_and_a_rebuild_goes_on(
    lake: Warehouse, shell: Shell, tally: Tally
) -> None:
    before = live_sessions(lake)
    with killed_at(side_tables, "write"):
        JOBS["run"](lake.spark, lake.config)
    before.unlink()  # VACUUM by hand, of what the repair would have read
    code, told = shell(lake)
    assert (code, MISSING in told, "sessionizer rebuild" in told) == (3, True, True), told
    assert shell(lake, "rebuild", "--yes")[0] == 0
    assert JOBS["verify"](lake.spark, lake.config)
    tally.add("faults tried")
    tally.add("faults survived")


@pytest.mark.slow
def test_the_last_checkpoint_need_not_be_told(
    lake: Warehouse, shell: Shell, undisturbed: Contents, tally: Tally
) -> None:
    JOBS["maintain"](lake.spark, lake.config)
    torn = moved(lake)
    cut(torn.folder / "sessions" / "_delta_log" / "_last_checkpoint")
    assert shell(torn)[0] == 0
    found = contents(torn.folder)
    assert lost_and_doubled({"sessions": undisturbed["sessions"]}, {"sessions": found["sessions"]}) == (0, 0)
    tally.add("faults tried")
    tally.add("faults survived")


# Disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 4 MB of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk cannot be mounted here: it takes root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("kilobytes", [8, 24, 48])
def test_a_full_disk_is_named_and_with_room_again_the_run_is_right(
    lake: Warehouse, shell: Shell, undisturbed: Contents, tally: Tally, small_disk: Path, kilobytes: int
) -> None:
    shutil.copytree(lake.folder, small_disk / "lake")
    full = lake_at(lake.spark, small_disk / "lake")
    written(full)
    left = os.statvfs(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (left.f_bavail * left.f_bsize - kilobytes * 1024))
    code, told = shell(full)
    assert (code, "the disk is full" in told) == (3, True), told
    ballast.unlink()
    assert shell(full)[0] == 0
    assert_right(full, undisturbed, tally)


# Other users


def without_rights() -> list[str]:
    """What to put before a command, so that the owner and the mode of a file count for it."""
    if os.geteuid():
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("root may do everything, and setpriv, which takes that away, is missing")
    rights = "-dac_override,-dac_read_search"
    return ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]


def owned_by_others(folder: Path) -> None:
    """To be read by everyone, to be written by nobody who is here."""
    for place in (folder, *folder.rglob("*")):
        if os.geteuid() == 0:
            os.chown(place, NOBODY, NOBODY)
        place.chmod(0o555 if place.is_dir() else 0o444)


def given_back(folder: Path) -> None:
    for place in (folder, *folder.rglob("*")):
        place.chmod(0o755 if place.is_dir() else 0o644)


@pytest.mark.slow
@pytest.mark.parametrize("barred", ["sessions", "rejected_events", "runs"])
def test_a_user_who_may_not_write_is_told_so(
    lake: Warehouse, shell: Shell, undisturbed: Contents, tally: Tally, barred: str
) -> None:
    owned_by_others(lake.folder / barred)
    command = [*without_rights(), sys.executable, "-m", "sessionizer.jobs.cli", "run", "-c", str(written(lake))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    told = " ".join(done.stderr.split())
    assert (done.returncode, "Traceback" in told) == (3, False), told
    assert "this user may not read or write" in told
    assert f"/{barred}" in told
    given_back(lake.folder / barred)
    assert shell(lake)[0] == 0
    assert_right(lake, undisturbed, tally)


# A taste of it


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "the disk is full: /lake/sessions. make room"),
        (errno.EACCES, "this user may not read or write a file or folder: /lake/sessions. allow it"),
        (errno.EROFS, "this user may not read or write a file or folder: /lake/sessions. allow it"),
    ],
)
def test_what_the_system_refuses_becomes_a_sentence(number: int, says: str) -> None:
    assert says in str(known_failure(OSError(number, os.strerror(number), "/lake/sessions")))


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ("[ARITHMETIC_OVERFLOW] long overflow", "is more than its type holds. let the aggregate"),
        ("[DELTA_MULTIPLE_SOURCE_ROW_MATCHING_TARGET_ROW_IN_MERGE] https://docs.delta.io/a", "there more than once"),
        ("[INVALID_TIMEZONE] The timezone: ROC is invalid", "an event names: got 'ROC'. name an older one"),
    ],
)
def test_what_spark_refuses_becomes_a_sentence(said: str, says: str) -> None:
    told = str(known_failure(PySparkException(said)))
    assert says in told
    assert "docs.delta.io" not in told


def test_what_no_disk_has_caused_is_left_to_others() -> None:
    assert known_failure(ValueError("No space left on device")) is None
    assert known_failure(OSError(errno.ENOENT, os.strerror(errno.ENOENT), "/lake/sessions")) is None


def test_a_table_whose_making_was_cut_off_can_be_made(spark: SparkSession, tmp_path: Path) -> None:
    log = tmp_path / "sessions" / "_delta_log"
    log.mkdir(parents=True)
    (log / ".00000000000000000000.json.3f2a.tmp").write_text("{")
    table = Table(spark, str(tmp_path / "sessions"), "sessions.table")
    assert not table.exists()
    table.create(spark.range(1).schema, [], {})
    assert (table.exists(), table.version) == (True, 0)
    table.create(spark.range(1).schema, [], {})
    assert table.version == 0, "one that is there stays as it is"
