"""The pictures of docs/ as SVG: draw() makes line charts, panels side by side with one legend below
them; draw_maps() grids of small heat maps; draw_scatter() dots and their Pareto front."""

import html
import math

COLOURS = ("#2f6fb0", "#d1495b", "#2e8b57", "#b8860b", "#7b5ea7", "#3aa6b9", "#c2669b", "#666666")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 400, 270, 62, 14, 34, 50  # of a panel


# ---- line charts ----


class Panel:
    """lines: (name, [(x, y), ...]). Lines of one name have one colour in all panels. A y of None is
    left out; bound: (y, text) draws a dashed line across."""

    def __init__(self, title, x_label, y_label, lines, log=False, bound=None):
        self.title, self.x_label, self.y_label, self.log, self.bound = title, x_label, y_label, log, bound
        self.lines = [(name, [(x, y) for x, y in points if y is not None]) for name, points in lines]
        self.xs = [x for _, points in self.lines for x, _ in points] or [0, 1]
        self.ys = [y for _, points in self.lines for _, y in points] or [1]
        self.ys += [bound[0]] if bound else []


def step(span, most):
    rough = span / most
    power = 10 ** math.floor(math.log10(rough))
    return next(power * k for k in (1, 2, 5, 10) if rough <= power * k)


def linear_ticks(low, high, most):
    width = step(max(high - low, 1e-9), most)
    first, last = math.floor(low / width), math.ceil(high / width)
    return [i * width for i in range(first, last + 1)]


def log_ticks(low, high):
    ticks = [k * 10 ** e for e in range(-4, 8) for k in (1, 2, 5)]
    below = max((t for t in ticks if t <= low), default=ticks[0])
    above = min((t for t in ticks if t >= high), default=ticks[-1])
    return [t for t in ticks if below <= t <= above]


def number(x):
    return f"{x:g}" if x < 10000 else f"{x / 1000:g}k"


