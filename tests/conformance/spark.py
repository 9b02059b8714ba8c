"""Spark's session_window: batch, streaming, and the iterators inside it.

Range [ts, ts + gap), touching ranges merge. Evicted iff end <= W, late iff the record's own end <= W, to the
microsecond: our clock is W + 1 µs. Spark judges a record by its own range, we by the session it would be part of
(`lateness: session`): they differ for a record whose range has ended and that touches an open session.
"""

from tests.conformance import configs, ranges
from tests.conformance.cases import Case
from tests.conformance.pipelines import Dialect, pipeline
from tests.conformance.plans import Plan
from tests.conformance.plays import Rules
from tests.conformance.units import US

DIALECT = Dialect(
    rules=Rules("joins", "session"),
    clock=lambda watermark, gap, lateness: (watermark + US, watermark + US - lateness),
)


def adapt(case: Case) -> Plan:
    if "expected_error" in case.body:
        return configs.refused(case, DIALECT.rules)
    return pipeline(case, DIALECT) if case.kind == "pipeline" else ranges.adapt(case, DIALECT)
