"""Kafka's sliding-window cases: all that are bundled run, and are equal."""

import json
from collections import Counter

import pytest
from pyspark.sql import SparkSession

from tests.conformance.cases import BUNDLED
from tests.conformance.sliding import NOT_APPLICABLE, PASSED, run_cases


@pytest.mark.slow
def test_kafkas_sliding_cases_are_equal(spark: SparkSession) -> None:
    cases = [case for file in sorted((BUNDLED / "kafka").glob("*.json")) for case in json.loads(file.read_text())]
    sliding = [case for case in cases if case["kind"] == "sliding"]
    results = run_cases(spark, sliding)
    assert [r for r in results if r[1] not in (PASSED, NOT_APPLICABLE)] == []
    assert Counter(outcome for _, outcome, _ in results) == {PASSED: len(sliding)}
