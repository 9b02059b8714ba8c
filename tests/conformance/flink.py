"""Flink's session windows: DataStream, SQL, assigners and the merging set.

Range [ts, ts + gap), touching ranges merge. Fires iff W >= end - 1, gone and late iff W >= end - 1 + lateness, all
in milliseconds and of the merged session: our clock is W + 2 ms. Records are judged one after the other. Processing
time is event time that the clock of arrival gives.
"""

from tests.conformance import configs, ranges
from tests.conformance.cases import Case
from tests.conformance.pipelines import Dialect, pipeline
from tests.conformance.plans import Plan
from tests.conformance.plays import Rules
from tests.conformance.units import MS

DIALECT = Dialect(
    rules=Rules("joins", "session"),
    clock=lambda watermark, gap, lateness: (watermark + 2 * MS, watermark + 2 * MS - lateness),
    one_by_one=True,
)


def adapt(case: Case) -> Plan:
    if "expected_error" in case.body:
        return configs.refused(case, DIALECT.rules)
    return pipeline(case, DIALECT) if case.kind == "pipeline" else ranges.adapt(case, DIALECT)
