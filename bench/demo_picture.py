"""Draws docs/demo.svg, the demo as it looks in a terminal: `python -m bench.demo_picture [FILE]`.

The demo itself is made in the folder sessionizer-demo.
"""

import re
import sys
from pathlib import Path

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console

from sessionizer.jobs.demo.demo import QUESTIONS, WIDEST, answer, play


def main() -> None:
    file = Path(sys.argv[1] if len(sys.argv) > 1 else "docs/demo.svg")
    out = Console(record=True, width=WIDEST, highlight=False, color_system="truecolor")
    spark, config = play(Path("sessionizer-demo"), out)
    answer(spark, config, next(iter(QUESTIONS)), out)
    without_fonts_from_the_net = re.sub(r"@font-face \{\{.*?\}\}", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL)
    picture = out.export_svg(title="sessionizer demo", code_format=without_fonts_from_the_net, unique_id="demo")
    file.write_text("\n".join(line.rstrip() for line in picture.splitlines() if line.strip()) + "\n", "utf-8")


if __name__ == "__main__":
    main()
