"""Arrow arrays as trees of nodes with the exact bytes of their buffers. This module reads them from the C data interface,
lays them out again with a separate offset at every node, and writes them to files, which our side loads (../ours.h).
"""

import ctypes
import struct
from ctypes import CFUNCTYPE, POINTER, Structure, addressof, c_char_p, c_int64, c_void_p
from dataclasses import dataclass, replace
from itertools import cycle

Release = CFUNCTYPE(None, c_void_p)


class ArrowSchema(Structure):
    pass


ArrowSchema._fields_ = [
    ("format", c_char_p),
    ("name", c_char_p),
    ("metadata", c_void_p),
    ("flags", c_int64),
    ("n_children", c_int64),
    ("children", POINTER(POINTER(ArrowSchema))),
    ("dictionary", POINTER(ArrowSchema)),
    ("release", Release),
    ("private_data", c_void_p),
]


class ArrowArray(Structure):
    pass


ArrowArray._fields_ = [
    ("length", c_int64),
    ("null_count", c_int64),
    ("offset", c_int64),
    ("n_buffers", c_int64),
    ("n_children", c_int64),
    ("buffers", POINTER(c_void_p)),
    ("children", POINTER(POINTER(ArrowArray))),
    ("dictionary", POINTER(ArrowArray)),
    ("release", Release),
    ("private_data", c_void_p),
]


@dataclass
class Node:
    format: str
    name: bytes
    metadata: bytes | None
    flags: int
    length: int
    null_count: int
    offset: int
    buffers: list
    children: list
    dictionary: "Node | None"

    def below(self):
        return self.children + ([self.dictionary] if self.dictionary else [])


# --- from formats to buffers ---

_WIDTHS = dict(c=1, C=1, s=2, S=2, i=4, I=4, l=8, L=8, e=2, f=4, g=8, tdD=4, tdm=8, tts=4, ttm=4, ttu=8, ttn=8)
_WIDTHS |= dict(tiM=4, tiD=8, tin=16, tDs=8, tDm=8, tDu=8, tDn=8)
_INTEGERS = {1: "b", 2: "h", 4: "i", 8: "q"}
_OFFSETS = {"z": 4, "u": 4, "Z": 8, "U": 8, "+l": 4, "+m": 4, "+L": 8}
_VIEWS = {"+vl": 4, "+vL": 8}


def _width(format):
    """The number of bytes of a value, if it is whole and the same for all values."""
    head, _, rest = format.partition(":")
    if head == "w":
        return int(rest)
    if head == "d":
        return int((rest.split(",") + ["128"])[2]) // 8
    return 8 if head in ("tss", "tsm", "tsu", "tsn") else _WIDTHS.get(format)


def _kind(format):
    if format in ("vz", "vu"):
        return "view"
    if format in ("z", "Z", "u", "U"):
        return "binary"
    if format in _OFFSETS:
        return "list"
    if format in _VIEWS:
        return "list view"
    names = {
        "n": "null",
        "b": "bool",
        "+s": "struct",
        "+r": "runs",
        "+w": "fixed list",
        "+us": "sparse",
        "+ud": "dense",
    }
    return names.get(format.partition(":")[0], "fixed")


def _has_validity(format):
    return _kind(format) not in ("null", "runs", "sparse", "dense")


def _packed(width, values):
    return struct.pack(f"<{len(values)}{_INTEGERS[width]}", *values)


def _unpacked(width, data):
    return list(struct.unpack(f"<{len(data) // width}{_INTEGERS[width]}", data))


# --- from the C data interface ---


def _metadata(address):
    if not address:
        return None
    at = address
    (pairs,) = struct.unpack("<i", ctypes.string_at(at, 4))
    at += 4
    for _ in range(2 * pairs):
        at += 4 + struct.unpack("<i", ctypes.string_at(at, 4))[0]
    return ctypes.string_at(address, at - address)


def _bytes(address, size):
    return None if not address else ctypes.string_at(address, size)


