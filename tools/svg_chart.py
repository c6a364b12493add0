"""Line charts as SVG, panels side by side with one legend below them: for the pictures of docs/."""

import html
import math

COLOURS = ("#2f6fb0", "#d1495b", "#2e8b57", "#b8860b", "#7b5ea7", "#3aa6b9", "#c2669b", "#666666")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 400, 270, 62, 14, 34, 50


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
