"""Every night: compact the hot and recent files of the tables, delete those no longer needed, clean up their logs."""

from airflow.sdk import DAG, CronDataIntervalTimetable

from airflow_dags.command import BY_THE_CLOCK, SETTINGS, SessionizerOperator

with DAG(
    "maintain",
    description="Compact and clean up the tables",
    doc_md=__doc__,
    schedule=CronDataIntervalTimetable("30 3 * * *", timezone="UTC"),
    **BY_THE_CLOCK,
):
    SessionizerOperator(task_id="maintain", arguments=["maintain", *SETTINGS.maintain_options])
