"""Every week: recompute the sessions of a sample of keys from their events, and compare.

A difference fails the task at once, without a retry, and says how many sessions differ and which rules are broken; the
first differences are its XCom `failed`.
"""

import os
from datetime import UTC, datetime

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from airflow_dags.command import SessionizerOperator
from airflow_dags.settings import Settings

SETTINGS = Settings.of(os.environ)

with DAG(
    "verify",
    description="Check a sample of the sessions against their events",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("0 5 * * 0", timezone="UTC"),
    start_date=datetime(2000, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    params={"sample": Param("1%", type="string", description="The share of the keys that is checked")},
    tags=["sessionizer"],
):
    SessionizerOperator(task_id="verify", arguments=["verify", "--sample", "{{ params.sample }}"], settings=SETTINGS)
