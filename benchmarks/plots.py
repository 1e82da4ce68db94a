"""Plots of the tables in ``README.md``, as SVG for light and dark pages.

python -m benchmarks.plots           draw the plots of all tables of the page
python -m benchmarks.plots --check   exit with 1 if the tables have other plots

A measurement that writes its table draws its plots as well.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
PAGE = HERE / "README.md"
FOLDER = HERE / "plots"
_REGION = re.compile(r"<!-- table: (\w+) -->\n(.*?)<!-- end of table -->\n", re.DOTALL)
_IMAGE = re.compile(r"^!\[.*\]\(plots/.*\)\n+", re.MULTILINE)
_NUMBER = re.compile(r"([-+]?[\d,]*\.?\d+)(%?)")

_WIDTH, _LABELS, _VALUES, _ROW, _TOP = 850, 330, 90, 26, 40
_STYLE = """\
    .page { fill: #ffffff }
    text { font: 13px system-ui, sans-serif; fill: #1c2733 }
    .title { font-weight: 600; font-size: 14px }
    .bar { fill: #9aa7b5 }
    .own { fill: #2f6fc4 }
    .line { stroke: #5f6b7a; stroke-width: 1 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117 }
      text { fill: #e8edf2 }
      .bar { fill: #5d6a78 }
      .own { fill: #6fa8ee }
      .line { stroke: #97a3b0 }
    }"""


@dataclass(frozen=True)
class Plot:
    """Plot of one column of a table.

    Attributes:
        table: Head of the first column of the table.
        column: Head of the column with the values.
        title: What the values are, with their unit.
        own: Pattern of the rows that are ours.
        relative: Whether rows after the first have a change in percent, which is drawn as the remaining share.
    """

    name: str
    suite: str
    table: str
    column: str
    title: str
    own: str
    relative: bool = False


PLOTS = (
    Plot("parse", "skills", "parse a front matter", "µs", "Parse a front matter, µs", "flink_skills"),
    Plot("clients", "models", "client", "CPU ms per request", "CPU time of a model request, ms", "flink_skills"),
    Plot("hostile", "hostile_models", "a server sends", "worst gap, ms", "Worst gap of other turns, ms", ""),
    Plot("commands", "execution", "true", "ms", "Run the command true, ms", "landlock|bwrap$"),
    Plot("calls", "tools", "a call of", "in a turn, µs", "Call of a tool in a turn, µs", ""),
    Plot("turns", "turns", "design", "turns/s", "Turns per second, 1,000 keys on two cores", "agent"),
    Plot(
        "economics",
        "economics",
        "5 turns, 4 tools for each skill",
        "100 skills: tokens",
        "Input tokens of a session with 100 skills, % of all up front",
        "core|full",
        relative=True,
    ),
    Plot("start", "cold_start", "phase, s", "byte code in the image", "From nothing to the first answer, s", ""),
    Plot("processes", "cli", "command", "median, ms", "From start to end of a process, ms", "`-|`l|`v"),
)


def plots_of(suite: str, tables: str) -> dict[str, str]:
    """Return the plots of the tables of a suite by name. A table that is missing has no plot."""
    found = {}
    for plot in PLOTS:
        if plot.suite == suite and (bars := list(_bars(plot, tables))):
            found[plot.name] = draw(plot, bars)
    return found


def with_plots(suite: str, tables: str) -> tuple[str, dict[str, str]]:
    """Return the tables of a suite with images below them, and the plots by name."""
    drawn = plots_of(suite, tables)
    titles = {plot.name: plot.title for plot in PLOTS}
    images = "".join(f"\n\n![{titles[name]}](plots/{name}.svg)" for name in drawn)
    return tables.rstrip("\n") + images, drawn


def _bars(plot: Plot, tables: str) -> Iterator[tuple[str, float, str]]:
    """Yield the name, value and text of each row."""
    index = None
    first = True
    for line in tables.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split(" | ")] if line.startswith("|") else []
        if not cells:
            index = None
        elif cells[0] == plot.table and plot.column in cells:
            index = cells.index(plot.column)
        elif index is not None and index < len(cells) and (number := _NUMBER.fullmatch(cells[index])):
            value = float(number[1].replace(",", ""))
            if plot.relative:
                value = 100.0 if first else 100.0 + value
                first = False
            yield cells[0], value, f"{value:g}%" if plot.relative else cells[index]


def draw(plot: Plot, bars: list[tuple[str, float, str]]) -> str:
    """Return horizontal bars as SVG."""
    height = _TOP + _ROW * len(bars) + 8
    scale = (_WIDTH - _LABELS - _VALUES) / max((value for _, value, _ in bars if value > 0), default=1.0)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img" aria-labelledby="t">',
        f'  <title id="t">{escape(plot.title)}</title>',
        f"  <style>\n{_STYLE}\n  </style>",
        f'  <rect class="page" width="{_WIDTH}" height="{height}"/>',
        f'  <text class="title" x="8" y="22">{escape(plot.title)}</text>',
    ]
    for number, (name, value, text) in enumerate(bars):
        y = _TOP + _ROW * number
        length = max(value * scale, 1)
        kind = "own" if plot.own and re.match(plot.own, name) else "bar"
        label = escape(name.replace("`", ""))
        lines += [
            f'  <text x="{_LABELS - 8}" y="{y + 17}" text-anchor="end">{label}</text>',
            f'  <rect class="{kind}" x="{_LABELS}" y="{y + 4}" width="{length:.1f}" height="18"/>',
            f'  <text x="{_LABELS + length + 6:.1f}" y="{y + 17}">{escape(text)}</text>',
        ]
    lines.append(f'  <line class="line" x1="{_LABELS}" y1="{_TOP}" x2="{_LABELS}" y2="{height - 8}"/>')
    return "\n".join([*lines, "</svg>", ""])


def render(page: str) -> tuple[str, dict[str, str]]:
    """Return the page with the images of its tables, and all plots by name."""
    all_plots: dict[str, str] = {}

    def region(match: re.Match[str]) -> str:
        text, plots = with_plots(match[1], _IMAGE.sub("", match[2].strip("\n") + "\n"))
        all_plots.update(plots)
        return f"<!-- table: {match[1]} -->\n\n{text}\n\n<!-- end of table -->\n"

    return _REGION.sub(region, page), all_plots


def write(plots: dict[str, str]) -> None:
    """Write plots to their files."""
    FOLDER.mkdir(exist_ok=True)
    for name, svg in plots.items():
        (FOLDER / f"{name}.svg").write_text(svg, encoding="utf-8")


def main() -> int:
    """Draw or check, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    before = PAGE.read_text(encoding="utf-8")
    page, plots = render(before)
    if not check:
        PAGE.write_text(page, encoding="utf-8")
        write(plots)
        return 0
    there = {file.stem: file.read_text(encoding="utf-8") for file in FOLDER.glob("*.svg")}
    if page == before and there == plots:
        return 0
    sys.stderr.write("the plots are not those of the tables: run python -m benchmarks.plots\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
