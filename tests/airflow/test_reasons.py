"""Why a task fails, whether it is tried again, and which files of a folder are configs; all without Airflow."""

from pathlib import Path
from typing import Any

import pytest

from airflow_dags.reasons import is_for_good, reason
from airflow_dags.settings import Settings

VERIFIED: dict[str, Any] = {"clean": False, "differing": 3, "rules": {"a window lies in its unit": 0, "adds up": 2}}
HOLDS = {"suite": "sessions", "about": "a", "holds": True, "broken": None, "error": None, "expectation": "one"}


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"error": "no table. Make it."}, "no table. Make it."),
        (VERIFIED | {"sessions": 9}, "3 of 9 sessions differ from their events; broken: adds up (2 rows)"),
        (VERIFIED | {"windows": 8}, "3 of 8 windows differ from their events; broken: adds up (2 rows)"),
        (
            {
                "holds": False,
                "expectations": [
                    HOLDS,
                    HOLDS | {"holds": False, "broken": 4},
                    HOLDS | {"holds": False, "error": "no column"},
                ],
            },
            "sessions: one (a) is broken in 4 rows; sessions: one (a) could not be evaluated: no column",
        ),
    ],
)
def test_a_task_that_fails_says_what_its_command_has_found(document: dict[str, Any], says: str) -> None:
    assert reason(document) == says


def test_a_command_that_breaks_down_is_no_check_that_has_found_something() -> None:
    found, crashed = VERIFIED | {"sessions": 9}, {"error": "Traceback …"}
    assert [is_for_good(1, found), is_for_good(2, crashed)] == [True, True]
    assert [is_for_good(1, crashed), is_for_good(3, crashed), is_for_good(70, crashed)] == [False, False, False]


def test_drafts_and_yaml_of_other_kinds_are_no_configs(tmp_path: Path) -> None:
    for name, text in {
        "shop.yaml": "# ours\nsource: {table: lake/events}\n",
        "site.yml": "{source: {table: lake/events}}",
        "new.yaml": "",
        ".shop.yaml.77.yaml": "source: {table: lake/events}",
        "my-expectations.yaml": "expectations:\n  - {type: expect_column_to_exist, kwargs: {column: source}}",
    }.items():
        (tmp_path / name).write_text(text)
    found = Settings.of({"SESSIONIZER_CONFIG": str(tmp_path)})
    assert [one.name for one in found] == ["new", "shop", "site"]
