"""Every hour, and whenever the events asset changes: merge the new events into the sessions table.

A scheduled run consumes the versions of the source that are new, whatever its data interval: late files need no run of
their own, and a run that was missed leaves no gap. Only a run that `airflow backfill create` has made recomputes its
data interval. Each run that wrote something is told as an event of the sessions asset, with its figures.
"""

from typing import Any

from airflow.sdk import DAG, Asset, AssetOrTimeSchedule, Context, CronDataIntervalTimetable

from airflow_dags.command import BY_THE_CLOCK, SessionizerOperator
from airflow_dags.deployment import SETTINGS


def what_to_do(context: Context, jinja_env: Any) -> list[str]:
    """`run`, or `backfill` of the data interval."""
    run = context["dag_run"]
    if run.run_type != "backfill":
        return ["run"]
    return ["backfill", "--from", run.data_interval_start.isoformat(), "--to", run.data_interval_end.isoformat()]


for of in SETTINGS:
    with DAG(
        of.dag("sessionize"),
        description="Merge new events into the sessions table",
        doc_md=__doc__,
        schedule=AssetOrTimeSchedule(
            timetable=CronDataIntervalTimetable("0 * * * *", timezone="UTC"), assets=[Asset(of.events_asset)]
        ),
        **BY_THE_CLOCK,
    ):
        SessionizerOperator(
            task_id="sessionize",
            arguments=what_to_do,
            skip_if_nothing=True,
            inlets=[Asset(of.events_asset)],
            outlets=[Asset(of.sessions_asset)],
            **of.of_tasks(),
        )