def text(x, y, words, anchor="middle", more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{more}>{html.escape(words)}</text>'


def axes(box, words, ticks, at):
    """The frame of a chart: box is (left, top, right, bottom), words title and labels, ticks and places of x and y."""
    (left, top, right, bottom), (title, x_label, y_label), (x_ticks, y_ticks), (at_x, at_y) = box, words, ticks, at
    out = [text((left + right) / 2, 20, title, more=' class="title"')]
    for y in y_ticks:
        out.append(f'<line class="grid" x1="{left}" x2="{right}" y1="{at_y(y):.1f}" y2="{at_y(y):.1f}"/>')
        out.append(text(left - 7, at_y(y) + 4, number(y), "end"))
    for x in x_ticks:
        out.append(f'<line class="axis" x1="{at_x(x):.1f}" x2="{at_x(x):.1f}" y1="{bottom}" y2="{bottom + 4}"/>')
        out.append(text(at_x(x), bottom + 17, number(x)))
    out.append(f'<line class="axis" x1="{left}" x2="{right}" y1="{bottom}" y2="{bottom}"/>')
    out.append(text((left + right) / 2, bottom + 36, x_label))
    across, middle = left - LEFT + 15, (top + bottom) / 2
    out.append(text(across, middle, y_label, more=f' transform="rotate(-90 {across} {middle})"'))
    return out


def draw_panel(panel, x0, colours):
    bottom, right = TOP + HEIGHT - TOP - BOTTOM, x0 + WIDTH - RIGHT
    left = x0 + LEFT
    y_ticks = log_ticks(min(panel.ys), max(panel.ys)) if panel.log else linear_ticks(0, max(panel.ys), 5)
    x_ticks = linear_ticks(0, max(panel.xs), 6)
    flat = math.log10 if panel.log else float

    def at_y(y):
        low, high = flat(y_ticks[0]), flat(y_ticks[-1])
        return bottom - (flat(y) - low) / max(high - low, 1e-9) * (bottom - TOP)

    def at_x(x):
        return left + x / x_ticks[-1] * (right - left)

    out = axes((left, TOP, right, bottom), (panel.title, panel.x_label, panel.y_label), (x_ticks, y_ticks), (at_x, at_y))
    if panel.bound:
        y = at_y(panel.bound[0])
        out.append(f'<line class="bound" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        out.append(text(left + 6, y - 5, panel.bound[1], "start"))
    for name, points in panel.lines:
        places = [(at_x(x), at_y(y)) for x, y in points]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        out.append(f'<polyline fill="none" stroke="{colours[name]}" stroke-width="2" points="{path}"/>')
        for (x, y), (px, py) in zip(points, places):
            out.append(f'<circle fill="{colours[name]}" cx="{px:.1f}" cy="{py:.1f}" r="3.2">'
                       f"<title>{html.escape(name)}: {x:g}, {y:.4g}</title></circle>")
    return out


def head(width, height, title):
    """What a picture begins with; dark where the reader's page is."""
    return [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
            f' role="img" aria-label="{html.escape(title)}">', f"<title>{html.escape(title)}</title>",
            "<style>text{font:12px sans-serif;fill:#333}.title{font-weight:bold;fill:#111}.grid{stroke:#e3e3e3}"
            ".axis{stroke:#777}.bound{stroke:#777;stroke-dasharray:5 4}.page{fill:#fff}"
            "@media (prefers-color-scheme:dark){text{fill:#c9d1d9}.title{fill:#f0f3f6}.grid{stroke:#30363d}"
            ".axis,.bound{stroke:#8b949e}.page{fill:#0d1117}}</style>",
            f'<rect class="page" width="{width}" height="{height}"/>']


def draw(path, title, panels):
    names = list(dict.fromkeys(name for panel in panels for name, _ in panel.lines))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    legend = LEFT + sum(52 + 7 * len(name) for name in names)
    width, height = max(WIDTH * len(panels), legend), HEIGHT + 28
    out = head(width, height, title)
    for i, panel in enumerate(panels):
        out += draw_panel(panel, i * WIDTH, colours)
    x = LEFT
    for name in names:
        y = HEIGHT + 10
        out.append(f'<line stroke="{colours[name]}" stroke-width="3" x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}"/>')
        out.append(text(x + 28, y + 4, name, "start"))
        x += 52 + 7 * len(name)
    path.write_text("\n".join([*out, "</svg>", ""]))


# ---- heat maps ----

CELL_WIDTH, CELL_HEIGHT, MAP_GAP, MAP_LEFT, MAP_TOP, MAP_BOTTOM = 13, 19, 20, 96, 62, 56
MAP_STYLE = ("text{font:11px sans-serif;fill:#333}.title{font:bold 13px sans-serif;fill:#111}.head{font-weight:bold}"
         ".none{fill:none;stroke:#ddd}")


def map_colour(share):
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
            out.append(f'<rect fill="{map_colour(share)}" {place}><title>{html.escape(what)}: {100 * share:.0f} %'
                       "</title></rect>")
    return out


def map_legend(x, y):
    out = []
    for i in range(11):
        out.append(f'<rect fill="{map_colour(i / 10)}" x="{x + 16 * i}" y="{y}" width="16" height="10"/>')
    out += [text(x, y + 23, "0 %"), text(x + 176, y + 23, "100 %")]
    return out


def draw_maps(path, title, rows, columns, heights, x_label):
    """rows: (name, [cells, ...]), a map for each of the columns (names); heights: the names of a map's
    rows."""
    depth = max((len(row) for _, maps in rows for cells in maps for row in cells), default=1)
    map_width, map_height = depth * CELL_WIDTH + MAP_GAP, len(heights) * CELL_HEIGHT + MAP_GAP
    width, height = max(MAP_LEFT + map_width * len(columns), 760), MAP_TOP + map_height * len(rows) + MAP_BOTTOM
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
           f' role="img" aria-label="{html.escape(title)}">', f"<title>{html.escape(title)}</title>",
           f"<style>{MAP_STYLE}</style>", f'<rect width="{width}" height="{height}" fill="#fff"/>',
           text(MAP_LEFT, 22, title, "start", ' class="title"')]
    for j, column in enumerate(columns):
        x = MAP_LEFT + j * map_width + depth * CELL_WIDTH / 2
        out.append(text(x, MAP_TOP - 10, column, more=' class="head"'))
    for i, (name, maps) in enumerate(rows):
        y = MAP_TOP + i * map_height
        out.append(text(8, y + len(heights) * CELL_HEIGHT / 2 + 4, name, "start", ' class="head"'))
        for k, label in enumerate(heights):
            out.append(text(MAP_LEFT - 6, y + k * CELL_HEIGHT + 14, str(label), "end"))
        for j, cells in enumerate(maps):
            out += draw_map(cells, MAP_LEFT + j * map_width, y, f"{name}, {columns[j]}")
    y = MAP_TOP + len(rows) * map_height
    out.append(text(MAP_LEFT, y + 6, x_label, "start"))
    out += map_legend(MAP_LEFT, y + 18)
    path.write_text("\n".join([*out, "</svg>", ""]))


# ---- dots ----

DOTS_WIDTH, DOTS_HEIGHT, DOTS_RIGHT = 720, 430, 30  # the other margins are a panel's
RADIUS = 5


class Dot:
    def __init__(self, family, shape, label, x, y):
        self.family, self.shape, self.label, self.x, self.y = family, shape, label, x, y


def front_of(dots):
    """Those that no other beats in both: smaller x and larger y, by rising x."""
    best, out = -math.inf, []
    for dot in sorted(dots, key=lambda d: (d.x, -d.y)):
        if dot.y > best:
            best = dot.y
            out.append(dot)
    return out


def mark(shape, x, y, colour, words, on_front):
    style = f'fill="{colour}" fill-opacity="{0.95 if on_front else 0.45}" stroke="{colour}" stroke-width="1.5"'
    r = RADIUS
    points = {"square": ((-r, -r), (r, -r), (r, r), (-r, r)), "triangle": ((0, -r - 1), (r + 1, r), (-r - 1, r)),
              "diamond": ((0, -r - 2), (r + 2, 0), (0, r + 2), (-r - 2, 0))}.get(shape)
    title = f"<title>{html.escape(words)}</title>" if words else ""
    if points is None:
        return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="{r}">{title}</circle>'
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in points)
    return f'<polygon {style} points="{path}">{title}</polygon>'


