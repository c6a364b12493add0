#!/usr/bin/env python3
"""The picture of README.md, docs/results/headline.svg: time to first token and KV memory of a few settings, side
by side, from the table in docs/results/quality-and-cost.md (which tools/results/make_pareto.py measures).

    tools/results/make_readme_picture.py [OUT]
"""

import pathlib
import sys

from results_lab import RESULTS, page_of
from svg_chart import COLOURS, head, text

SETTINGS = ("unmodified", "SwiftKV 50 %", "SwiftKV 50 %, 2-way", "SwiftKV 50 %, 2-way, int8 weights",
            "SwiftKV 50 %, 2-way, 8-bit KV, SnapKV 256")
TITLE = "models/mini, documents of 2048 tokens, two cores"
LABELS, PANEL, GAP, ANSWERS, ROW, TOP, BAR, BELOW = 292, 150, 65, 95, 30, 62, 18, 14


def read_settings(page):
    """{setting: {column: figure}} of the first table of a page."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("|")]
    columns = rows[0]
    return {row[0]: dict(zip(columns[1:], row[1:])) for row in rows[2:] if len(row) == len(columns)}


def panel(left, title, values, unit, colour):
    out = [text(left, TOP - 16, title, "start", ' class="title"')]
    for i, value in enumerate(values):
        y, width = TOP + i * ROW, max(float(value) / max(map(float, values)) * PANEL, 2)
        out.append(f'<rect x="{left}" y="{y}" width="{width:.1f}" height="{BAR}" rx="2" fill="{COLOURS[7] if i == 0 else colour}"/>')
        out.append(text(left + width + 6, y + BAR - 5, f"{value} {unit}", "start"))
    return out


def draw(found):
    rows = [found[name] for name in SETTINGS]
    right = LABELS + 2 * (PANEL + GAP) + 20
    width, height = right + ANSWERS, TOP + ROW * len(rows) + BELOW
    out = head(width, height, "Time to first token and KV memory, side by side")
    out.append(text(14, 22, TITLE, "start"))
    out += [text(14, TOP + i * ROW + BAR - 5, name, "start") for i, name in enumerate(SETTINGS)]
    out += panel(LABELS, "time to first token", [row["first token, ms"] for row in rows], "ms", COLOURS[0])
    out += panel(LABELS + PANEL + GAP + 10, "KV memory", [row["KV, MiB"] for row in rows], "MiB", COLOURS[2])
    out.append(text(right + ANSWERS - 14, TOP - 16, "right answers", "end", ' class="title"'))
    out += [text(right + ANSWERS - 14, TOP + i * ROW + BAR - 5, f"{row['right answers, %']} %", "end") for i, row in enumerate(rows)]
    return "\n".join([*out, "</svg>", ""])


def main():
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS / "headline.svg"
    out.write_text(draw(read_settings(page_of("pareto").read_text())))


if __name__ == "__main__":
    main()
