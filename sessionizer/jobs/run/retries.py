"""Starting over, where another run was faster."""

from collections.abc import Callable
from typing import TypeVar

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from sessionizer.jobs.run.compute import given_back
from sessionizer.jobs.run.phases import Say
from sessionizer.lib.errors import RunFailed
from sessionizer.tables.delta import Superseded, told

ATTEMPTS = 12
LOST_CHECKPOINT = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"  # what Spark says of it
Result = TypeVar("Result")


def with_retries(step: Callable[[], Result], say: Say, table: str = "sessions") -> Result:
    """The step, started over as often as another run is faster, after a short time drawn by lot.

    table: which one they write to. Errors: RunFailed after too many races in a row.
    """
    retrying = Retrying(
        retry=retry_if_exception(may_start_over),
        stop=stop_after_attempt(ATTEMPTS),
        wait=wait_random_exponential(multiplier=0.2, max=5),
        before_sleep=lambda state: say(_why_again(state)),
        reraise=True,
    )

    try:
        return retrying(given_back()(step))
    except Superseded as error:
        raise RunFailed(
            f"other runs were faster {ATTEMPTS} times in a row",
            value=str(error),
            remedy=f"let fewer processes write to the same {table} table",
        ) from error


def may_start_over(error: BaseException) -> bool:
    """Another run has committed first; or an executor died with what it alone had."""
    lost = isinstance(error, PySparkException | Py4JJavaError) and LOST_CHECKPOINT in told(error)
    return lost or isinstance(error, Superseded)


def _why_again(state: RetryCallState) -> str:
    if state.outcome is not None and isinstance(state.outcome.exception(), Superseded):
        return "another run was faster: starting over from its result"
    return "an executor was lost with what it had computed: starting over"
