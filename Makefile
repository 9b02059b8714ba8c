SHELL := /bin/bash
.DEFAULT_GOAL := help
.PHONY: help setup java demo check test test-broad test-all test-soak test-connect test-s3 test-catalogs test-airflow test-versions conformance lint types fmt bench bench-full bench-history bench-sliding bench-airflow clean

BIN := .venv/bin
# Two processes, each with a JVM of its own: a job over a few rows keeps hardly more than one core busy. A process takes
# whole files, as what a file's tests share is made once in each process; tests/conftest.py says in which order.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# Pins of the oldest Spark and Delta that are taken (sessionizer/jobs/starting/versions.py), and of the oldest pyarrow,
# which platforms bring along as well; constraints.txt has the newest.
OLDEST := pyspark==4.0.1 delta_spark==4.0.1 pyarrow==18.0.0
OLD_PINS := grep -v -e ^pyspark= -e ^delta_spark= -e ^pyarrow= constraints.txt; printf "%s\n" $(OLDEST)
# PySpark 4.0 leaves sockets that it has read to the garbage collector, which is a warning, and warnings are errors.
SOCKETS_STAY := -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning
CAN_RUN := -c 'import sys; sys.exit(sys.version_info < (3, 11))'

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/.stamp ## create .venv with everything that is needed (quick when nothing changed)

demo: setup java ## sessionize a generated click-stream and show what came out
	$(BIN)/sessionizer demo

check: lint types ## check style, layers and types, and run the tests that need no Spark; half a minute
	$(PYTEST) -m "not slow and not broad and not spark"

test: setup java ## run the tests, without the broad and the slow ones; five to ten minutes
	$(PYTEST) -m "not slow and not broad"

test-broad: setup java ## run the broad ones, half an hour or more; PART=1/6 a sixth of them, as CI does
	SESSIONIZER_TEST_PART=$(PART) $(PYTEST) -m "broad and not slow"

test-all: setup java ## run the slow ones, which both leave out; an hour or more
	$(PYTEST) -m slow

test-soak: setup java ## three hundred increments, many rows, and what is random three times as long; hours
	$(BIN)/python -m pytest tests/soak
	SESSIONIZER_TEST_TIMES=3 $(PYTEST) -m slow tests/machine/test_machine.py tests/machine/test_over_delta.py tests/faults/test_races.py tests/faults/test_crashes.py tests/properties

test-connect: setup java ## run tests of commits, corrections and windows by a real Spark Connect server
	$(BIN)/python -m pytest tests/jobs/test_connect.py
	SESSIONIZER_TEST_CONNECT=1 $(PYTEST) tests/tables/test_commit_protocol.py tests/exactness/test_corrections.py \
	    tests/exactness/test_dedupe.py tests/exactness/test_windows.py tests/exactness/test_restore.py

test-s3: setup java ## run the tests upon tables in an S3 server of this machine; fetches 700 MB the first time
	$(BIN)/python -m pytest tests/s3

test-catalogs: setup java ## run the tests upon tables by name in a metastore of this machine; ten minutes
	$(BIN)/python -m pytest tests/catalogs

test-airflow: setup java .venv-airflow/.stamp ## run the DAGs by a real Airflow, in an environment of its own
	$(PYTEST) tests/airflow

test-versions: setup java .venv-oldest/.stamp ## commits, the demo and conformance by the oldest and the newest Spark and Delta; half an hour or more
	@for bin in .venv-oldest/bin $(BIN); do \
	    $$bin/sessionizer --version && \
	    $$bin/python -m pytest $(SOCKETS_STAY) tests/tables/test_commit_protocol.py tests/tables/test_logs.py tests/jobs/test_versions.py tests/jobs/test_without_spark.py && \
	    $$bin/sessionizer demo >/dev/null && \
	    $$bin/python -m tests.conformance || exit 1; \
	done

conformance: setup java ## run cases of Kafka, Spark, Flink, Beam and Numaflow; VECTORS=folder for others
	$(BIN)/python -m tests.conformance "$(VECTORS)"

