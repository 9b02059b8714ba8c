"""The bundled cases of Kafka, Spark, Flink, Beam and Numaflow: each passes, or is named with its reason."""

from collections import Counter

import pytest
from pyspark.sql import SparkSession

from tests.conformance.cases import BUNDLED, load
from tests.conformance.suite import ADAPTERS, Result, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

NOT_APPLICABLE = {"kafka": 13, "spark": 8, "beam": 6, "flink": 3}


@pytest.fixture(scope="module")
def results(spark: SparkSession) -> list[Result]:
    return run(spark, BUNDLED)


@pytest.mark.parametrize("system", ADAPTERS)
def test_no_case_fails(results: list[Result], system: str) -> None:
    of_system = [r for r in results if r.case.system == system]
    assert [f"{r.case.file} / {r.case.name}: {r.detail}" for r in of_system if r.outcome == "failed"] == []
    assert any(r.outcome == "passed" for r in of_system)


def test_every_case_is_accounted_for(results: list[Result]) -> None:
    assert [r.case for r in results] == load(BUNDLED)
    assert Counter(r.case.system for r in results if r.outcome == "not_applicable") == NOT_APPLICABLE


def test_what_is_not_applicable_says_why(results: list[Result]) -> None:
    reasons = [r.detail for r in results if r.outcome == "not_applicable"]
    assert all(reasons)
    assert not [why for why in reasons if "another shape" in why]
