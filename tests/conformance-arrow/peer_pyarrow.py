"""pyarrow as the peer: python peer_pyarrow.py CORPUS LIBOURS

Prints a line for each exchange (results.py describes the columns).
"""

import ctypes
import gc
import sys
from contextlib import contextmanager
from ctypes import c_char_p, c_int, c_int64, c_void_p
from pathlib import Path

import pyarrow as pa

CORPUS = Path(sys.argv[1])

ours = ctypes.CDLL(sys.argv[2])
ours.ours_open.argtypes, ours.ours_open.restype = [c_char_p] * 3, c_void_p
ours.ours_close.argtypes, ours.ours_close.restype = [c_void_p], None
ours.ours_why.argtypes, ours.ours_why.restype = [c_void_p], c_char_p
ours.ours_give.argtypes = [c_void_p] * 3
ours.ours_give_device.argtypes = [c_void_p, c_int, c_void_p, c_void_p]
ours.ours_take.argtypes = ours.ours_take_device.argtypes = [c_void_p, c_int64, c_int64, c_void_p, c_void_p]
ours.ours_give_stream.argtypes = ours.ours_take_stream.argtypes = [c_void_p, c_int, c_void_p]
ours.ours_outstanding.restype = c_int64


class Wrong(Exception):
    """An exchange failed on our side, or its result is not the expected one."""


class Struct:
    """Memory for one of the C structs; `release` calls the struct's release function unless the struct was moved."""

    def __init__(self, size, release):
        self._room = (c_int64 * (size // 8))()
        self._release = release // 8

    def address(self):
        return ctypes.addressof(self._room)

    def release(self):
        if function := self._room[self._release]:
            ctypes.CFUNCTYPE(None, c_void_p)(function)(self.address())


def schema():
    return Struct(72, 56)


def array():
    return Struct(80, 64)


def device_array():
    return Struct(128, 64)


def stream():
    return Struct(40, 24)


def check(done, case):
    if not done:
        raise Wrong(ours.ours_why(case).decode())


def same(found, original):
    """Requires a valid batch with the same types, metadata and values as the original; NaN equals NaN."""
    found.validate(full=True)
    if not found.schema.equals(original.schema, check_metadata=True):
        raise Wrong(f"the schema is {found.schema}, not {original.schema}")
    if not found.equals(original) and repr(found.to_pylist()) != repr(original.to_pylist()):
        raise Wrong("the values differ")


class Arrays:
    """ArrowArray, one batch at a time."""

    name, place = "array", "host"
    _struct, _give, _take = staticmethod(array), ours.ours_give, ours.ours_take
    _import, _export = "_import_from_c", "_export_to_c"

    def give(self, case, layout):
        structs = [self._struct(), schema()]
        try:
            check(self._give_to(case, *(it.address() for it in structs)), case)
            described = pa.Schema._import_from_c(structs[1].address())
            if layout != "root":
                return [getattr(pa.RecordBatch, self._import)(structs[0].address(), described)]
            # pyarrow imports a batch that begins after row 0 only as an array.
            imported = getattr(pa.Array, self._import)(structs[0].address(), pa.struct(described))
            return [pa.RecordBatch.from_struct_array(imported).replace_schema_metadata(described.metadata)]
        finally:
            for it in structs:
                it.release()

    def _give_to(self, case, *addresses):
        return type(self)._give(case, *addresses)

    def take(self, case, batches, first=0, count=-1):
        structs = [self._struct(), schema()]
        try:
            getattr(batches[0], self._export)(*(it.address() for it in structs))
            check(type(self)._take(case, first, count, *(it.address() for it in structs)), case)
        finally:
            for it in structs:
                it.release()


class DeviceArrays(Arrays):
    """ArrowDeviceArray."""

    name = "device array"
    _struct, _take = staticmethod(device_array), ours.ours_take_device
    _import, _export = "_import_from_c_device", "_export_to_c_device"

    def __init__(self, place):
        self.place = place

    def _give_to(self, case, *addresses):
        return ours.ours_give_device(case, self.place == "cuda", *addresses)


class Streams:
    """ArrowArrayStream, several batches."""

    name, place, batches = "stream", "host", 3

    def give(self, case, layout):
        out = stream()
        try:
            check(ours.ours_give_stream(case, self.batches, out.address()), case)
            imported = list(pa.RecordBatchReader._import_from_c(out.address()))
            if len(imported) != self.batches:
                raise Wrong(f"there are {len(imported)} batches, not {self.batches}")
            return imported
        finally:
            out.release()

    def take(self, case, batches):
        source = stream()
        try:
            reader = pa.RecordBatchReader.from_batches(batches[0].schema, batches * (self.batches // len(batches)))
            reader._export_to_c(source.address())
            check(ours.ours_take_stream(case, self.batches, source.address()), case)
        finally:
            source.release()


TRANSPORTS = [Arrays(), DeviceArrays("host"), DeviceArrays("cuda"), Streams()]


def read(name):
    file = CORPUS / f"{name}.arrow"
    if file.exists():
        return pa.ipc.open_stream(file.read_bytes()).read_next_batch()
    with opened(name, "plain") as case:
        return Arrays().give(case, "plain")[0]


@contextmanager
def opened(name, layout):
    case = ours.ours_open(str(CORPUS).encode(), name.encode(), layout.encode())
    try:
        yield case
    finally:
        ours.ours_close(case)


@contextmanager
def reported(case, direction, transport, layout):
    """Runs one exchange and prints its result."""
    try:
        yield
        how = "ok\t"
    except Wrong as wrong:
        how = f"wrong\t{wrong}"
    except (pa.ArrowException, NotImplementedError, ImportError, OSError, ValueError) as error:
        how = f"refused\t{type(error).__name__}: {error}"
    how = how.replace("\n", " ")
    print(case, direction, transport.name, transport.place, layout, how, sep="\t", flush=True)


def run(name, layouts):
    original = read(name)
    for layout in layouts:
        with opened(name, layout) as case:
            for transport in TRANSPORTS:
                given = None
                with reported(name, "to peer", transport, layout):
                    given = transport.give(case, layout)
                    for batch in given:
                        same(batch, original)
                if given:
                    with reported(name, "from peer", transport, layout):
                        transport.take(case, given)
    with opened(name, "plain") as case:
        for transport in TRANSPORTS:
            if transport.place != "host":
                continue
            with reported(name, "from peer", transport, "its own"):
                transport.take(case, [original])
            if transport.name != "stream" and original.num_rows > 2:
                with reported(name, "from peer", transport, "its own slice"):
                    transport.take(case, [original.slice(1, original.num_rows - 2)], 1, original.num_rows - 2)


def main():
    layouts = {}
    for line in (CORPUS / "layouts").read_text().splitlines():
        name, layout = line.split()
        layouts.setdefault(name, []).append(layout)
    for name, of in layouts.items():
        run(name, of)
    gc.collect()
    print(f"outstanding\t{ours.ours_outstanding()}")


main()
