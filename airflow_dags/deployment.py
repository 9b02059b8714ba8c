"""The settings of this deployment, one for each sessions table; DAGs of your own need none of them."""

import os

from airflow_dags.settings import Settings

SETTINGS = Settings.of(os.environ)
