"""The demo keeps its promises; queries and configs of the documentation work. It runs once for all, and once more."""

import contextlib
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from sessionizer.jobs.config_file import load_config
from sessionizer.jobs.demo.data import CONFIG_FILE, INCREMENTS, MARKER, clicks
from sessionizer.jobs.demo.demo import QUESTIONS, QUICK_START, demo, make_room
from sessionizer.jobs.demo.picture import Bar, Scene, Window, legend, timeline, told
from sessionizer.jobs.queries.sql import query_frame
from sessionizer.lib.config import Config
from sessionizer.lib.errors import UsageError
from tests.doc_blocks import ROOT, blocks
from tests.oracle import us
from tests.text_tables import clock

TABLES = (ROOT / "docs/tables.md").read_text(encoding="utf-8")
QUERIES = [block.text for block in blocks("sql", "docs/tables.md")]


@dataclass(frozen=True)
class Played:
    spark: SparkSession
    config: Config
    folder: Path
    output: str

    def rows(self, query: str) -> list[tuple[object, ...]]:
        return [tuple(row) for row in query_frame(self.spark, self.config, query).collect()]


@contextlib.contextmanager
def quick(spark: SparkSession) -> Iterator[None]:
    """What the demo starts Spark with, as far as a running session takes it."""
    settings = {name: value for name, value in QUICK_START.items() if name.startswith("spark.sql.")}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name in settings:
        spark.conf.unset(name)


