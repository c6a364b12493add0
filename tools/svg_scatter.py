"""Scatter charts as SVG in the style of svg_chart.py: colours for families, shapes for what was
added to them, and the Pareto front as a line."""

import html
import math

from svg_chart import COLOURS, axes, head, linear_ticks, log_ticks, number, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 430, 62, 30, 34, 50
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
            inside = box[0] > LEFT and box[2] < WIDTH - 2 and box[1] > TOP and box[3] < HEIGHT - BOTTOM
            if inside and not overlaps(box, taken):
                taken.append(box)
                out.append(text(x + dx, y + dy, dot.label, anchor))
                break
    return out


def legend(families, shapes, colours):
    out, x, y = [], LEFT, HEIGHT + 8
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
        return LEFT + (math.log10(x) - low) / (high - low) * (WIDTH - RIGHT - LEFT)

    def at_y(y):
        return HEIGHT - BOTTOM - (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0]) * (HEIGHT - BOTTOM - TOP)

    families = list(dict.fromkeys(d.family for d in dots))
    colours = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(families)}
    front = front_of(dots)
    places = {d: (at_x(d.x), at_y(d.y)) for d in dots}
    out = head(WIDTH, HEIGHT + 44, title)
    out += axes((LEFT, TOP, WIDTH - RIGHT, HEIGHT - BOTTOM), (title, x_label, y_label), (x_ticks, y_ticks), (at_x, at_y))
    steps = [places[front[0]]]
    for dot in front[1:]:
        steps += [(places[dot][0], steps[-1][1]), places[dot]]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in steps)
    out.append(f'<polyline class="bound" fill="none" stroke-width="1.5" points="{line}"/>')
    for dot in sorted(dots, key=lambda d: d in front):
        words = f"{dot.label}: {dot.x:.4g}, {dot.y:.1f}"
        out.append(mark(dot.shape, *places[dot], colours[dot.family], words, dot in front))
    out += place_labels(front, places) + legend(families, shapes, colours)
    path.write_text("\n".join([*out, "</svg>", ""]))
