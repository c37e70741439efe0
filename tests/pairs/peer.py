"""The Python program of pairs.py; it makes and reads the batches with PyArrow."""

import gc
import json
import sys
import time

import numpy
import pyarrow

import devexchange
from devexchange import DeviceStream, from_dlpack, ipc

CODES = {"int32": "032", "float64": "264"}
PAIR = pyarrow.struct([("a", pyarrow.int64()), ("b", pyarrow.float64())])

address, *cuda = sys.argv[1:]
stream = DeviceStream("cuda:0") if cuda else None


def batch(n):
    return pyarrow.record_batch(
        {
            "n": pyarrow.array([9, 1, None, 3][: n + 1], pyarrow.int64())[1:],
            "s": pyarrow.array(["a", None, "Zürich"][:n], pyarrow.string_view()),
            "l": pyarrow.array([[1, 2], [], None][:n], pyarrow.list_(pyarrow.int64())),
            "d": pyarrow.array(["x", "y", "x"][:n]).cast(pyarrow.string()).dictionary_encode(),
            "st": pyarrow.array([{"a": i + 1, "b": i + 0.5} for i in range(n)], PAIR),
            "m": pyarrow.array([True, None, False][:n], pyarrow.bool_()),
        }
    )


def of_tensor(name, tensor):
    values = numpy.from_dlpack(tensor if tensor.device == (1, 0) else tensor.copy_to("cpu", stream))
    shape = "x".join(map(str, values.shape)) + " read-only" * tensor.read_only
    return f"{name} {CODES[str(values.dtype)]} {shape} [{' '.join(f'{value:g}' for value in values.flat)}]; "


def of_batch(name, imported):
    rows = pyarrow.record_batch(imported)
    rows.validate(full=True)
    columns = (
        f" {column}:" + ",".join(json.dumps(value, ensure_ascii=False) for value in rows[column].to_pylist())
        for column in rows.schema.names
    )
    return f"{name} {len(rows)}{''.join(columns)}; "


def import_all(address):
    names = ["shared", "view", "copied", "none", *["device"] * len(cuda)]
    with ipc.Client(address) as client:
        tensors = {name: client.tensor(name) for name in names}
        batches = {name: client.batch(name) for name in ("rows", "no rows")}
    held[address] = tensors, batches
    seen = [of_tensor(*each) for each in tensors.items()] + [of_batch(*each) for each in batches.items()]
    return "".join(seen)


def write(address):
    numpy.from_dlpack(held[address][0]["shared"])[0, 0] += 1
    return "written"


def outstanding():
    gc.collect()
    devexchange.from_buffer(b"").close()
    return devexchange.outstanding()


def release():
    for tensors, batches in held.values():
        if cuda:
            tensors["device"].used_on(stream)
        for thing in (*tensors.values(), *batches.values()):
            thing.close()
    held.clear()
    return "released"


held = {}
shared = ipc.empty_shared((2, 3), "int32")
values = numpy.from_dlpack(shared)
values[:] = [[1, 2, 3], [4, 5, 6]]
view = values.reshape(-1)[1:5:2]
view.flags.writeable = False
with ipc.Server(address) as server:
    server.offer("shared", shared, copy=False)
    server.offer("view", view, copy=False)
    server.offer("copied", numpy.array([1.5, 2.5]))
    server.offer("none", ipc.empty_shared((0, 3), "int32"), copy=False)
    server.offer("rows", batch(3))
    server.offer("no rows", batch(0))
    if cuda:
        server.offer("device", from_dlpack(numpy.array([1.5, 2.5])).copy_to("cuda:0", stream))
    told = {
        "import": import_all,
        "write": write,
        "look": lambda: f"{values[0, 0]} {server.leases} {outstanding()}",
        "release": release,
    }
    print("ready", flush=True)
    for line in sys.stdin:
        verb, *arguments = line.split()
        print(told[verb](*arguments), flush=True)
del values, view
shared.close()
end = time.monotonic() + 120
while outstanding() and time.monotonic() < end:
    time.sleep(0.001)
print("outstanding", devexchange.outstanding())
