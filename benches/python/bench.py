"""The benches of Python as one program (docs/bench.md): devexchange, the floor, and the peers that are installed.

scripts/bench.sh starts it with a preloaded library that counts allocations.
"""

import gc
import importlib
import itertools
import os
import sys
import time

import floor
import numpy
import pyarrow
import tvm_ffi

import devexchange

ROWS = 1024
WIDTHS = 1, 10, 100, 1000


# A second environment, which may have PyTorch.
sys.path.append(os.environ["BENCH_PACKAGES"])


def optional(name):
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


torch = optional("torch")
matrix = numpy.zeros((2, 3), numpy.float32)

benches = {}  # (operation, implementation): returns a function and its argument


def add(operation, implementation, function, argument):
    """Adds a bench that calls `function` with what `argument()` returns."""
    benches[operation, implementation] = lambda: (function, argument())


def pyarrow_batch(columns):
    values = pyarrow.array(numpy.zeros(ROWS, numpy.int32))
    return pyarrow.record_batch([values] * columns, [f"c{i}" for i in range(columns)])


def add_calls():
    benches["python/call", "devexchange"] = lambda: (devexchange.outstanding, None)
    benches["python/call", "floor"] = lambda: (floor.nothing, None)


def add_tensors():
    def numpy_out(tensor):
        return numpy.from_dlpack(tensor)

    sources = {
        "numpy": lambda: matrix,
        "tvm": lambda: tvm_ffi.from_dlpack(matrix),
        "devexchange": lambda: devexchange.from_dlpack(matrix),
        "floor": floor.Producer,
    }
    add("python/numpy-in", "devexchange", devexchange.from_dlpack, sources["numpy"])
    add("python/numpy-in", "floor", floor.from_dlpack, sources["numpy"])
    add("python/numpy-in", "numpy", numpy_out, sources["numpy"])
    add("python/numpy-in", "tvm-ffi", tvm_ffi.from_dlpack, sources["numpy"])
    add("python/numpy-out", "devexchange", numpy_out, sources["devexchange"])
    add("python/numpy-out", "floor", numpy_out, sources["floor"])
    add("python/numpy-out", "numpy", numpy_out, sources["numpy"])
    add("python/numpy-out", "tvm-ffi", numpy_out, sources["tvm"])
    add("python/tvm-in", "devexchange", devexchange.from_dlpack, sources["tvm"])
    add("python/tvm-in", "floor", floor.from_dlpack_of_host, sources["tvm"])
    add("python/tvm-in", "tvm-ffi", tvm_ffi.from_dlpack, sources["tvm"])
    add("python/tvm-in", "numpy", numpy_out, sources["tvm"])
    add("python/tvm-out", "devexchange", tvm_ffi.from_dlpack, sources["devexchange"])
    add("python/tvm-out", "floor", tvm_ffi.from_dlpack, sources["floor"])
    add("python/tvm-out", "tvm-ffi", tvm_ffi.from_dlpack, sources["tvm"])
    add("python/tvm-out", "numpy", tvm_ffi.from_dlpack, sources["numpy"])
    # The only type of tvm-ffi that has a function table.
    table = tvm_ffi.core.DLTensorTestWrapper
    sources["table"] = lambda: table(sources["tvm"]())
    add("python/table-in", "devexchange", devexchange.from_dlpack, sources["table"])
    add("python/table-in", "floor", floor.from_exchange_api, sources["table"])
    add("python/table-in", "tvm-ffi", tvm_ffi.from_dlpack, sources["table"])
    add_making("python/table-to", sources, table)
    if torch is not None:
        sources["torch"] = lambda: torch.from_numpy(matrix)
        add("python/torch-in", "devexchange", devexchange.from_dlpack, sources["torch"])
        add("python/torch-in", "floor", floor.from_exchange_api, sources["torch"])
        add("python/torch-in", "torch", torch.from_dlpack, sources["torch"])
        add("python/torch-in", "tvm-ffi", tvm_ffi.from_dlpack, sources["torch"])
        add("python/torch-out", "devexchange", torch.from_dlpack, sources["devexchange"])
        add("python/torch-out", "floor", torch.from_dlpack, sources["floor"])
        add("python/torch-out", "torch", torch.from_dlpack, sources["torch"])
        add("python/torch-out", "tvm-ffi", torch.from_dlpack, sources["tvm"])
        add_making("python/torch-to", sources, torch.Tensor)


