"""`python -m tests.conformance [FOLDER]`: run the cases of a folder (default: the bundled ones) and tell."""

import os
import sys
import time
from collections import Counter
from pathlib import Path

from sessionizer.jobs.spark import spark_session
from tests.conformance.cases import BUNDLED, load
from tests.conformance.not_applicable import NO_SKETCHES, REASONS
from tests.conformance.suite import ADAPTERS, Result, run

OUTCOMES = ("passed", "failed", "not_applicable")
NOT_APPLICABLE = {"kafka": 11, "spark": 8, "beam": 6, "flink": 3}  # of the bundled cases


def main(arguments: list[str]) -> int:
    """Exit code: 0 all that applies has passed, 1 a case failed, 2 there is no such folder or no case in it."""
    folder = Path(arguments[0]) if arguments and arguments[0] else BUNDLED
    if not folder.is_dir():
        print(f"error: no such folder: {folder}", file=sys.stderr)
        return 2
    os.environ["TZ"] = "UTC"
    time.tzset()
    session = spark_session({"spark.driver.memory": "3g"})
    results = run(session, folder)
    session.stop()
    if not results:
        print(f"error: no cases in {folder} (kafka/*.json, peers/*.json)", file=sys.stderr)
        return 2
    print("\n".join(report(results)))
    unlike = unaccounted(results) if folder == BUNDLED else []
    for line in unlike:
        print(line, file=sys.stderr)
    return 1 if unlike or any(result.outcome == "failed" for result in results) else 0


def unaccounted(results: list[Result]) -> list[str]:
    """What is wrong with the results of the bundled cases as a whole: each has one, with a reason, in known numbers."""
    refused = [r for r in results if r.outcome == "not_applicable"]
    excused = Counter(r.case.system for r in refused if r.detail != NO_SKETCHES)  # which a newer Spark has
    unexplained = [r.case.name for r in refused if r.detail not in REASONS]
    passed = [r.case.system for r in results if r.outcome == "passed"]
    sliding = [r.case.name for r in results if r.case.kind == "sliding" and r.outcome != "passed"]
    return [
        *(f"error: no case of {system} has passed" for system in ADAPTERS if system not in passed),
        *(f"error: a case of sliding windows has not passed: {name}" for name in sliding),
        *(["error: not every case has a result"] if [r.case for r in results] != load(BUNDLED) else []),
        *([f"error: not applicable are {dict(excused)}, not {NOT_APPLICABLE}"] if excused != NOT_APPLICABLE else []),
        *(f"error: no reason is given: {name}" for name in unexplained),
    ]


def report(results: list[Result]) -> list[str]:
    """Lines: a table by system, the reasons of what is not applicable, and the failed cases."""
    counted = Counter((result.case.system, result.outcome) for result in results)
    lines = [f"{'system':<12}{'passed':>8}{'failed':>8}{'not applicable':>16}{'all':>6}"]
    for system in [*sorted({result.case.system for result in results}), "all"]:
        n = [sum(c for (s, o), c in counted.items() if o == outcome and system in (s, "all")) for outcome in OUTCOMES]
        lines.append(f"{system:<12}{n[0]:>8}{n[1]:>8}{n[2]:>16}{sum(n):>6}")
    reasons = Counter((r.case.system, r.detail) for r in results if r.outcome == "not_applicable")
    if reasons:
        lines += ["", "not applicable"]
        ordered = sorted(reasons.items(), key=lambda reason: (reason[0][0], -reason[1]))
        lines += [f"{n:>4}  {system:<10}{why}" for (system, why), n in ordered]
    for result in results:
        if result.outcome == "failed":
            case = result.case
            lines += ["", f"failed: {case.system} / {case.file} / {case.name}"]
            lines += [f"    {line}" for line in result.detail.splitlines()]
    return lines


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
