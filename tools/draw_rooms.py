#!/usr/bin/env python3
"""Draws which folders of the C code include headers of which: docs/explanation/rooms.svg.

    tools/draw_rooms.py [--check]     # --check: fails if the picture is not what the code says

An arrow points from a folder to one that it includes. Arrows that follow from others are left out. A folder stands
below all that include it. Public headers (include/skv) belong to the folder that implements them, so they
draw no arrow.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs/explanation/rooms.svg"
BOX_WIDTH, BOX_HEIGHT, GAP, ROW_HEIGHT, MARGIN = 130, 30, 22, 72, 24
COLOURS = {"base": "#e8eaf0", "common": "#e8eaf0", "language": "#e3f0e4", "engine": "#fdeccf", "learning": "#f6e0e6",
           "serving": "#dcebf7", "cli": "#efe6f7"}


# Folders that the engine's own files lie in, beside the layers below them.
PARTS = {"engine/drafts", "engine/ranks", "engine/second_model", "engine/steps"}


def room_of(path):
    """The room of a source: the folder below src/, two names deep."""
    parts = path.relative_to(ROOT).parts[:-1]
    room = "cli" if parts[0] == "cli" else "/".join(parts[1:3])
    return room.partition("/")[0] if room in PARTS else room


def read_code():
    """room -> the rooms that it includes."""
    sources = [path for folder in ("src", "cli") for path in sorted((ROOT / folder).rglob("*"))
               if path.suffix in (".c", ".h", ".inc")]
    homes = {}  # the end of a path, as it stands in an include -> its room
    for path in sources:
        parts = path.relative_to(ROOT).parts
        for i in range(len(parts)):
            homes.setdefault("/".join(parts[i:]), set()).add(room_of(path))
    uses = {}
    for path in sources:
        room = room_of(path)
        uses.setdefault(room, set())
        for name in re.findall(r'^#include "([^"]+)"', path.read_text(), re.M):
            found = homes.get(name, set())
            if len(found) == 1 and ("/" in name or not (path.parent / name).exists()):
                uses[room].update(found - {room})
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


def place(uses):
    """room -> the middle of its box: a row a depth, each room near the middle of those that include it."""
    rows = {}
    for room in sorted(uses):
        rows.setdefault(depth_of(uses, room), []).append(room)
    width = max(len(row) for row in rows.values()) * (BOX_WIDTH + GAP) + 2 * MARGIN
    height = len(rows) * ROW_HEIGHT + MARGIN
    at = {}
    for depth, row in sorted(rows.items()):
        def wish(room):
            above = [at[user][0] for user in uses if room in uses[user]]
            return sum(above) / len(above) if above else width / 2
        row.sort(key=lambda room: (wish(room), room))
        step = (width - 2 * MARGIN) / len(row)
        for i, room in enumerate(row):
            at[room] = (MARGIN + step * (i + 0.5), MARGIN + BOX_HEIGHT / 2 + depth * ROW_HEIGHT)
    return at, width, height


def draw():
    uses = read_code()
    arrows = reduce(uses)
    at, width, height = place(uses)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif">',
           "<title>The folders of the C code and what they include</title>",
           '<defs><marker id="a" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
           '<path d="M0 0L8 4L0 8z" fill="#889"/></marker></defs>',
           f'<rect width="{width:.0f}" height="{height:.0f}" fill="white"/>']
    for room, others in sorted(arrows.items()):
        for other in sorted(others):
            (x, y), (to_x, to_y) = at[room], at[other]
            y, to_y = y + BOX_HEIGHT / 2, to_y - BOX_HEIGHT / 2 - 2
            bend = (to_y - y) / 2
            out.append(f'<path d="M{x:.0f} {y:.0f}C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} '
                       f'{to_y:.0f}" fill="none" stroke="#889" marker-end="url(#a)"/>')
    for room, (x, y) in sorted(at.items()):
        out.append(f'<rect x="{x - BOX_WIDTH / 2:.0f}" y="{y - BOX_HEIGHT / 2:.0f}" width="{BOX_WIDTH}" '
                   f'height="{BOX_HEIGHT}" rx="6" fill="{COLOURS[room.split("/")[0]]}" stroke="#556"/>')
        out.append(f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" font-size="12">{room}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    picture = draw()
    if "--check" not in sys.argv[1:]:
        PICTURE.write_text(picture)
    elif not PICTURE.exists() or PICTURE.read_text() != picture:
        sys.exit(f"{PICTURE.relative_to(ROOT)} is old: run tools/draw_rooms.py")


if __name__ == "__main__":
    main()
