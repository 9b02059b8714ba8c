"""`schema` and `demo`: what needs no tables."""

import json
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer()


@app.command(epilog="Example: sessionizer schema > sessionizer.schema.json")
def schema() -> None:
    """Print the JSON Schema of the config file."""
    from lib.config import json_schema

    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))


@app.command(epilog="Example: sessionizer demo /tmp/shop")
def demo(
    folder: Annotated[Path, typer.Argument(help="Where the demo's files and tables go.")] = Path("sessionizer-demo"),
) -> None:
    """Make a click-stream, run three increments over it and show what happens."""
    from jobs.demo.demo import demo as play

    play(folder)
