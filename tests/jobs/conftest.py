"""A warehouse to look at: nobody who uses it writes to it."""

import pytest
import yaml
from pyspark.sql import SparkSession

from tests.warehouse import Warehouse

HOSTILE = '<script>alert(1)</script> & "b", $x^$'
FIRST = f"""
user | at    | n
ann  | 10:00 | 1
ann  | 10:20 | 2
{HOSTILE} | 10:25 | 3
"""
SECOND = """
user | at        | n
ann  | 10:30     | 4
bob  | +1d 12:00 | 5
cleo | +1d 12:10 | 6
"""
THIRD = """
user | at        | n
ann  | 09:00     | 9
bob  | +1d 12:01 | 7
"""
UNREAD = """
user | at        | n
bob  | +1d 12:03 | 8
"""


@pytest.fixture(scope="session")
def lake_to_see(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    """Three runs, one late event, one version not read yet; two sessions final, two open. With its config file."""
    time = {"allowed_lateness": "1h"}
    made = Warehouse(spark, tmp_path_factory.mktemp("lake"), time=time)
    made.append(FIRST)
    made.init()
    made.run()
    for events in (SECOND, THIRD):
        made.append(events)
        made.run()
    made.append(UNREAD)
    fields = made.config.model_dump(mode="json", exclude_none=True, include={"source", "sessions", "aggregates"})
    (made.folder / "sessionizer.yaml").write_text(yaml.safe_dump(fields | {"time": time}))
    return made