def _buffers(format, array):
    at = [array.buffers[i] for i in range(array.n_buffers)]
    end = array.offset + array.length
    found = [_bytes(at.pop(0), (end + 7) // 8)] if _has_validity(format) else []
    kind = _kind(format)
    if kind == "bool":
        found.append(_bytes(at[0], (end + 7) // 8))
    elif kind == "fixed":
        found.append(_bytes(at[0], end * _width(format)))
    elif kind in ("binary", "list"):
        width = _OFFSETS[format]
        found.append(_bytes(at[0], (end + 1) * width) or bytes(width))
        if kind == "binary":
            found.append(_bytes(at[1], _unpacked(width, found[1])[-1]))
    elif kind == "list view":
        found += [_bytes(address, end * _VIEWS[format]) for address in at]
    elif kind == "view":
        sizes = _bytes(at[-1], 8 * (len(at) - 2)) or b""
        found.append(_bytes(at[0], 16 * end))
        found += [_bytes(address, size) for address, size in zip(at[1:-1], _unpacked(8, sizes))]
        found.append(sizes)
    elif kind in ("sparse", "dense"):
        found = [_bytes(address, end * width) for address, width in zip(at, (1, 4))]
    return found


def _read(schema, array):
    format = schema.format.decode()
    children = [_read(schema.children[i][0], array.children[i][0]) for i in range(schema.n_children)]
    dictionary = _read(schema.dictionary[0], array.dictionary[0]) if schema.dictionary else None
    return Node(
        format,
        schema.name or b"",
        _metadata(schema.metadata),
        schema.flags,
        array.length,
        array.null_count,
        array.offset,
        _buffers(format, array),
        children,
        dictionary,
    )


def of_batch(batch):
    schema, array = ArrowSchema(), ArrowArray()
    batch._export_to_c(addressof(array), addressof(schema))
    node = _read(schema, array)
    array.release(addressof(array))
    schema.release(addressof(schema))
    return node


# --- other layouts ---

_GARBAGE = b"\xa5"


def _bits(data, count):
    return [data[i // 8] >> i % 8 & 1 for i in range(count)]


def _packed_bits(bits):
    out = bytearray((len(bits) + 7) // 8)
    for i, bit in enumerate(bits):
        out[i // 8] |= bit << i % 8
    return bytes(out)


class Shift:
    """Gives every node an odd offset of its own with garbage before it, children that begin before and end after their
    part in use, and an unknown null count.
    """

    def __init__(self):
        self._offsets = cycle((3, 1, 5, 9, 7))

    def root(self, node, offset):
        """The batch with the same rows and this offset."""
        return self._laid_out(node, 0, 0, offset)

    def below(self, node, front, back):
        return self._laid_out(node, front, back, next(self._offsets))

    def _laid_out(self, node, front, back, offset):
        """`node` with `front` more rows before it and `back` after it, behind `offset` rows of garbage."""
        assert node.offset == 0, f"{node.format} begins at {node.offset}"
        length = front + node.length + back
        null_count = -1 if _has_validity(node.format) else length if node.format == "n" else 0
        out = replace(node, length=length, offset=offset, null_count=null_count, buffers=list(node.buffers))
        if _has_validity(node.format) and node.buffers[0] is not None:
            garbage = [1, 0] * (offset // 2) + [1] * (offset % 2)
            out.buffers[0] = _packed_bits(garbage + [0] * front + _bits(node.buffers[0], node.length) + [0] * back)
        if node.dictionary:
            out.dictionary = self.below(node.dictionary, 0, 0)
            if node.dictionary.length == 0:
                # An empty dictionary has no valid index, so all additional rows are null.
                out.buffers[0] = bytes((offset + length + 7) // 8)
        getattr(self, "_" + _kind(node.format).replace(" ", "_"))(node, out, front, back, offset)
        return out

    def _null(self, *_):
        pass

    def _bool(self, node, out, front, back, offset):
        out.buffers[1] = _packed_bits(
            [1] * offset + [0] * front + _bits(node.buffers[1] or b"", node.length) + [1] * back
        )

    def _fixed(self, node, out, front, back, offset):
        width = _width(node.format)
        values = node.buffers[1] or b""
        out.buffers[1] = _GARBAGE * width * offset + bytes(width * front) + values + bytes(width * back)

    def _offset_buffer(self, node, front, back, offset, by):
        width = _OFFSETS[node.format]
        offsets = [value + by for value in _unpacked(width, node.buffers[1])]
        return _packed(width, [0] * offset + [by] * front + offsets + [offsets[-1]] * back)

    def _binary(self, node, out, front, back, offset):
        out.buffers[1] = self._offset_buffer(node, front, back, offset, 3)
        out.buffers[2] = _GARBAGE * 3 + (node.buffers[2] or b"")

    def _list(self, node, out, front, back, offset):
        out.buffers[1] = self._offset_buffer(node, front, back, offset, 2)
        out.children = [self.below(node.children[0], 2, 1)]

    def _list_view(self, node, out, front, back, offset):
        width = _VIEWS[node.format]
        for i, by in ((1, 2), (2, 0)):
            values = [value + by for value in _unpacked(width, node.buffers[i] or b"")]
            out.buffers[i] = _GARBAGE * width * offset + _packed(width, [0] * front + values + [0] * back)
        out.children = [self.below(node.children[0], 2, 1)]

    def _view(self, node, out, front, back, offset):
        out.buffers[1] = _GARBAGE * 16 * offset + bytes(16 * front) + (node.buffers[1] or b"") + bytes(16 * back)

    def _fixed_list(self, node, out, front, back, offset):
        size = int(node.format[3:])
        out.children = [self.below(node.children[0], (offset + front) * size, back * size)]

    def _struct(self, node, out, front, back, offset):
        # The children of a struct can be longer than its length; those of a record batch cannot.
        more = 1 if offset else 0
        out.children = [self.below(child, offset + front, back + more) for child in node.children]

    def _ids(self, node, front, back, offset):
        first = int(node.format[4:].split(",")[0])
        return bytes([first]) * (offset + front) + (node.buffers[0] or b"") + bytes([first]) * back

    def _sparse(self, node, out, front, back, offset):
        out.buffers = [self._ids(node, front, back, offset)]
        out.children = [self.below(child, offset + front, back) for child in node.children]

    def _dense(self, node, out, front, back, offset):
        more = {int(id): 1 + child % 3 for child, id in enumerate(node.format[4:].split(","))}
        offsets = [
            value + more[id] for value, id in zip(_unpacked(4, node.buffers[1] or b""), node.buffers[0] or b"")
        ]
        last = more[int(node.format[4:].split(",")[0])] + node.children[0].length - 1
        out.buffers = [
            self._ids(node, front, back, offset),
            _packed(4, [0] * (offset + front) + offsets + [last] * back),
        ]
        out.children = [self.below(child, more, 0) for child, more in zip(node.children, more.values())]

    def _runs(self, node, out, front, back, offset):
        ends, values = node.children
        width, before = _width(ends.format), offset + front
        numbers = [before] * (before > 0) + [end + before for end in _unpacked(width, ends.buffers[1] or b"")]
        if back:
            numbers.append(before + node.length + back)
        plain = replace(ends, length=len(numbers), buffers=[None, _packed(width, numbers)])
        out.children = [self.below(plain, 0, 0), self.below(values, int(before > 0), int(back > 0))]


def without_buffers(node):
    """Arrays without rows get NULL buffers, except for buffers of offsets, which have one offset even then."""
    below = [without_buffers(child) for child in node.children]
    dictionary = without_buffers(node.dictionary) if node.dictionary else None
    buffers = node.buffers
    if node.length == 0:
        kept = 1 if _kind(node.format) in ("binary", "list") else None
        buffers = [buffer if i == kept else None for i, buffer in enumerate(buffers)]
    return replace(node, buffers=buffers, children=below, dictionary=dictionary)


def null_count(node):
    """The number of nulls by the node's own validity, whatever its children have."""
    if node.format == "n":
        return node.length
    if not _has_validity(node.format) or node.buffers[0] is None:
        return 0
    return node.length - sum(_bits(node.buffers[0], node.offset + node.length)[node.offset :])


# --- to files ---


def write(node, nulls, alignment, tree, buffers):
    """Writes the tree as lines of text, in depth-first order and with the null counts of the columns at the end, and all
    buffers to one file. The start of a buffer is a multiple of `alignment`, but not of twice as much.
    """
    lines, data = [], bytearray()

    def place(buffer):
        if buffer is None:
            return "-"
        data.extend(bytes(-len(data) % (2 * alignment) + alignment))
        start = len(data)
        data.extend(buffer)
        return f"{start}"

    def add(node):
        metadata = "-" if node.metadata is None else node.metadata.hex()
        lines.append(
            f"field {node.flags} {len(node.children)} {int(node.dictionary is not None)} "
            f"'{node.format.encode().hex()} '{node.name.hex()} {metadata}"
        )
        places = " ".join(map(place, node.buffers))
        lines.append(f"node {node.length} {node.null_count} {node.offset} {len(node.buffers)} {places}".rstrip())
        for child in node.below():
            add(child)

    add(node)
    # The address behind the last buffer must also lie in the file.
    data.extend(bytes(2 * alignment))
    lines += [f"nulls {count}" for count in nulls]
    tree.write_text("\n".join(lines) + "\n")
    buffers.write_bytes(data)
