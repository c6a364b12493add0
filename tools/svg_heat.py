"""Grids of small heat maps as SVG: what a needle test shows, at a glance. See svg_chart.py for lines."""

import html

from svg_chart import text

CELL_WIDTH, CELL_HEIGHT, GAP, LEFT, TOP, BOTTOM = 13, 19, 20, 96, 62, 56
STYLE = ("text{font:11px sans-serif;fill:#333}.title{font:bold 13px sans-serif;fill:#111}.head{font-weight:bold}"
         ".none{fill:none;stroke:#ddd}")


def colour(share):
    """White for all, by yellow and red, black for nothing: dark is what was lost."""
    stops = [(0, (60, 10, 30)), (0.35, (200, 50, 60)), (0.7, (250, 180, 90)), (1, (232, 244, 236))]
    for (low, a), (high, b) in zip(stops, stops[1:]):
        if share <= high:
            at = (share - low) / (high - low)
            return "#" + "".join(f"{round(x + at * (y - x)):02x}" for x, y in zip(a, b))
    return "#e8f4ec"


def draw_map(cells, x0, y0, what):
    """cells: rows from the top of shares from left to right; None: nothing was asked there."""
    out = []
    for i, row in enumerate(cells):
        for j, share in enumerate(row):
            place = (f'x="{x0 + j * CELL_WIDTH}" y="{y0 + i * CELL_HEIGHT}" width="{CELL_WIDTH - 1}"'
                     f' height="{CELL_HEIGHT - 1}"')
            if share is None:
                out.append(f'<rect class="none" {place}/>')
                continue
            out.append(f'<rect fill="{colour(share)}" {place}><title>{html.escape(what)}: {100 * share:.0f} %'
                       "</title></rect>")
    return out


def legend(x, y):
    out = []
    for i in range(11):
        out.append(f'<rect fill="{colour(i / 10)}" x="{x + 16 * i}" y="{y}" width="16" height="10"/>')
    out += [text(x, y + 23, "0 %"), text(x + 176, y + 23, "100 %")]
    return out


def draw(path, title, rows, columns, heights, x_label):
    """rows: (name, [cells, ...]), a map for each of the columns (names); heights: the names of a map's
    rows."""
    depth = max((len(row) for _, maps in rows for cells in maps for row in cells), default=1)
    map_width, map_height = depth * CELL_WIDTH + GAP, len(heights) * CELL_HEIGHT + GAP
    width, height = max(LEFT + map_width * len(columns), 760), TOP + map_height * len(rows) + BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
           f' role="img" aria-label="{html.escape(title)}">', f"<title>{html.escape(title)}</title>",
           f"<style>{STYLE}</style>", f'<rect width="{width}" height="{height}" fill="#fff"/>',
           text(LEFT, 22, title, "start", ' class="title"')]
    for j, column in enumerate(columns):
        x = LEFT + j * map_width + depth * CELL_WIDTH / 2
        out.append(text(x, TOP - 10, column, more=' class="head"'))
    for i, (name, maps) in enumerate(rows):
        y = TOP + i * map_height
        out.append(text(8, y + len(heights) * CELL_HEIGHT / 2 + 4, name, "start", ' class="head"'))
        for k, label in enumerate(heights):
            out.append(text(LEFT - 6, y + k * CELL_HEIGHT + 14, str(label), "end"))
        for j, cells in enumerate(maps):
            out += draw_map(cells, LEFT + j * map_width, y, f"{name}, {columns[j]}")
    y = TOP + len(rows) * map_height
    out.append(text(LEFT, y + 6, x_label, "start"))
    out += legend(LEFT, y + 18)
    path.write_text("\n".join([*out, "</svg>", ""]))
