"""Writes the corpus: python corpus DIRECTORY

For each case NAME and each LAYOUT of it:

    NAME.arrow            an IPC stream of the batch, from which a peer makes its own array; missing for batches that
                          Arrow C++ can write but not read
    NAME.rows             the rows as text, one per line
    NAME.stored           the same, with dates and times as their stored numbers
    NAME.LAYOUT.tree      the fields and arrays of the same batch in this layout of memory, and
    NAME.LAYOUT.buffers   their buffers, from which devexchange makes its batch

    plain   offsets of 0, known null counts, buffers at multiples of 64 bytes
    inner   every array below the root begins at an odd offset of its own, null counts are unknown, buffers are aligned
            to 8 bytes only
    root    like inner, and the batch itself begins at row 3
    bare    buffers of no bytes are NULL (only for batches without rows)

`cases` and `layouts` list them, one per line.
"""

import sys
from pathlib import Path

import pyarrow as pa

import tree
from cases import CASES
from text import text

# Arrow C++ writes a dictionary of dictionaries, but fails to read it ("buffer_index out of range").
UNREADABLE = {"dictionary_of_dictionaries"}


def layouts(node):
    yield "plain", node, 64
    yield "inner", tree.Shift().root(node, 0), 8
    yield "root", tree.Shift().root(node, 3), 8
    if node.length == 0:
        yield "bare", tree.without_buffers(node), 64


def main(directory):
    directory.mkdir(parents=True, exist_ok=True)
    listed = []
    for case in CASES:
        batch = case.batch
        if case.name not in UNREADABLE:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch)
            written = sink.getvalue()
            (directory / f"{case.name}.arrow").write_bytes(written)
            # A batch from a file has no offsets, which `tree.Shift` requires.
            batch = pa.ipc.open_stream(written).read_next_batch()
        (directory / f"{case.name}.rows").write_text("".join(text(row) + "\n" for row in case.rows))
        (directory / f"{case.name}.stored").write_text("".join(text(row, stored=True) + "\n" for row in case.rows))
        batch.validate(full=True)
        assert batch.num_rows == len(case.rows), case.name
        plain = tree.of_batch(batch)
        nulls = [tree.null_count(column) for column in plain.children]
        for layout, node, alignment in layouts(plain):
            stem = f"{case.name}.{layout}"
            tree.write(node, nulls, alignment, directory / f"{stem}.tree", directory / f"{stem}.buffers")
            listed.append(f"{case.name} {layout}\n")
    (directory / "layouts").write_text("".join(listed))
    (directory / "cases").write_text("".join(f"{case.name}\n" for case in CASES))


main(Path(sys.argv[1]))
