"""A Delta table: all that can be done with it, one storey on the other; the upper one is its upkeep."""

from pyspark.sql import functions as F

from tables.delta.commits import racing
from tables.delta.settings import LARGE, LOG_KEPT, REMOVED_FILES_KEPT, SMALL, having, saying
from tables.delta.write import Writing


class Table(Writing):
    """A Delta table at a path, a URL or under a catalog name.

    From the ground up: `place` (where, and its lock), `log` (what Delta knows at once), `read`, `write`, and here what
    keeps it quick and small: fewer and fewer old files.
    """

    def compact(self, condition: str, metadata: str | None = None) -> None:
        """Make few files of many small ones, in the partitions that the condition on partition columns allows."""
        sizes = {
            "spark.databricks.delta.optimize.minFileSize": str(SMALL),
            "spark.databricks.delta.optimize.maxFileSize": str(LARGE),
        }
        where = f" WHERE {condition}" if condition != "true" else ""
        with self.lock(), saying(self.spark, metadata), having(self.spark, sizes), racing():
            self.spark.sql(f"OPTIMIZE {self._sql_name()}{where}").collect()

    def keep_removed(self, us: int, metadata: str | None = None) -> None:
        """Have Delta keep removed files, and the log that names them, for so long (microseconds)."""
        removed, log = self.kept_us()
        if us != removed:
            # Both at once: Delta refuses files that are kept for longer than the log, by what the command says alone.
            kept = {REMOVED_FILES_KEPT: us, LOG_KEPT: max(us, log)}
            texts = {name: f"interval {-(-duration // 1_000_000)} seconds" for name, duration in kept.items()}
            self.change_settings(texts, metadata)

    def vacuum(self, metadata: str | None = None, *, dry_run: bool = False) -> int:
        """Delete files that no version within REMOVED_FILES_KEPT has; how many (a dry run: how many it would be)."""
        command = f"VACUUM {self._sql_name()}"
        # Delta lists the folders in as many tasks as this allows: 10,000 took 100 seconds for a table of ten files.
        tasks = 4 * self.spark.sparkContext.defaultParallelism
        listing = {"spark.sql.sources.parallelPartitionDiscovery.parallelism": str(tasks)}
        with self.lock(), saying(self.spark, metadata), having(self.spark, listing):
            # The list has folders too, even such as are not empty and stay.
            name = F.element_at(F.split("path", "/"), -1)
            number = self.spark.sql(f"{command} DRY RUN").where(name.contains(".") & ~name.contains("=")).count()
            if number and not dry_run:  # where there are none, two commits would only say so
                self.spark.sql(command).collect()
        return number
