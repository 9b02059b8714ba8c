"""The one way to a Spark session, for jobs and tests."""

import atexit
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from filelock import FileLock
from py4j.java_gateway import JavaClass, JavaMember
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from sessionizer.jobs.starting.quick_start import java_options
from sessionizer.jobs.starting.remote import ALWAYS, CATALOG_OF_DELTA, REMOTE, remote_session, taken_over
from sessionizer.jobs.starting.versions import check_installed, delta_package
from sessionizer.lib.errors import RunFailed
from sessionizer.tables.places import object_store

# Spark ships these itself; without them the first start fetches 13 MB instead of 87.
NOT_NEEDED = (
    "org.apache.hadoop",
    "com.fasterxml.jackson.core",
    "com.fasterxml.jackson.datatype",
    "org.apache.logging.log4j",
    "org.apache.parquet",
    "org.slf4j",
    "org.xerial.snappy",
    "com.github.luben",
    "org.roaringbitmap",
    "org.locationtech.jts",
    "io.airlift",
    "commons-pool",
    "com.google.code.findbugs",
    "javax.annotation",
)
EVERYWHERE = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": CATALOG_OF_DELTA,
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "20",
    "spark.sql.codegen.cache.maxEntries": "1000",  # of 100, a run that is repeated compiles up to 20 anew
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",  # half as wide as INT96, and with statistics
    # Times and ids differ in most rows: of a mebibyte, a column was put in a dictionary for 130,000 rows, in vain.
    "spark.hadoop.parquet.dictionary.page.size": str(64 << 10),
    # Else each call that makes a column looks through the stack and asks the JVM several times, for errors of ours.
    "spark.python.sql.dataFrameDebugging.enabled": "false",
    # Sets, lists and sketches: sorting costs less than maps of objects, in time and memory.
    "spark.sql.execution.useObjectHashAggregateExec": "false",
}
# For throughput: of a batch nobody sees the pauses. And with room for what a small run takes: on the way there all was
# collected twice, which is a twentieth of its time.
COLLECTOR, HEAP = "-XX:+UseParallelGC -XX:MetaspaceSize=256m", "-Xms512m"
JAVA_OPTIONS, CLASS_PATH = "spark.driver.extraJavaOptions", "spark.driver.extraClassPath"
READ_BY_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
ASKED_FOR = (
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.SparkSession",
    "org.apache.spark.sql.api.python.PythonSQLUtils",
    "org.apache.spark.sql.delta.DeltaLog",
    "org.apache.spark.sql.delta.util.FileNames",
    "scala.Option",
    "functions",
    "PythonUtils",
    "PythonSQLUtils",
)
WAREHOUSE, CATALOG = "spark.sql.warehouse.dir", "spark.sql.catalogImplementation"
LOGS_KEPT = 20
JARS_DONE = "complete"  # beside the jars, once all are there


