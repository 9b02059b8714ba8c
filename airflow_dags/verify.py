"""Every week: recompute the sessions of a sample of keys from their events, and compare.

A difference fails the task at once, without a retry, and says how many sessions differ and which rules are broken; the
first differences are its XCom `failed`.
"""

from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from airflow_dags.command import BY_THE_CLOCK, SessionizerOperator
from airflow_dags.deployment import SETTINGS

for of in SETTINGS:
    with DAG(
        of.dag("verify"),
        description="Check a sample of the sessions against their events",
        doc_md=__doc__,
        schedule=CronDataIntervalTimetable("0 5 * * 0", timezone="UTC"),
        params={"sample": Param("1%", type="string", description="The share of the keys that is checked")},
        **BY_THE_CLOCK,
    ):
        SessionizerOperator(task_id="verify", arguments=["verify", "--sample", "{{ params.sample }}"], **of.of_tasks())
