#!/usr/bin/env python3
"""Draws how time grows with the number of columns, from the results of a run: picture.py RESULTS SVG

Both axes are logarithmic. Lines are identified by the names at their ends, not only by colour; the colours are legible
on white and on black, and there is no background.
"""

import math
import pathlib
import sys

from run import read_results

OPERATION = "device-array/with-schema/"
COLOURS = {"devexchange": "#2f81f7", "floor": "#8b949e", "nanoarrow": "#d29922", "arrow-rs": "#db61a2"}
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 130, 44, 52
GREY = "#848d97"


def read_lines(path):
    """{implementation: [(columns, nanoseconds)]}, from the best samples, which a busy machine changes least."""
    lines = {}
    for row in read_results(path):
        if row["operation"].startswith(OPERATION):
            columns = int(row["operation"].removeprefix(OPERATION))
            lines.setdefault(row["implementation"], []).append((columns, row["min_ns"]))
    return lines


class Axis:
    """A logarithmic axis, in whole powers of ten."""

    def __init__(self, values, start, end):
        self.low, self.high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        self.start, self.end = start, end

    def at(self, value):
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self.start + part * (self.end - self.start), 1)

    def marks(self):
        return [10**power for power in range(self.low, self.high + 1)]


def duration(ns):
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:g} {unit}"
    return f"{ns:g} ns"


def text(x, y, what, anchor="middle", colour=GREY, more=""):
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" fill="{colour}"{more}>{what}</text>'


def line(x1, y1, x2, y2):
    return f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{GREY}" stroke-opacity=".3"/>'


def draw_axes(across, up):
    for columns in across.marks():
        yield line(across.at(columns), up.start, across.at(columns), up.end)
        yield text(across.at(columns), up.start + 18, f"{columns:,}")
    for ns in up.marks():
        yield line(across.start, up.at(ns), across.end, up.at(ns))
        yield text(across.start - 8, up.at(ns) + 4, duration(ns), "end")
    yield text((across.start + across.end) / 2, HEIGHT - 12, "columns")


def spread(ends):
    """Returns the y of each name: at the end of its line, but far enough below the name above it to be read."""
    placed, last = {}, -math.inf
    for implementation, y in sorted(ends.items(), key=lambda end: end[1]):
        last = placed[implementation] = max(y, last + 16)
    return placed


def draw_lines(lines, across, up):
    places = spread({implementation: up.at(points[-1][1]) for implementation, points in lines.items()})
    for implementation, points in lines.items():
        colour = COLOURS.get(implementation, GREY)
        dashes = ' stroke-dasharray="5 4"' if implementation == "floor" else ""
        path = "L".join(f"{across.at(columns)} {up.at(ns)}" for columns, ns in points)
        yield f'<path d="M{path}" fill="none" stroke="{colour}" stroke-width="2.5"{dashes}/>'
        for columns, ns in points:
            yield f'<circle cx="{across.at(columns)}" cy="{up.at(ns)}" r="3.5" fill="{colour}"/>'
        weight = ' font-weight="bold"' if implementation == "devexchange" else ""
        yield text(across.end + 10, places[implementation] + 4, implementation, "start", colour, weight)


def draw(lines):
    points = [point for line in lines.values() for point in line]
    across = Axis([columns for columns, _ in points], LEFT, WIDTH - RIGHT)
    up = Axis([ns for _, ns in points], HEIGHT - BOTTOM, TOP)
    title = "A table of int32 columns with its schema: exported, imported, released"
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{title}"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        text(LEFT, 22, title, "start", more=' font-size="15"'),
        *draw_axes(across, up), *draw_lines(lines, across, up), "</svg>\n"])


def main():
    results, picture = map(pathlib.Path, sys.argv[1:])
    picture.write_text(draw(read_lines(results)))


main()