lint: setup ## check style and layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup ## check types
	$(BIN)/mypy

fmt: setup ## format the code and fix what can be fixed
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

bench: setup java ## measure a first load, an increment and a cold start against what else one could take
	$(BIN)/python -m bench

bench-full: setup java ## measure everything; an hour and a half, memory and disk for 100 million events
	@failed=; for part in "bench --full" bench.history bench.sliding; do \
	    $(BIN)/python -m $$part || failed="$$failed, $$part"; \
	done; \
	[ -z "$$failed" ] || { echo "failed, or not as promised: $${failed#, }" >&2; exit 1; }

bench-history: setup java ## time backfills and late events against the length of the history
	$(BIN)/python -m bench.history

bench-sliding: setup java ## time sliding windows against Spark's hopping ones
	$(BIN)/python -m bench.sliding

bench-airflow: setup java .venv-airflow/.stamp ## time a task of Airflow's that starts Spark, and one by a warm Spark Connect server
	$(BIN)/python -m bench.airflow

clean: ## remove caches, build and demo output (not .venv)
	rm -rf build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -rf spark-warehouse metastore_db derby.log sessionizer-demo
	find . -name __pycache__ -type d -not -path './.venv*/*' -prune -exec rm -rf {} +

java:
	@bash scripts/check-java.sh

.venv/.stamp: pyproject.toml constraints.txt
	@bash scripts/check-java.sh
	@if command -v uv >/dev/null; then \
	    $(BIN)/python $(CAN_RUN) 2>/dev/null || { rm -rf .venv; uv venv --python '>=3.11' .venv; } || exit 1; \
	    echo "Installing; the first time takes a few minutes"; \
	    uv pip install --quiet --python $(BIN)/python -c constraints.txt -e '.[dev]' || exit 1; \
	else \
	    if ! { $(BIN)/python $(CAN_RUN) && $(BIN)/python -m pip --version; } >/dev/null 2>&1; then \
	        for python in $(PYTHON) python3.11 python3.12 python3.13 python3.14 python3 python; do \
	            "$$python" $(CAN_RUN) 2>/dev/null && break; python=; \
	        done; \
	        [ -n "$$python" ] || { echo "error: no Python 3.11 or newer found; install one, or name it: make setup PYTHON=/path/to/python3" >&2; exit 1; }; \
	        "$$python" -m venv --clear .venv || { rm -rf .venv; echo "error: $$python cannot create virtual environments; python3-venv is missing (apt-get install python3-venv)" >&2; exit 1; }; \
	    fi; \
	    echo "Installing; the first time takes a few minutes"; \
	    $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' || exit 1; \
	fi
	@touch $@
	@echo "Ready. Next: make demo; or, with a file of your own: source .venv/bin/activate && sessionizer new FILE"

.venv-airflow/.stamp: constraints-airflow.txt | .venv/.stamp
	@echo "Installing Airflow into .venv-airflow"
	@if command -v uv >/dev/null; then \
	    uv venv --quiet --clear --python $(BIN)/python .venv-airflow && \
	    uv pip install --quiet --python .venv-airflow/bin/python -c constraints-airflow.txt apache-airflow apache-airflow-providers-openlineage; \
	else \
	    $(BIN)/python -m venv --clear .venv-airflow && \
	    .venv-airflow/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-airflow.txt apache-airflow apache-airflow-providers-openlineage; \
	fi
	@touch $@

.venv-oldest/.stamp: pyproject.toml constraints.txt Makefile | .venv/.stamp
	@echo "Installing $(OLDEST) into .venv-oldest"
	@if command -v uv >/dev/null; then \
	    uv venv --quiet --clear --python $(BIN)/python .venv-oldest && \
	    uv pip install --quiet --python .venv-oldest/bin/python -c <($(OLD_PINS)) -e '.[dev]'; \
	else \
	    $(BIN)/python -m venv --clear .venv-oldest && \
	    .venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c <($(OLD_PINS)) -e '.[dev]'; \
	fi
	@touch $@
