"""verify goes a way of its own: a fault of the run, at work while both go, is found in the table that the run made."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import dedent
from typing import Any

import pytest

from sessionizer.lib.admission import accepted, lateness
from sessionizer.lib.aggregates import binding, functions
from sessionizer.lib.windows.sessions import cuts, fold, intervals, islands, lifecycle, sessions
from tests.exactness.play import Play

pytestmark = pytest.mark.slow

Plays = Callable[..., Play]
LATER = {"time": {"allowed_lateness": "1d"}}
GAPS = {"expr": "make_dt_interval(0, 0, n, 0)"}
IDLE = {"idle_timeout": {"after": "5m", "clock": "event_time"}}


def made(fn: str) -> dict[str, Any]:
    return {"aggregates": [{"name": "made", "fn": fn, "of": "n"}], **LATER}


def lasting(longest: str, gap: Any = "10m") -> dict[str, Any]:
    return {"session": {"gap": gap, "max_duration": longest}}


@contextmanager
def fault(function: Any, right: str, wrong: str) -> Iterator[None]:
    """The function as it would be with another text in it, wherever it has been imported to."""
    source, scope = dedent(inspect.getsource(function)), dict[str, Any]()
    assert source.count(right) == 1, source
    exec(compile(source.replace(right, wrong), "<fault>", "exec"), function.__globals__, scope)
    code, function.__code__ = function.__code__, scope[function.__name__].__code__
    try:
        yield
    finally:
        function.__code__ = code


Case = tuple[Any, str, str, str, dict[str, Any]]  # a function, text of it, the text instead, events, sections
FAULTS: dict[str, Case] = {
    "a gap that splits": (islands.beyond, "start > reach", "start >= reach", "a@0 a@10", {}),
    "the reach of the last alone": (
        *(islands.mark_islands, "F.max(C.col(C.REACH)).over(all_before)", "F.lag(C.col(C.REACH)).over(by_time)"),
        *("a@0=60 a@10=1 a@40=1", {"session": {"gap": GAPS}}),
    ),
    "buckets twice as wide": (fold.bucket, "C.col(C.US), width)", "C.col(C.US), 2 * width)", "a@0 a@15", {}),
    "the end of a partial": (fold.fold, "F.max(C.col(C.US)).alias", "F.min(C.col(C.US)).alias", "a@0 a@5", {}),
    "merged counts": (intervals.merge_islands, "F.sum(C.col(C.COUNT))", "F.max(C.col(C.COUNT))", "a@1 | a@2", LATER),
    "merged sums": (functions._own_state, "over(merge(p[0]))", "over(F.max(p[0]))", "a@0 a@10", {}),
    "merged averages": (functions._average, "over(F.sum(p[1]))", "over(F.max(p[1]))", "a@0=1 a@10=5", made("avg")),
    "merged sets": (
        functions._distinct,
        "array_distinct(F.flatten(several))",
        "flatten(several)",
        "a@0 a@10",
        made("set"),
    ),
    "merged edges": (functions._edge, "over(pick(p[0]))", "over(F.max(p[0]))", "a@0=1 a@10=2", made("first")),
    "merged deviations": (functions._deviation, "apart * apart", "apart", "a@0=1 a@1=9 a@11=30", made("stddev")),
    "a state read wrong": (binding.Aggregate.resume, "[part] for", "[part] + 1 for", "a@0=1 | a@1=4", made("avg")),
    "a cut at the longest": (*(cuts._Walk._reasons, "> rule.max", ">= rule.max", "a@0 a@6 a@12 a@13", lasting("12m")),),
    "a reach that outlasts its cut": (
        *(
            cuts._Walk._step,
            'reach.alias("reach"),\n        F.lit',
            'F.greatest(current["reach"], reach).alias("reach"), F.lit',
        ),
        *("a@0=60 a@20=1 a@30=1", lasting("12m", GAPS)),
    ),
    "closed too early": (lifecycle.settle, "C.col(C.W) > reach", "C.col(C.W) >= reach", "a@5 tick@15", {}),
    "final too early": (lifecycle.settle, "reach < C.col(C.H)", "reach <= C.col(C.H)", "a@5 tick@15", {}),
    "idle too early": (lifecycle._idle, "C.END) > rule", "C.END) >= rule", "a@0 tick@5", {"time": IDLE}),
    "another reason": (lifecycle._end_reason, "< C.col(C.REACH)", "<= C.col(C.REACH)", "a@0 tick@90", lasting("10m")),
    "late events of another run": (
        *(lateness.with_population, "F.lit(clock.run_seq)", "F.lit(99)"),
        *("tick@100 | a@5", {"late_events": "separate"}),
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_the_run_is_found(play: Plays, name: str) -> None:
    function, right, wrong, events, sections = FAULTS[name]
    with fault(function, right, wrong):
        assert not play(events, **sections).verify().clean


@pytest.mark.parametrize("name", FAULTS)
def test_what_the_faults_make_wrong_is_clean_without(play: Plays, name: str) -> None:
    _, _, _, events, sections = FAULTS[name]
    play(events, **sections).assert_clean()


def test_a_rejected_event_that_a_correction_takes_in_is_found(play: Plays) -> None:
    with fault(accepted._without, ".where(~C.col(C.TAKEN))", ""):
        done = play("tick@100 c@95=1 c@97=2 | c@96=3").source("UPDATE {} SET n = 5 WHERE n = 2")
        done.run()
        assert not done.verify().clean


def test_a_stale_state_that_no_column_shows_is_found(play: Plays) -> None:
    kinds = {"aggregates": [{"name": "kinds", "fn": "count_distinct", "of": "n"}], **LATER}
    with fault(sessions.Sessions.diff, "if n not in HOW)", "if n not in (*HOW, C.STATE))"):
        done = play("a@5=1", **kinds).source("UPDATE {} SET n = 2")
        done.run()
        found = done.verify()
    assert [row["columns"] for row in found.wrong] == [["_state.kinds.values"]]