def local_settings() -> dict[str, str]:
    """Settings that suit one machine, where Spark's defaults are meant for a cluster."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2
    return {
        "spark.master": f"local[{cores}]",
        "spark.driver.memory": "4g",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.adaptive.enabled": "false",  # its plans anew at each stage cost a small run a fifth of its time
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.debug.maxToStringFields": "200",
    }


def spark_session(settings: Mapping[str, str] | None = None, *, small: bool = False) -> SparkSession:
    """A session with Delta; `settings` (the config's `spark:`) override all but ALWAYS.

    small: little work waits, so that a quick start counts for more than fast machine code.
    A session that is there already, and the master that spark-submit or a cluster has chosen, are taken over.
    Errors: VersionMismatch, before anything is started; RunFailed where Spark does not start.
    """
    check_installed()
    settings = dict(settings or {})
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # errors are told once, by us
    builder = SparkSession.builder.appName("sessionizer")
    if running := SparkSession.getActiveSession():
        return taken_over(running)
    if remote := settings.pop(REMOTE, None) or os.environ.get("SPARK_REMOTE"):
        return remote_session(remote, settings, small=small)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = {} if submitted or "spark.master" in settings else local_settings()
    if submitted:
        for name, value in (EVERYWHERE | local | settings | ALWAYS).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    log = _log_file()
    with _jars_by_one_process():
        jars = _delta_jars(settings)
        start = _java_start(jars, settings, small=small) if local else {}
        own = {} if {WAREHOUSE, CATALOG} & settings.keys() else {WAREHOUSE: _passing_folder()}
        own |= object_store.spark_settings(settings, os.environ)
        for name, value in (EVERYWHERE | own | local | settings | jars | start | ALWAYS).items():
            builder = builder.config(name, value)
        try:
            with _output_to(log):
                session = builder.getOrCreate()
        except Exception as error:
            raise RunFailed("Spark did not start", value=str(error).splitlines()[0], remedy=f"read {log}") from error
        (cache_folder() / JARS_DONE).touch()
    _remember_classes(session)
    return session


@contextmanager
def _jars_by_one_process() -> Iterator[None]:
    """Until the jars are there, one process at a time: two that fetch the same file leave each other half of it."""
    if (cache_folder() / JARS_DONE).exists():
        yield
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with FileLock(cache_folder() / "fetching.lock"):
        yield


class _Remembered(JavaClass):  # type: ignore[misc]
    """A class of Java's whose functions are looked up there once, not at every call."""

    def __getattr__(self, name: str) -> Any:
        found = super().__getattr__(name)
        if isinstance(found, JavaMember):
            setattr(self, name, found)
        return found


def _remember_classes(session: SparkSession) -> None:
    """PySpark has the JVM look up by name what it calls all the time: a tenth of a small run goes there."""
    jvm = session._jvm
    for name in ASKED_FOR:
        setattr(jvm, name, _Remembered(getattr(jvm, name)._fqn, jvm._gateway_client))  # type: ignore[union-attr]


def _java_start(jars: Mapping[str, str], settings: Mapping[str, str], *, small: bool) -> dict[str, str]:
    """On one machine: the JVM's collector, unless the user names one, and its quick start.

    The jars go on the class path where an archive of their classes can serve them.
    """
    listed = _cached_jars() if "spark.jars" in jars else []
    quick = java_options(cache_folder(), listed, small=small) if listed else ""
    theirs = settings.get(JAVA_OPTIONS, "")
    said = " ".join([theirs, *(os.environ.get(name, "") for name in READ_BY_JAVA)])
    heap = "" if "spark.driver.memory" in settings or "-Xm" in said else HEAP  # Java starts with no more than its most
    collector = [] if "GC" in said else [COLLECTOR, heap]  # nor with two collectors
    options = (*collector, quick, theirs)
    path = {CLASS_PATH: os.pathsep.join(filter(None, (*listed, settings.get(CLASS_PATH))))} if quick else {}
    return {JAVA_OPTIONS: " ".join(filter(None, options)), **path}


def _passing_folder() -> str:
    """For tables of a catalog that ends with this process; else Spark makes one where the user stands."""
    folder = tempfile.mkdtemp(prefix="sessionizer-warehouse-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def log_folder() -> Path:
    """Where Spark's own log goes, one file a process."""
    return Path(tempfile.gettempdir()) / f"sessionizer-logs-{os.getuid() if hasattr(os, 'getuid') else 0}"


def has_ended(error: Exception) -> bool:
    """Whether the JVM beside this process is gone: it has ended, or, by this error, answers no more."""
    gateway: Any = SparkContext._gateway
    if gateway is None:
        return False
    process = getattr(gateway, "proc", None)  # none where spark-submit has started this process
    is_gone = process is not None and process.poll() is not None
    return is_gone or isinstance(error, Py4JNetworkError | ConnectionRefusedError | ConnectionResetError)


def cache_folder() -> Path:
    """Where the jars of Delta are kept between starts."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "sessionizer" / f"delta-{version('delta-spark')}-spark-{version('pyspark')}"


def _delta_jars(settings: Mapping[str, str]) -> dict[str, str]:
    """The jars of Delta from the cache; the first start resolves them into it."""
    package = delta_package(version("pyspark"), version("delta-spark"))
    more_packages, more_jars = settings.get("spark.jars.packages"), settings.get("spark.jars")
    jars = _cached_jars()
    if (cache_folder() / JARS_DONE).exists() and jars and not more_packages:
        return {"spark.jars": ",".join(filter(None, [*jars, more_jars]))}
    unwanted = [f"{group}:*" for group in NOT_NEEDED if group not in (more_packages or "")]
    return {
        "spark.jars.packages": ",".join(filter(None, [package, more_packages])),
        "spark.jars.excludes": ",".join(filter(None, [*unwanted, settings.get("spark.jars.excludes")])),
        **({} if more_packages else {"spark.jars.ivy": str(cache_folder())}),
    }


def _cached_jars() -> list[str]:
    return sorted(str(jar) for jar in (cache_folder() / "jars").glob("*.jar"))


def _log_file() -> Path:
    folder = log_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for old in sorted(folder.glob("spark-*.log"), key=_changed)[: -LOGS_KEPT + 1]:
        old.unlink(missing_ok=True)
    return folder / f"spark-{os.getpid()}.log"


def _changed(path: Path) -> float:
    """When; one that another process has removed meanwhile is the oldest."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


@contextmanager
def _output_to(log: Path) -> Iterator[None]:
    """The JVM inherits stdout and stderr of the moment it starts in: this file, which keeps Spark's log noise.

    Results are printed by Python alone; VACUUM prints on stdout, where a machine would stumble over it.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [(number, os.dup(number)) for number in (1, 2)]
    with log.open("ab") as file:
        for number, _ in kept:
            os.dup2(file.fileno(), number)
    try:
        yield
    finally:
        for number, copy in kept:
            os.dup2(copy, number)
            os.close(copy)
