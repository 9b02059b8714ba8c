"""DAGs for Airflow that call the command line; they need neither Spark nor this project's packages."""
