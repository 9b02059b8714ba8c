"""By hand: recompute every session that touches a span of time, and take its late events in.

First `--compare` says how many sessions would change; `only_dry_run` stops there, and so does a span in which nothing
would change. Then the span is recomputed in chunks, each a task of its own that is retried by itself. The result of
the task `summary` is what was expected and what was done.
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from airflow.sdk import DAG, Asset, Context, Param, get_current_context, task

from airflow_dags.chunks import edges
from airflow_dags.command import OF_ALL_DAGS, SessionizerOperator, figures
from airflow_dags.deployment import SETTINGS

WHOLE = "36500d"  # longer than any span: a chunk here is one commit there


def backfill(low: str, high: str, keys: Iterable[str]) -> list[str]:
    """The arguments of the command."""
    return ["backfill", "--from", low, "--to", high, "--chunk", WHOLE, *(f"--key={key}" for key in keys)]


def expected(context: Context, jinja_env: Any) -> list[str]:
    """The whole span, only looked at."""
    asked = context["params"]
    return [*backfill(asked["from"], asked["to"], asked["keys"]), "--compare"]


def _changes(runs: list[dict[str, Any]]) -> dict[str, Any]:
    found = figures(runs)
    return {name: found.get(name, 0) for name in ("rows_added", "rows_changed", "rows_removed")}


def _utc(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


for of in SETTINGS:
    with DAG(
        of.dag("backfill"),
        description="Recompute the sessions of a span of time from their events",
        doc_md=__doc__,
        schedule=None,
        params={
            "from": Param(type="string", format="date-time", description="Sessions that end at or after this time"),
            "to": Param(type="string", format="date-time", description="Sessions that start before this time"),
            "keys": Param(
                [],
                type="array",
                items={"type": "string"},
                description="Only these keys; JSON objects where the key has several columns. None: all",
            ),
            "chunk_days": Param(
                7,
                type="integer",
                minimum=1,
                description="Days that are committed at a time; more where that would be over 1,000 tasks",
            ),
            "only_dry_run": Param(False, type="boolean", description="Only say what would change"),
        },
        **OF_ALL_DAGS,
    ):
        dry_run = SessionizerOperator(task_id="dry_run", arguments=expected, **of.of_tasks())

        @task.short_circuit(ignore_downstream_trigger_rules=False)
        def go_on(looked: dict[str, Any]) -> bool:
            """Whether anything would change, and may."""
            return any(_changes(looked["runs"]).values()) and not get_current_context()["params"]["only_dry_run"]

        @task
        def chunks(looked: dict[str, Any]) -> list[list[str]]:
            """The arguments of each chunk, from where something is left."""
            asked = get_current_context()["params"]
            low, high = (_utc(asked[name]) for name in ("from", "to"))
            first = min((_utc(run["from"]) for run in looked["runs"]), default=low)
            spans = pairwise(edges(max(low, first), high, asked["chunk_days"]))  # what is forgotten stays so
            return [backfill(one.isoformat(), other.isoformat(), asked["keys"]) for one, other in spans]

        recompute = SessionizerOperator.partial(
            task_id="recompute",
            outlets=[Asset(of.sessions_asset)],
            map_index_template="{{ task.arguments[2] }} to {{ task.arguments[4] }}",
            **of.of_tasks(),
        ).expand(arguments=chunks(dry_run.output))

        @task(trigger_rule="none_failed")
        def summary() -> dict[str, Any]:
            """What was expected, what was done, and each chunk."""
            instance = get_current_context()["ti"]
            looked = instance.xcom_pull(task_ids="dry_run")
            of_chunks = instance.xcom_pull(task_ids=["recompute"])  # of one task alone it hands over a single one bare
            done = [run for document in of_chunks if document for run in document["runs"]]
            return {
                "expected": _changes(looked["runs"]),
                "done": _changes(done),
                "chunks": [{"from": run["from"], "to": run["to"], **_changes([run])} for run in done],
            }

        go_on(dry_run.output) >> recompute >> summary()