def add_making(operation, sources, kind):
    """Adds benches in which a tensor makes an object of another library's type, by that type's function table."""
    for implementation in "devexchange", "floor":
        benches[operation, implementation] = lambda source=sources[implementation]: (source().to, kind)


def add_batches(columns):
    def ours():
        return devexchange.from_arrow(pyarrow_batch(columns))

    def theirs():
        return pyarrow_batch(columns)

    def pyarrow_out(batch):
        return pyarrow.RecordBatch._import_from_c_capsule(*batch.__arrow_c_array__())

    add(f"python/arrow-in/{columns}", "devexchange", devexchange.from_arrow, theirs)
    add(f"python/arrow-in/{columns}", "floor", floor.from_arrow, theirs)
    add(f"python/arrow-in/{columns}", "pyarrow", pyarrow_out, theirs)
    add(f"python/arrow-out/{columns}", "devexchange", pyarrow_out, ours)
    add(f"python/arrow-out/{columns}", "floor", pyarrow_out, lambda: floor.Table(columns))
    add(f"python/arrow-out/{columns}", "pyarrow", pyarrow_out, theirs)
    nanoarrow = optional("nanoarrow")
    if nanoarrow is not None:
        add(f"python/arrow-in/{columns}", "nanoarrow", nanoarrow.c_array, theirs)


def add_copies():
    """The peers of the copies in C. These have the same sizes as in c/data.h, so that the call itself is little of it."""
    square, picture = numpy.zeros((120, 120)), numpy.zeros((120, 160, 3), numpy.uint8)
    bits = numpy.zeros(131072 // 8, numpy.uint8)
    bools = pyarrow.Array.from_buffers(pyarrow.bool_(), 131072, [None, pyarrow.py_buffer(bits)])
    add("copy/transposed", "numpy", numpy.ndarray.copy, lambda: square.T)
    add("copy/channels", "numpy", numpy.ndarray.copy, lambda: picture.transpose(2, 0, 1))
    add("copy/reversed", "numpy", numpy.ndarray.copy, lambda: numpy.zeros(16384)[::-1])
    add("convert/bools", "numpy", lambda bits: numpy.unpackbits(bits, bitorder="little"), lambda: bits)
    add("convert/bools", "pyarrow", lambda bools: bools.to_numpy(zero_copy_only=False), lambda: bools)
    if torch is not None:
        add("copy/transposed", "torch", torch.Tensor.contiguous, lambda: torch.from_numpy(square).T)
        add("copy/channels", "torch", torch.Tensor.contiguous, lambda: torch.from_numpy(picture).permute(2, 0, 1))


def call(function, argument, times):
    """Repeats a call. The loop is the same for all benches, and its own time is in each figure."""
    if argument is None:
        for _ in itertools.repeat(None, times):
            function()
    else:
        for _ in itertools.repeat(None, times):
            function(argument)


def measure(function, argument, times):
    allocations = floor.allocations()
    start = time.perf_counter_ns()
    call(function, argument, times)
    ns = time.perf_counter_ns() - start
    return ns, floor.allocations() - allocations


def serve():
    """Answers the requests. What was set up is kept until a request names another operation."""
    current, ready = None, {}
    for line in sys.stdin:
        operation, implementation, times = line.rstrip("\n").split("\t")
        if operation != current:
            ready.clear()
            current = operation
        if implementation not in ready:
            ready[implementation] = benches[operation, implementation]()
            call(*ready[implementation], 3)
        print("{}\t{}".format(*measure(*ready[implementation], int(times))), flush=True)
    ready.clear()


def main():
    if floor.allocations() < 0:
        sys.exit("the library that counts allocations is not loaded before all others")
    add_calls()
    add_tensors()
    for columns in WIDTHS:
        add_batches(columns)
    add_copies()
    if sys.argv[1:] == ["list"]:
        for operation, implementation in benches:
            print(f"{operation}\t{implementation}")
        return
    gc.disable()
    serve()
    if devexchange.outstanding() != 0:
        sys.exit(f"outstanding: {devexchange.ledger()}")


main()