def overlaps(box, others):
    return any(box[0] < o[2] and o[0] < box[2] and box[1] < o[3] and o[1] < box[3] for o in others)


def place_labels(front, places):
    """Beside each dot of the front, where neither a dot nor a label before it is."""
    taken = [(x - RADIUS - 2, y - RADIUS - 2, x + RADIUS + 2, y + RADIUS + 2) for x, y in places.values()]
    out = []
    for dot in front:
        x, y = places[dot]
        width = 6.2 * len(dot.label)
        for dx, dy, anchor in ((10, 16, "start"), (10, -8, "start"), (-10, -10, "end"), (10, 30, "start"), (-10, 18, "end"),
                               (10, 44, "start"), (-10, -24, "end"), (10, 58, "start"), (-10, -38, "end")):
            left = x + dx - (width if anchor == "end" else 0)
            box = (left, y + dy - 11, left + width, y + dy + 3)
            inside = box[0] > LEFT and box[2] < DOTS_WIDTH - 2 and box[1] > TOP and box[3] < DOTS_HEIGHT - BOTTOM
            if inside and not overlaps(box, taken):
                taken.append(box)
                out.append(text(x + dx, y + dy, dot.label, anchor))
                break
    return out


def dots_legend(families, shapes, colours):
    out, x, y = [], LEFT, DOTS_HEIGHT + 8
    for name in families:
        out += [mark("circle", x + 6, y, colours[name], "", True), text(x + 17, y + 4, name, "start")]
        x += 38 + 6.6 * len(name)
    x, y = LEFT, y + 22
    for name, shape in shapes.items():
        out += [mark(shape, x + 6, y, "#888", "", True), text(x + 17, y + 4, name, "start")]
        x += 38 + 6.6 * len(name)
    out.append(f'<line class="bound" x1="{x}" x2="{x + 22}" y1="{y}" y2="{y}"/>')
    out.append(text(x + 28, y + 4, "Pareto front", "start"))
    return out


def draw_scatter(path, title, x_label, y_label, dots, shapes):
    """shapes: {words: shape}, for the legend. x is logarithmic."""
    xs, ys = [d.x for d in dots], [d.y for d in dots]
    x_ticks, y_ticks = log_ticks(min(xs), max(xs)), linear_ticks(max(min(ys) - 0.1 * (max(ys) - min(ys)), 0), max(max(ys), min(ys) + 1), 6)
    low, high = math.log10(min(xs)), math.log10(max(xs))
    room = 0.06 * max(high - low, 0.1)
    low, high = low - room, high + 3 * room
    x_ticks = [x for x in x_ticks if low <= math.log10(x) <= high]

    def at_x(x):
        return LEFT + (math.log10(x) - low) / (high - low) * (DOTS_WIDTH - DOTS_RIGHT - LEFT)

    def at_y(y):
        return DOTS_HEIGHT - BOTTOM - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (DOTS_HEIGHT - BOTTOM - TOP)

    families = list(dict.fromkeys(d.family for d in dots))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(families)}
    front = front_of(dots)
    places = {d: (at_x(d.x), at_y(d.y)) for d in dots}
    out = head(DOTS_WIDTH, DOTS_HEIGHT + 44, title)
    out += axes((LEFT, TOP, DOTS_WIDTH - DOTS_RIGHT, DOTS_HEIGHT - BOTTOM), (title, x_label, y_label), (x_ticks, y_ticks), (at_x, at_y))
    steps = [places[front[0]]]
    for dot in front[1:]:
        steps += [(places[dot][0], steps[-1][1]), places[dot]]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in steps)
    out.append(f'<polyline class="bound" fill="none" stroke-width="1.5" points="{line}"/>')
    for dot in sorted(dots, key=lambda d: d in front):
        words = f"{dot.label}: {dot.x:.4g}, {dot.y:.1f}"
        out.append(mark(dot.shape, *places[dot], colours[dot.family], words, dot in front))
    out += place_labels(front, places) + dots_legend(families, shapes, colours)
    path.write_text("\n".join([*out, "</svg>", ""]))
