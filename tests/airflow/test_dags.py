"""The DAGs by `airflow dags test`, end to end: Airflow calls the command line, which writes Delta tables.

The tests are one story, told in order: each goes on from the tables that the one before has left.
"""

import shlex
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_dags.chunks import edges
from airflow_dags.settings import Settings
from tests.airflow.conftest import Deployment

pytestmark = pytest.mark.timeout(1800)


def test_all_dags_are_read(deployment: Deployment) -> None:
    code, said = deployment.airflow("dags", "reserialize")
    assert code == 0, said
    assert deployment.rows("SELECT * FROM import_error") == []
    found = deployment.rows("SELECT dag_id, timetable_summary, max_active_runs FROM dag ORDER BY dag_id")
    assert [(row["dag_id"], row["timetable_summary"]) for row in found] == [
        ("backfill", "None"),
        ("maintain", "30 3 * * *"),
        ("sessionize", "Asset or 0 * * * *"),
        ("verify", "0 5 * * 0"),
    ]
    assert {row["max_active_runs"] for row in found} == {1}
    asset = "SELECT a.name FROM dag_schedule_asset_reference r JOIN asset a ON a.id = r.asset_id WHERE r.dag_id = ?"
    assert deployment.rows(asset, "sessionize") == [{"name": "clicks"}]


def test_a_config_that_is_nowhere_is_an_error_of_the_dags() -> None:
    with pytest.raises(ValueError, match=r"must be the absolute path of a config file, .*: got 'sessionizer\.yaml'"):
        Settings.of({"SESSIONIZER_CONFIG": "sessionizer.yaml"})


def test_a_folder_of_configs_is_a_set_of_dags_for_each(deployment: Deployment, tmp_path: Path) -> None:
    for name in ("shop", "site"):
        (tmp_path / f"{name}.yaml").write_text("")
    (tmp_path / "notes.txt").write_text("")
    code, said = deployment.airflow("dags", "reserialize", SESSIONIZER_CONFIG=str(tmp_path))
    assert code == 0, said
    assert deployment.rows("SELECT * FROM import_error") == []
    found = deployment.rows("SELECT dag_id FROM dag WHERE dag_id LIKE '%.%' ORDER BY dag_id")
    kinds = ("backfill", "maintain", "sessionize", "verify")
    assert [row["dag_id"] for row in found] == [f"{name}.{kind}" for name in ("shop", "site") for kind in kinds]
    shop, _ = Settings.of({"SESSIONIZER_CONFIG": str(tmp_path), "SESSIONIZER_EVENTS_ASSET": "lake"})
    assert (shop.config, shop.dag("verify")) == (str(tmp_path / "shop.yaml"), "shop.verify")
    told = (shop.pool, shop.events_asset, shop.sessions_asset)
    assert told == ("sessionizer_shop", "lake", "sessionizer_sessions_shop")


def test_tables_of_a_folder_have_names_and_assets_of_their_own(tmp_path: Path) -> None:
    for name in ("shop.yaml", "site.yaml"):
        (tmp_path / name).write_text("")
    with pytest.raises(ValueError, match=r"SESSIONIZER_SESSIONS_ASSET must hold \{name\}.*got 'sessions'"):
        Settings.of({"SESSIONIZER_CONFIG": str(tmp_path), "SESSIONIZER_SESSIONS_ASSET": "sessions"})
    (tmp_path / "site.yml").write_text("")
    with pytest.raises(ValueError, match=r"a name of its own, .*got 'site'"):
        Settings.of({"SESSIONIZER_CONFIG": str(tmp_path)})


OWN = """
from airflow.sdk import DAG, Asset
from airflow_dags.command import SessionizerOperator

with DAG("own", schedule=None):
    of = dict(config={config!r}, command={command!r})
    count = SessionizerOperator(task_id="count", arguments=["status"], outlets=[Asset("seen")], **of)
    upkeep = SessionizerOperator(
        task_id="upkeep", arguments=["maintain"], skip_if_nothing=True, outlets=[Asset("kept")], **of
    )
    count >> upkeep >> SessionizerOperator(task_id="look", arguments=["sessions", "--limit", "1"], **of)
"""


def test_the_operator_serves_dags_of_ones_own(deployment: Deployment) -> None:
    config, command = (deployment.environment[f"SESSIONIZER_{name}"] for name in ("CONFIG", "COMMAND"))
    file = deployment.home / "dags" / "own.py"
    file.write_text(OWN.format(config=config, command=shlex.split(command)))
    try:
        done = deployment.test_dag("own")
    finally:
        file.unlink()
    assert done["state"] == "success", done["said"]
    assert "sessions" in done["xcoms"]["count"]
    assert "sessions" in {table["table"] for table in done["xcoms"]["upkeep"]["tables"]}
    assert done["xcoms"]["look"] == []


