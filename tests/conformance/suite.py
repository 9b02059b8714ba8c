"""The suite: every case of a folder is passed, failed or not applicable."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pyspark.sql import SparkSession

from tests.conformance import beam, flink, kafka, lookups, not_applicable, numaflow, sliding, spark
from tests.conformance.cases import Case, NotApplicable, UnknownShape, load
from tests.conformance.plans import Plan
from tests.conformance.plays import Ran, perform
from tests.few_rows import for_few_rows

RunResult = Literal["passed", "failed", "not_applicable"]
ADAPTERS: dict[str, Callable[[Case], Plan]] = {
    "kafka": kafka.adapt,
    "spark": spark.adapt,
    "flink": flink.adapt,
    "beam": beam.adapt,
    "numaflow": numaflow.adapt,
}
OWN_RUNNERS = {"sliding": sliding.run_cases, "store": lookups.run_cases}
WORST_FIRST: tuple[RunResult, ...] = ("failed", "not_applicable", "passed")
YEARS = 6000 * 365 * 86_400 * 1_000_000


class Result(NamedTuple):
    """What became of a case; `detail`: what differs, or why it is not applicable."""

    case: Case
    outcome: RunResult
    detail: str = ""


def run(session: SparkSession, folder: Path) -> list[Result]:
    """All cases of a folder, in its order."""
    return run_cases(session, load(folder))


def run_cases(session: SparkSession, cases: list[Case]) -> list[Result]:
    """These cases; one whose records may come in any order passes if it does in each of them."""
    in_orders: list[tuple[int, Case]] = []
    found: dict[int, list[Result]] = {number: [] for number in range(len(cases))}
    for number, case in enumerate(cases):
        try:
            in_orders += [(number, ordered) for ordered in case.orders()]
        except UnknownShape as why:
            found[number].append(Result(case, "failed", f"error: {why}"))
    with for_few_rows(session):
        results = _run(session, [case for _, case in in_orders])
    for (number, _), result in zip(in_orders, results, strict=True):
        found[number].append(result)
    worst = [min(of_case, key=lambda result: WORST_FIRST.index(result.outcome)) for of_case in found.values()]
    return [Result(case, *result[1:]) for case, result in zip(cases, worst, strict=True)]


def _run(session: SparkSession, cases: list[Case]) -> list[Result]:
    done: dict[int, Result] = {}
    plans: list[tuple[int, Plan]] = []
    for number, case in enumerate(cases):
        try:
            if case.kind not in OWN_RUNNERS:
                plans.append((number, _plan(case)))
        except NotApplicable as why:
            done[number] = Result(case, "not_applicable", str(why))
        except UnknownShape as why:
            done[number] = Result(case, "failed", f"error: {why}")
    work: list[tuple[list[int], Callable[[], list[tuple[RunResult, str]]]]] = [
        ([number for number, _ in plans], partial(_judged, session, [plan for _, plan in plans]))
    ]
    for kind, runner in OWN_RUNNERS.items():
        own = [number for number, case in enumerate(cases) if case.kind == kind]
        bodies = [{"name": cases[number].name} | dict(cases[number].body) for number in own]
        work.append((own, partial(_by_runner, session, runner, bodies)))
    with ThreadPoolExecutor(max_workers=2) as pool:  # most of a run is planning, on one core
        found = [(numbers, pool.submit(judged)) for numbers, judged in work]
    for numbers, future in found:
        done |= {n: Result(cases[n], *judged) for n, judged in zip(numbers, future.result(), strict=True)}
    return [done[number] for number in range(len(cases))]


def _plan(case: Case) -> Plan:
    if case.system not in ADAPTERS:
        raise UnknownShape(f"cases of {case.system!r}")
    with _known_shape(case.kind):
        if why := not_applicable.reason(case):
            raise NotApplicable(why)
        plan = ADAPTERS[case.system](case)
    for event in (event for play in plan.plays for run in play.runs for event in run.events):
        if event.at is not None and not -YEARS <= event.at <= YEARS:
            raise NotApplicable(not_applicable.FAR_TIMES)
    return plan


def _judged(session: SparkSession, plans: Sequence[Plan]) -> list[tuple[RunResult, str]]:
    """All plays first, as few jobs as possible; then what they left is compared, and looked up."""
    plays = [play for plan in plans for play in plan.plays]
    played = iter(perform(session, plays))
    performed = [[next(played) for _ in plan.plays] for plan in plans]
    found: list[tuple[RunResult, str]] = []
    queries: list[tuple[int, dict[str, Any]]] = []
    for number, (plan, runs) in enumerate(zip(plans, performed, strict=True)):
        errors = [ran for ran in runs if isinstance(ran, Exception)]
        right: list[list[Ran]] = [ran for ran in runs if not isinstance(ran, Exception)]
        if errors:
            found.append(("failed", f"error: {str(errors[0])[:500]}"))
            continue
        try:
            with _known_shape("expectation"):
                lines, asked = plan.differences(right), plan.look_ups(right)
        except NotApplicable as why:
            found.append(("not_applicable", str(why)))
            continue
        except UnknownShape as why:
            found.append(("failed", f"error: {why}"))
            continue
        found.append(("failed" if lines else "passed", "\n".join(lines)))
        queries += [(number, query) for query in asked]
    answers = _by_runner(session, lookups.run_cases, [query for _, query in queries])
    for (number, query), (outcome, detail) in zip(queries, answers, strict=True):
        before, already = found[number]
        if before == "passed" and outcome != "passed":
            found[number] = (outcome, f"{query['name']}: {detail}")
        elif outcome == "failed":
            found[number] = ("failed", f"{already}\n{query['name']}: {detail}")
    return found


@contextmanager
def _known_shape(what: str) -> Iterator[None]:
    """What an adapter stumbles over is a shape that it does not know: an error, and named."""
    try:
        yield
    except UnknownShape:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ArithmeticError) as error:
        raise UnknownShape(f"{what} in another shape ({error!r})") from error


def _by_runner(session: SparkSession, runner: Any, cases: list[dict[str, Any]]) -> list[tuple[RunResult, str]]:
    """What another runner says of its cases; where it stumbles, in halves, until it is known over which case."""
    try:
        with _known_shape("case"):
            return [(outcome, detail) for _, outcome, detail in (runner(session, cases) if cases else [])]
    except Exception as error:
        if len(cases) == 1:
            return [("failed", f"error: {str(error)[:500]}")]
    half = len(cases) // 2
    return _by_runner(session, runner, cases[:half]) + _by_runner(session, runner, cases[half:])
