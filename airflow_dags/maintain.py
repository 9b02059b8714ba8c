"""Every night: compact the hot and recent files of the tables, delete those no longer needed, clean up their logs."""

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_dags.command import BY_THE_CLOCK, SessionizerOperator
from airflow_dags.deployment import SETTINGS

for of in SETTINGS:
    with DAG(
        of.dag("maintain"),
        description="Compact and clean up the tables",
        doc_md=__doc__,
        schedule=CronDataIntervalTimetable("30 3 * * *", timezone="UTC"),
        **BY_THE_CLOCK,
    ):
        SessionizerOperator(task_id="maintain", arguments=["maintain", *of.maintain_options], **of.of_tasks())
