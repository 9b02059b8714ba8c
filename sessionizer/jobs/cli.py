"""The command line. Heavy imports wait until a command needs them, so that --help is quick."""

import json
import re
import sys
import traceback
from importlib import metadata
from typing import Annotated

import typer

from sessionizer.jobs.command_line import feed, look_back, lookups, questions, run, upkeep
from sessionizer.lib import __version__
from sessionizer.lib.errors import SessionizerError, VersionMismatch, printable, without_passwords

# Which extra of the package brings a library that only some commands need.
EXTRAS = {
    **{"pyspark": "spark", "py4j": "spark", "delta": "spark", "grpc": "connect"},
    **{"great_expectations": "quality", "jinja2": "report", "markupsafe": "report", "matplotlib": "report"},
}
UNEXPECTED = 70  # the exit code of a bug, as sysexits.h has it: unlike 1 and 2 it may be worth another try
_OURS = re.compile(r"`?\b__\w+`?")  # names of columns in flight, which nobody else knows
app = typer.Typer(
    name="sessionizer",
    no_args_is_help=True,
    add_completion=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(asked: bool) -> None:
    if asked:
        engines = ", ".join(f"{name} {_version(name)}" for name in ("pyspark", "delta-spark"))
        print(f"sessionizer {__version__} ({engines}, Python {sys.version.split()[0]})")
        raise typer.Exit


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a platform's own may not be a package
        return "of this platform"


Version = typer.Option("--version", help="Say which version this is.", callback=_say_version, is_eager=True)


@app.callback()
def options(version: Annotated[bool, Version] = False) -> None:
    """Turn events in a Delta Lake into sessions: incrementally, exactly, at any size."""


for part in (feed, run, look_back, upkeep, lookups, questions):
    app.add_typer(part.app)


def main() -> None:
    """Run the command line; every failure becomes a sentence and an exit code, a bug behind its traceback."""
    as_json = "--json" in sys.argv
    try:
        app()
    except SessionizerError as error:
        _fail(str(error), error.exit_code, as_json)
    except KeyboardInterrupt:
        _fail("stopped; what was committed stays, the next run goes on from there", 130, as_json)
    except Exception as error:
        try:
            found = _not_there(error) if isinstance(error, ImportError) else _known(error)
        except Exception:  # without PySpark nothing of its errors is known
            found = None
        if found is None:
            traceback.print_exc()
            first = next(iter(str(error).splitlines()), "")
            text = f"this should not have happened: {type(error).__name__}: {first[:500]}"
            found = f"{text}. Where, the traceback tells; please report it.", UNEXPECTED
        _fail(*found, as_json)


def _known(error: Exception) -> tuple[str, int] | None:
    """What a failure of Spark, of the machine or of a store says, and its exit code; None: it is none."""
    from sessionizer.jobs.failures import known_failure
    from sessionizer.jobs.spark import log_folder

    if (named := known_failure(error)) is not None:
        return str(named), named.exit_code
    if type(error).__module__.split(".")[0] not in ("pyspark", "py4j", "delta"):
        return None
    return f"Spark failed: {_spark_message(error)} Spark's log is in {log_folder()}.", 3


def _not_there(error: ImportError) -> tuple[str, int] | None:
    """That a library is not installed, or of a release that lacks what is imported; None: it is another one."""
    extra = EXTRAS.get(str(error.name).split(".")[0])
    if extra is None:
        return None
    from sessionizer.jobs.starting.versions import check_installed

    try:
        check_installed()
    except VersionMismatch as mismatch:
        return str(mismatch), 2
    except ModuleNotFoundError:  # there is no Spark at all
        pass
    if not isinstance(error, ModuleNotFoundError):
        return None
    return f"this needs {error.name}, which is not installed. pip install '.[{extra}]' in the checkout.", 2


def _spark_message(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if line.startswith(("[", ": ")) or "Exception: " in line), None)
    text = (telling or (lines or [type(error).__name__])[0]).lstrip(": ")[:500]
    return _OURS.sub("a column that is computed", text)


def _fail(message: str, code: int, as_json: bool) -> None:
    from sessionizer.jobs.console import print_json, stderr

    message = printable(without_passwords(message))
    if "--log-json" in sys.argv:
        print(json.dumps({"level": "error", "event": "error", "message": message, "exit_code": code}), file=sys.stderr)
    else:
        stderr().print("error:", style="bold red", end=" ")
        stderr().print(message)
    if as_json:
        print_json({"error": message, "exit_code": code})
    sys.exit(code)


if __name__ == "__main__":
    main()