@pytest.fixture(scope="module")
def played(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A demo that replaced an earlier one."""
    folder = tmp_path_factory.mktemp("demo") / "shop"
    folder.mkdir()
    (folder / CONFIG_FILE).write_text(f"{MARKER}\nsource: of an earlier demo\n")
    (folder / "warehouse" / "sessions").mkdir(parents=True)
    (folder / "warehouse" / "sessions" / "left-over").touch()
    (folder / "notes.txt").write_text("the user's own")
    with contextlib.redirect_stdout(io.StringIO()) as output, contextlib.redirect_stderr(io.StringIO()), quick(spark):
        demo(folder)
    return Played(spark, load_config(folder / CONFIG_FILE, env={}), folder, output.getvalue())


SESSIONS_OF = """
SELECT date_format(session_start, 'HH:mm'), date_format(session_end, 'HH:mm'), event_count, status, size(supersedes)
FROM sessions WHERE user_id = '{}' AND session_end >= '2026-03-05' ORDER BY session_start"""


@pytest.mark.broad
def test_a_session_grows_in_every_run(played: Played) -> None:
    assert played.rows(SESSIONS_OF.format("anna")) == [("10:35", "14:24", 13, "final", 0)]
    assert "anna: the session of 10:35 grows from 3 to 11 events, and is open" in played.output
    assert "anna: the session of 10:35 grows from 11 to 13 events, and is final" in played.output


@pytest.mark.broad
def test_a_delayed_event_bridges_two_sessions(played: Played) -> None:
    bridged = ("10:00", "10:57", 6, "final", 1)
    assert played.rows(SESSIONS_OF.format("bert")) == [bridged, ("15:24", "15:45", 3, "closed", 0)]
    ((survivor, vanished),) = played.rows(
        "SELECT session_id, supersedes[0] FROM sessions WHERE user_id = 'bert' AND size(supersedes) > 0"
    )
    story = f"bridges two sessions: {str(survivor)[:8]}, 10:00-10:57, supersedes {str(vanished)[:8]}, which is gone"
    assert f"bert: a delayed event {story}" in played.output
    assert played.rows(f"SELECT * FROM sessions WHERE session_id = '{vanished}'") == []


@pytest.mark.broad
def test_an_event_that_is_too_late_is_rejected(played: Played) -> None:
    assert played.rows(SESSIONS_OF.format("cleo")) == [
        ("09:10", "09:26", 3, "final", 0),
        ("12:34", "12:52", 3, "final", 0),
    ]
    rejected = "SELECT date_format(event_time, 'HH:mm'), reason FROM rejected_events WHERE user_id = 'cleo'"
    assert played.rows(rejected) == [("09:41", "late")]
    assert "cleo: the event of 09:41 is too late: older than the horizon of the run before, 11:59" in played.output


@pytest.mark.broad
def test_all_three_states_are_shown(played: Played) -> None:
    assert [row[3] for row in played.rows(SESSIONS_OF.format("dora"))] == ["final", "final", "open"]
    ((_, _, events, status, _),) = played.rows(SESSIONS_OF.format("bot"))
    assert (events, status) == ((3 * 24 + 17) * 60, "open")
    for glyph in "░▒█●·✗":
        assert glyph in played.output


@pytest.mark.broad
def test_the_counts_add_up(played: Played) -> None:
    runs = played.rows("SELECT events_read, accepted + late + invalid + duplicates FROM runs ORDER BY run_seq")
    assert len(runs) == len(INCREMENTS)
    assert all(read == told for read, told in runs)
    assert played.rows("SELECT sum(events_read) FROM runs") == [(len(clicks()),)]
    assert played.rows("SELECT sum(event_count) FROM sessions") == played.rows("SELECT sum(accepted) FROM runs")
    reasons = played.rows("SELECT DISTINCT reason FROM rejected_events")
    assert sorted(reasons) == [("late",), ("null_key",), ("unreadable",)]


@pytest.mark.broad
def test_the_output_fits_and_says_what_to_try_next(played: Played) -> None:
    commands = [line for line in played.output.splitlines() if f"-c {played.folder / CONFIG_FILE}" in line]
    assert [re.findall(r"sessionizer (\w+) ", line)[0] for line in commands] == [
        "status",
        "sql",
        "report",
        "ingest",
        "run",
    ]
    before_commands = played.output.split("What to try next")[0].splitlines()
    assert max(len(line.rstrip()) for line in before_commands) <= 110


@pytest.mark.broad
def test_a_demo_is_made_anew_and_leaves_other_files_alone(played: Played) -> None:
    assert not (played.folder / "warehouse" / "sessions" / "left-over").exists()
    assert (played.folder / "notes.txt").read_text() == "the user's own"


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").touch()
    with pytest.raises(UsageError, match="empty folder"):
        demo(tmp_path)
    (tmp_path / CONFIG_FILE).write_text("source: {table: mine}\n")
    with pytest.raises(UsageError, match="empty folder"):
        make_room(tmp_path)
    with pytest.raises(UsageError, match="this is a file"):
        make_room(tmp_path / CONFIG_FILE)
    assert sorted(p.name for p in tmp_path.iterdir()) == [CONFIG_FILE, "thesis.txt"]


def test_the_same_seed_makes_the_same_clicks() -> None:
    assert clicks(3) == clicks(3)
    assert clicks(3) != clicks(4)


def at(time: str) -> int:
    return us(clock(time))


def test_a_picture() -> None:
    scene = Scene(
        ("ada", "bob"),
        bars=(
            Bar("1", "ada", at("08:10"), at("08:50"), 2, "final"),
            Bar("2", "bob", at("07:00"), at("10:30"), 9, "open"),
        ),
        events={"ada": [at("08:10"), at("08:50")]},
        new={"ada": [at("08:50")]},
        late={"bob": [at("09:20")]},
        watermark=at("10:00"),
        horizon=at("08:30"),
    )
    drawn = timeline(scene, Window(at("08:00"), hours=2, cells=6)).plain
    assert drawn.splitlines() == [
        "         ▼ horizon",
        "      08:00 09:00 10:00",
        "       ·   ●",
        "ada    █████",
        "              ✗",
        "bob   ░░░░░░░░░░░░",
    ]
    assert "░░░ open" in legend().plain


def test_words_tell_what_changed_and_nothing_else() -> None:
    same = Bar("same", "ada", at("01:00"), at("02:00"), 2, "open")
    before = Scene(("ada",), bars=(same, Bar("old", "ada", at("08:10"), at("08:50"), 2, "open")))
    after = Scene(("ada",), bars=(same, Bar("old", "ada", at("08:10"), at("09:10"), 3, "closed")))
    assert list(told(before, before)) == []
    assert list(told(before, after)) == ["ada: the session of 08:10 grows from 2 to 3 events, and is closed"]


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.broad
def test_the_queries_of_the_documentation_run_and_find_something(played: Played, query: str) -> None:
    assert played.rows(query)


def test_the_documentation_asks_what_the_demo_asks() -> None:
    assert len(QUERIES) == 6
    for question, query in QUESTIONS.items():
        assert question in TABLES
        assert query.strip() in TABLES


def test_the_complete_config_names_every_key() -> None:
    (complete,) = (block.text for block in blocks("yaml", "docs/config.md"))
    for section, model in Config.model_fields.items():
        assert re.search(rf"^{section}:", complete, re.MULTILINE), section
        for name, field in getattr(model.annotation, "model_fields", {}).items():
            assert re.search(rf"^  (# )?{field.alias or name}:", complete, re.MULTILINE), f"{section}.{name}"
