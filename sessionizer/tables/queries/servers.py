"""Which servers and clusters a config and the environment name: where paths may not mean this machine."""

import os

from sessionizer.lib.config import Config
from sessionizer.lib.engine import is_this_machine

REMOTE = "spark.remote"
SPARK_REMOTE = "SPARK_REMOTE"
OF_CLUSTERS = ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR")  # variables


def elsewhere(config: Config) -> str | None:
    """What may have Spark take a path for one that is not on this machine."""
    found = [name for name, url in servers(config).items() if not is_this_machine(url)]
    found += [name for name in ("spark.hadoop.fs.defaultFS",) if name in config.spark]
    return next((name for name in (*found, *(n for n in OF_CLUSTERS if n in os.environ))), None)


def servers(config: Config) -> dict[str, str]:
    """The URLs of Spark Connect servers, by what names them."""
    named = {REMOTE: config.spark.get(REMOTE), SPARK_REMOTE: os.environ.get(SPARK_REMOTE)}
    return {name: url for name, url in named.items() if url}
