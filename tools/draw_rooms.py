#!/usr/bin/env python3
"""Draws which folders of the C code include headers of which: rooms.svg, engine.svg and http.svg of docs/explanation.

    tools/draw_rooms.py [--check]     # --check: fails if a picture is not what the code says

An arrow points from a folder to one that it includes. Arrows that follow from others are left out. A folder stands
below all that include it, and no arrow crosses a box. Public headers (include/skv) belong to the folder that implements
them, so they draw no arrow.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BOX_WIDTH, BOX_HEIGHT, GAP, ROW_HEIGHT, MARGIN, SWEEPS = 130, 30, 22, 72, 24, 9
COLOURS = {"base": "#e8eaf0", "common": "#e8eaf0", "language": "#e3f0e4", "engine": "#fdeccf", "learning": "#f6e0e6",
           "serving": "#dcebf7", "cli": "#efe6f7"}


# Folders that the engine's own files lie in, beside the layers below them.
PARTS = {"engine/drafts", "engine/ranks", "engine/second_model", "engine/steps"}


def room_of(path):
    """The room of a source: the folder below src/, two names deep."""
    parts = path.relative_to(ROOT).parts[:-1]
    room = "cli" if parts[0] == "cli" else "/".join(parts[1:3])
    return room.partition("/")[0] if room in PARTS else room


def part_of(whole):
    """The function that tells which part of the room `whole` a source lies in; None: it lies elsewhere. Headers
    beside the parts are the door of them all, which draws no arrow."""
    def part(path):
        folder = ROOT / "src" / whole
        if not path.is_relative_to(folder):
            return None
        inside = path.relative_to(folder).parts
        if len(inside) > 1:
            return inside[0]
        return None if path.suffix == ".h" else Path(whole).name
    return part


def read_code(room_of_file):
    """room -> the rooms that it includes."""
    sources = [path for folder in ("src", "cli") for path in sorted((ROOT / folder).rglob("*"))
               if path.suffix in (".c", ".h", ".inc")]
    homes = {}  # the end of a path, as it stands in an include -> its room
    for path in sources:
        parts = path.relative_to(ROOT).parts
        for i in range(len(parts)):
            homes.setdefault("/".join(parts[i:]), set()).add(room_of_file(path))
    uses = {}
    for path in sources:
        room = room_of_file(path)
        if room is None:
            continue
        uses.setdefault(room, set())
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            found = homes.get(name, set())
            if len(found) == 1 and ("/" in name or not (path.parent / name).exists()):
                uses[room].update(found - {room, None})
    return uses


def reach(uses, room, seen=None):
    seen = set() if seen is None else seen
    for other in uses[room] - seen:
        seen.add(other)
        reach(uses, other, seen)
    return seen


def depth_of(uses, room, path=()):
    """How far below the top: one row below the lowest room that includes it."""
    if room in path:
        raise SystemExit(f"rooms include each other: {' <- '.join((*path, room))}")
    users = [user for user in uses if room in uses[user]]
    return 1 + max((depth_of(uses, user, (*path, room)) for user in users), default=-1)


def reduce(uses):
    """Without the arrows that follow from others."""
    return {room: {other for other in others
                   if not any(other in reach(uses, middle) for middle in others - {other})}
            for room, others in uses.items()}


def rows_of(uses, arrows):
    """The rows from the top, and the steps from row to row that the arrows take. In a row that an arrow passes it has
    a lane of its own, a pair (target, row), which arrows with one target share."""
    depth = {room: depth_of(uses, room) for room in uses}
    rows = [set() for _ in range(max(depth.values()) + 1)]
    steps = set()
    for room in uses:
        rows[depth[room]].add(room)
    for room, others in arrows.items():
        for other in others:
            path = [room, *((other, i) for i in range(depth[room] + 1, depth[other])), other]
            steps.update(zip(path, path[1:]))
            for lane in path[1:-1]:
                rows[lane[1]].add(lane)
    return [sorted(row, key=str) for row in rows], sorted(steps, key=str)


def spread(row, wish):
    """node -> x: in the order of their wishes, as near to them as their widths allow (pool adjacent violators)."""
    def width(node):
        return BOX_WIDTH + GAP if isinstance(node, str) else GAP
    row.sort(key=lambda node: (wish[node], str(node)))
    offsets = [0.0]
    for left, right in zip(row, row[1:]):
        offsets.append(offsets[-1] + (width(left) + width(right)) / 2)
    blocks = []  # [sum of what the nodes wish for the first one's place, their number]
    for node, offset in zip(row, offsets):
        blocks.append([wish[node] - offset, 1])
        while len(blocks) > 1 and blocks[-2][0] * blocks[-1][1] > blocks[-1][0] * blocks[-2][1]:
            total, n = blocks.pop()
            blocks[-1] = [blocks[-1][0] + total, blocks[-1][1] + n]
    starts = [total / n for total, n in blocks for _ in range(n)]
    return {node: start + offset for node, start, offset in zip(row, starts, offsets)}


def place(rows, steps):
    """node -> the middle of its box or lane: near the middle of those that it is joined to, by some sweeps."""
    at = {}
    for row in rows:
        at.update(spread(row, {node: i * (BOX_WIDTH + GAP) for i, node in enumerate(row)}))
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wish = {}
            for node in row:
                near = [at[a] for a, b in steps if b == node] if sweep % 2 == 0 else []
                near = near or [at[b] for a, b in steps if a == node] or [at[node]]
                wish[node] = sum(near) / len(near)
            at.update(spread(row, wish))
    left = min(at.values()) - BOX_WIDTH / 2 - MARGIN
    width = max(at.values()) + BOX_WIDTH / 2 + MARGIN - left
    middles = {node: (at[node] - left, MARGIN + BOX_HEIGHT / 2 + i * ROW_HEIGHT)
               for i, row in enumerate(rows) for node in row}
    return middles, width, len(rows) * ROW_HEIGHT + MARGIN


def draw_step(here, there, at):
    """A line from the lower edge of one row to the upper edge of the next, between which no box stands; through a
    lane it goes straight on."""
    (x, y), (to_x, to_y) = at[here], at[there]
    y, arrives = y + BOX_HEIGHT / 2, isinstance(there, str)
    to_y -= BOX_HEIGHT / 2 + (2 if arrives else 0)
    bend = (to_y - y) / 2
    line = f"M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y:.0f}"
    line += "" if arrives else f"V{to_y + BOX_HEIGHT:.0f}"
    end = ' marker-end="url(#a)"' if arrives else ""
    return f'<path d="{line}" fill="none" stroke="#889"{end}/>'


def draw(title, room_of_file):
    uses = read_code(room_of_file)
    rows, steps = rows_of(uses, reduce(uses))
    at, width, height = place(rows, steps)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif">',
           f"<title>{title}</title>",
           '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
           '<path d="M0 0L8 4L0 8z" fill="#889"/></marker></defs>',
           f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>']
    out += [draw_step(here, there, at) for here, there in steps]
    for room in sorted(uses):
        x, y = at[room]
        out.append(f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" '
                   f'height="{BOX_HEIGHT}" rx="6" fill="{COLOURS.get(room.split("/")[0], "#e8eaf0")}" stroke="#556"/>')
        out.append(f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" font-size="12">{room}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    for name, title, room_of_file in PICTURES:
        path, picture = ROOT / "docs/explanation" / name, draw(title, room_of_file)
        if "--check" not in sys.argv[1:]:
            path.write_text(picture)
        elif not path.exists() or path.read_text() != picture:
            sys.exit(f"{path.relative_to(ROOT)} is old: run tools/draw_rooms.py")


PICTURES = (
    ("rooms.svg", "The folders of the C code and what they include", room_of),
    ("engine.svg", "The folders of src/engine and what they include", part_of("engine")),
    ("http.svg", "The folders of src/serving/http and what they include", part_of("serving/http")),
)

if __name__ == "__main__":
    main()
