"""The bundled cases of Kafka, Spark, Flink, Beam and Numaflow: each passes, or is named with its reason."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from tests.conformance.cases import BUNDLED, load
from tests.conformance.suite import ADAPTERS, Result, run


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> list[Result]:
    return run(spark, BUNDLED)


@pytest.mark.parametrize("system", ADAPTERS)
def test_no_case_fails(results: list[Result], system: str) -> None:
    failed = [f"{r.case.file} / {r.case.name}: {r.detail}" for r in results if r[:2] == (r.case, "failed")]
    assert not [line for line, r in zip(failed, results, strict=False) if r.case.system == system]


def test_every_case_is_accounted_for(results: list[Result]) -> None:
    assert [r.case for r in results] == load(BUNDLED)
    assert all(r.detail for r in results if r.outcome != "passed")


def test_what_is_not_applicable_has_a_reason_from_the_table(results: list[Result]) -> None:
    counted = Counter(r.case.system for r in results if r.outcome == "not_applicable")
    assert counted == {}
    assert not [r for r in results if "another shape" in r.detail]