def test_sessionize_consumes_what_is_new_and_tells_its_figures(deployment: Deployment) -> None:
    done = deployment.test_dag("sessionize")
    assert (done["state"], done["tasks"]) == ("success", {"sessionize": ["success"]}), done["said"]
    (run,) = done["xcoms"]["sessionize"]["runs"]
    assert (run["mode"], run["events_read"], run["accepted"], run["invalid"]) == ("run", 6, 5, 1)
    (event,) = deployment.asset_events()
    assert event == {
        **{name: run[name] for name in event if name != "runs"},
        "runs": 1,
        "accepted": 5,
        "rows_added": 4,
        "watermark_after": "2026-01-01T12:40:00Z",
    }


def test_chunks_of_a_long_span_are_no_more_than_airflow_maps() -> None:
    low, high = datetime(2020, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
    assert edges(low, low + timedelta(days=10), 7) == [low, low + timedelta(days=7), low + timedelta(days=10)]
    assert edges(low, low, 7) == [low]
    (first, second, *_, last) = found = edges(low, high, 1)
    assert (len(found), first, last) == (1_001, low, high)
    assert second - first == timedelta(days=2_915)
    assert len(edges(low, low + timedelta(days=1_000), 1)) == 1_001


def test_backfill_looks_first_then_recomputes_in_chunks(deployment: Deployment) -> None:
    # One late event makes ann's two of ten o'clock three, the other one, two days earlier, a session of its own.
    deployment.append("ann,2026-01-01T10:20:00Z,64\nbob,2025-12-30T10:00:00Z,128\n")
    (run,) = deployment.test_dag("sessionize")["xcoms"]["sessionize"]["runs"]
    assert (run["accepted"], run["late"]) == (0, 2)
    events = len(deployment.asset_events())
    asked = {"from": "2025-12-30T00:00:00Z", "to": "2026-01-02T00:00:00Z", "chunk_days": 2}

    looked = deployment.test_dag("backfill", **asked, only_dry_run=True)
    assert looked["state"] == "success", looked["said"]
    assert looked["tasks"]["recompute"] == ["skipped"]
    expected = {"rows_added": 1, "rows_changed": 1, "rows_removed": 0}
    nothing = dict.fromkeys(expected, 0)
    assert looked["xcoms"]["summary"] == {"expected": expected, "done": nothing, "chunks": []}
    assert len(deployment.asset_events()) == events

    whole, added, changed = asked | {"chunk_days": 7}, {**nothing, "rows_added": 1}, {**nothing, "rows_changed": 1}
    alone = deployment.test_dag("backfill", **whole, keys=["bob"])
    assert alone["state"] == "success", alone["said"]
    chunk = {"from": "2025-12-30T00:00:00Z", "to": "2026-01-02T00:00:00Z", **added}
    assert alone["xcoms"]["summary"] == {"expected": added, "done": added, "chunks": [chunk]}

    done = deployment.test_dag("backfill", **asked)
    assert done["state"] == "success", done["said"]
    assert done["tasks"]["recompute"] == ["success", "success"]
    assert done["xcoms"]["summary"] == {
        "expected": changed,
        "done": changed,
        "chunks": [
            {"from": "2025-12-30T00:00:00Z", "to": "2026-01-01T00:00:00Z", **nothing},
            {"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z", **changed},
        ],
    }
    assert [event["mode"] for event in deployment.asset_events()[events:]] == ["backfill", "backfill", "backfill"]
    labels = deployment.rows(
        "SELECT rendered_map_index FROM task_instance WHERE run_id = ? AND task_id = 'recompute' ORDER BY map_index",
        done["run_id"],
    )
    assert labels[0]["rendered_map_index"] == "2025-12-30T00:00:00+00:00 to 2026-01-01T00:00:00+00:00"

    again = deployment.test_dag("backfill", **asked, keys=["ann"])
    assert (again["state"], again["tasks"]["recompute"]) == ("success", ["skipped"]), "nothing would change"


def test_maintain_takes_care_of_every_table(deployment: Deployment) -> None:
    done = deployment.test_dag("maintain")
    assert done["state"] == "success", done["said"]
    tables = {table["table"]: table for table in done["xcoms"]["maintain"]["tables"]}
    assert set(tables) == {"sessions", "rejected_events", "runs"}
    assert tables["runs"]["compacted_files"] == 5
    assert tables["runs"]["files"] == 1
