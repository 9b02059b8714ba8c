"""The largest of the worlds in which jobs, deaths and RESTOREs meet: two million states, minutes."""

from tests.protocol.model import explore, start


def test_however_jobs_meet_and_die_between_restores_every_table_has_each_event_once() -> None:
    explored = explore(start(jobs=2, appends=2, restores=2, deaths=1))
    assert explored.fault is None, explored
    assert explored.states > 1_900_000
