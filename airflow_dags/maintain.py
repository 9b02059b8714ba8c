"""Every night: compact the hot and recent files of the tables, delete those no longer needed, clean up their logs."""

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_dags.command import SessionizerOperator
from airflow_dags.settings import Settings

SETTINGS = Settings.of(os.environ)

with DAG(
    "maintain",
    description="Compact and clean up the tables",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("30 3 * * *", timezone="UTC"),
    start_date=datetime(2000, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    tags=["sessionizer"],
):
    SessionizerOperator(task_id="maintain", arguments=["maintain", *SETTINGS.maintain], settings=SETTINGS)
