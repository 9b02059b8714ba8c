"""The command line. Heavy imports wait until a command needs them, so that --help is quick."""

import json
import re
import sys
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
    """Run the command line; every failure becomes a sentence and an exit code."""
    as_json = "--json" in sys.argv
    try:
        app()
    except SessionizerError as error:
        _fail(str(error), error.exit_code, as_json)
    except KeyboardInterrupt:
        _fail("stopped; what was committed stays, the next run goes on from there", 130, as_json)
    except ImportError as error:
        _fail(_not_there(error), 2, as_json)
    except Exception as error:
        from sessionizer.jobs.failures import known_failure

        if (named := known_failure(error)) is not None:
            _fail(str(named), named.exit_code, as_json)
        if type(error).__module__.split(".")[0] not in ("pyspark", "py4j", "delta"):
            raise
        from sessionizer.jobs.spark import log_folder

        _fail(f"Spark failed: {_spark_message(error)} Spark's log is in {log_folder()}.", 3, as_json)


def _not_there(error: ImportError) -> str:
    """That a library is not installed, or of a release that lacks what is imported; others are raised again."""
    extra = EXTRAS.get(str(error.name).split(".")[0])
    if extra is None:
        raise error
    from sessionizer.jobs.starting.versions import check_installed

    try:
        check_installed()
    except VersionMismatch as mismatch:
        return str(mismatch)
    except ModuleNotFoundError:  # there is no Spark at all
        pass
    if not isinstance(error, ModuleNotFoundError):
        raise error
    return f"this needs {error.name}, which is not installed. pip install '.[{extra}]' in the checkout."


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
