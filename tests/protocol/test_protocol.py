"""All ways in which jobs, deaths and RESTOREs meet: nothing is lost or doubled, and the position is the rows."""

from typing import Any

import pytest

from tests.protocol.model import Rules, explore, start, without

TWO_RESTORES = {"jobs": 2, "appends": 2, "restores": 2, "deaths": 0}


@pytest.mark.parametrize(
    ("world", "states"),
    [
        ({"jobs": 2, "appends": 2, "restores": 1, "deaths": 1}, 50_000),
        ({"jobs": 2, "appends": 2, "restores": 0, "upkeeps": 1, "deaths": 2}, 10_000),
        ({"jobs": 3, "appends": 1, "restores": 1, "deaths": 0}, 10_000),
        pytest.param(TWO_RESTORES, 400_000, marks=pytest.mark.broad),
        pytest.param({"jobs": 1, "appends": 3, "restores": 3, "deaths": 2}, 400_000, marks=pytest.mark.slow),
    ],
)
def test_however_jobs_meet_every_table_has_each_event_once(world: dict[str, Any], states: int) -> None:
    explored = explore(start(**world))
    assert explored.fault is None, explored
    assert explored.states > states


@pytest.mark.parametrize("rule", ["fenced", "guarded", "barred", "finished"])
def test_without_any_one_of_its_rules_something_goes_wrong(rule: str) -> None:
    explored = explore(start(jobs=2, appends=2, restores=2, deaths=1), without(rule))
    assert explored.fault is not None
    assert getattr(Rules(), rule)
