"""What a catalog says of a table's name: whether it has such a table, where it lies, and what is wrong with it."""

import re
from collections.abc import Mapping

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from sessionizer.lib.config import database_of, location_kind
from sessionizer.lib.engine import is_remote
from sessionizer.lib.errors import ConfigError, TableError

# What Spark says of a name: of a view, of a table without its files, of a catalog that is not there.
VIEW, NO_FILES, NO_CATALOG = "EXPECT_TABLE_NOT_VIEW", "DELTA_PATH_DOES_NOT_EXIST", "REQUIRES_SINGLE_PART_NAMESPACE"
NOT_EMPTY = "DELTA_CREATE_TABLE_WITH_NON_EMPTY_LOCATION"  # of the folder of a new table


def has_table(spark: SparkSession, name: str, field: str) -> bool:
    """Whether the catalog has a Delta table of this name. `field`: the configuration key that names it.

    Errors: TableError where it has no such database, something else by the name, or a table whose files are gone.
    """
    try:
        if spark.catalog.tableExists(name):
            return bool(path_of(spark, name, field))
    except AnalysisException as error:
        if NO_FILES in str(error):
            raise TableError(
                f"{field} is in the catalog, and its files are gone",
                value=name,
                remedy="bring them back from a copy of the table, or have the catalog forget it: DROP TABLE",
            ) from error
        if NO_CATALOG not in str(error):
            raise
    database = database_of(name)
    if not spark.catalog.databaseExists(database):
        raise TableError(
            f"{field} must lie in a database that the catalog has",
            value=name,
            remedy=f"CREATE DATABASE {database}, by spark-sql upon the same catalog, or name another",
        )
    return False


def path_of(spark: SparkSession, name: str, field: str) -> str:
    """The folder or URL of a Delta table. Errors: TableError where the name is that of something else."""
    try:
        kept_as, path = spark.sql(f"DESCRIBE DETAIL {name}").select("format", "location").collect()[0]
    except AnalysisException as error:
        if VIEW not in str(error):
            raise
        raise _no_table(name, field, "a view", "name the table that the view reads") from error
    if kept_as != "delta":
        remedy = "name another; Spark's CONVERT TO DELTA makes one of Parquet"
        raise _no_table(name, field, f"a table of format {kept_as}", remedy)
    return str(path)


def left_over(name: str, field: str, error: AnalysisException) -> TableError:
    """What to say where the folder of a table to be made has files, as Spark's error tells."""
    folder = re.search(r"location \('(.+?)'\)", str(error))
    return TableError(
        f"{field} cannot be made: its folder has files, and the catalog knows of no table there",
        value=name,
        remedy=f"remove the folder{f' {folder[1]}' if folder else ''}; if it is a Delta table that somebody needs, "
        f"CREATE TABLE {name} USING delta LOCATION 'that folder'",
    )


def check_lasting(spark: SparkSession, tables: Mapping[str, str]) -> None:
    """Raise where one of these tables, by the keys that name them, is a name that ends with this process.

    Errors: ConfigError.
    """
    own = spark.conf.get("spark.sql.catalog.spark_catalog", "") or ""
    kept = spark.conf.get("spark.sql.catalogImplementation", "in-memory")
    if is_remote(spark) or not own.endswith("DeltaCatalog") or kept != "in-memory":
        return
    for field, name in tables.items():
        if location_kind(name) == "name" and _catalog_of(spark, name) == "spark_catalog":
            raise ConfigError(
                f"{field} must be a path, or a name in a catalog that outlasts the command",
                value=name,
                remedy="name a metastore in `spark:`, such as spark.sql.catalogImplementation: hive",
            )


def _catalog_of(spark: SparkSession, name: str) -> str:
    said = database_of(name).rpartition(".")[0]
    return (said or spark.catalog.currentCatalog()).strip("`").lower()


def _no_table(name: str, field: str, there: str, remedy: str) -> TableError:
    rule = f"{field} must be a Delta table, and this is not one: the catalog has {there}"
    return TableError(rule, value=name, remedy=remedy)
