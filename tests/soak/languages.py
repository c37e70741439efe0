"""The four languages of the soak (soak.py) behind one set of functions:

    make(protocol, spec, block, flags)                         makes `block.n` things and hands them out
    hand_on(protocol, next_protocol, spec, block, next_block, flags)    takes them, looks at them, hands them on
    end(protocol, spec, block, flags)                          takes them for good, looks at them, gives them up
    refuse(protocol, spec, block)                              must not take them
    settle()                                                   collects garbage; returns what is outstanding

An exchange hands over an address: of a DLPack tensor, which the producer allocates, or of a place in the block for the
struct of another protocol. An ArrowSchema lies after its array.
"""

import contextlib
import ctypes
import gc
import queue
import threading

import jpype
import numpy
import pyarrow

import devexchange
import embedded
from devexchange import BatchStream, RecordBatch, Tensor, from_arrow, from_dlpack

PROTOCOLS = ["DLPack", "DLPack legacy", "CUDA array", "Arrow array", "Arrow device array", "Arrow stream",
             "Arrow device stream"]  # fmt: skip
DLPACK, DLPACK_LEGACY, CUDA_ARRAY, ARRAY, DEVICE_ARRAY, STREAM, DEVICE_STREAM = range(7)
#: Keeps an owner besides what it hands out, and closes it afterwards; leaves unneeded things to garbage collection.
SHARE, FORGET = 1, 2
PLACE, SCHEMA_AT, BATCHES = 256, 128, 2
TYPES = ["int64", "float64", "int32"]
HOST, CUDA = (1, 0), (2, 0)
LEGACY_STREAM = 1


class Spec(ctypes.Structure):
    """The things to make: elements or rows `base`, `base + 1`, ..., in row-major order."""

    _fields_ = [
        ("dtype", ctypes.c_int64),
        ("ndim", ctypes.c_int64),
        ("extents", ctypes.c_int64 * 3),
        ("base", ctypes.c_int64),
        ("read_only", ctypes.c_int64),
        ("device_type", ctypes.c_int64),
    ]

    @property
    def shape(self):
        return tuple(self.extents[: self.ndim])

    @property
    def elements(self):
        total = 1
        for extent in self.shape:
            total *= extent
        return total

    @property
    def on_device(self):
        return self.device_type == 2


class Block:
    """Room for `n` things that are handed over at once."""

    def __init__(self, n):
        self.n = n
        self.memory = ctypes.create_string_buffer(n * PLACE + 64)
        first = (ctypes.addressof(self.memory) + 63) & ~63
        self.places = [first + PLACE * i for i in range(n)]
        self.addresses = (ctypes.c_int64 * n)()

    def clear(self):
        ctypes.memset(self.memory, 0, len(self.memory))
        self.addresses[:] = self.places


class Native:
    """Functions with the signatures of soak.c."""

    def __init__(self, make, hand_on, end, refuse):
        self._make, self._hand_on, self._end, self._refuse = make, hand_on, end, refuse

    def run(self, function, *arguments):
        if function(*arguments):
            raise RuntimeError(f"{type(self).__name__} failed, see above")

    def make(self, protocol, spec, block, flags):
        self.run(self._make, protocol, ctypes.byref(spec), block.n, block.addresses, flags)

    def hand_on(self, protocol, next_protocol, spec, block, next_block, flags):
        self.run(self._hand_on, protocol, next_protocol, ctypes.byref(spec), block.n, block.addresses,
                 next_block.addresses, flags)  # fmt: skip

    def end(self, protocol, spec, block, flags):
        self.run(self._end, protocol, ctypes.byref(spec), block.n, block.addresses, flags)

    def refuse(self, protocol, spec, block):
        self.run(self._refuse, protocol, ctypes.byref(spec), block.n, block.addresses)


_INT, _LONG, _POINTER = ctypes.c_int, ctypes.c_int64, ctypes.c_void_p
SIGNATURES = [
    (_INT, _POINTER, _LONG, _POINTER, _INT),
    (_INT, _INT, _POINTER, _LONG, _POINTER, _POINTER, _INT),
    (_INT, _POINTER, _LONG, _POINTER, _INT),
    (_INT, _POINTER, _LONG, _POINTER),
]


class C(Native):
    def __init__(self, library, core):
        self.core = ctypes.CDLL(core)
        self.core.devx_ledger_outstanding.restype = ctypes.c_int64
        helper = ctypes.CDLL(library)
        functions = [helper.soak_make, helper.soak_pass, helper.soak_end, helper.soak_refuse]
        for function, signature in zip(functions, SIGNATURES, strict=True):
            function.argtypes = signature
        super().__init__(*functions)
        self._drop = helper.soak_drop
        self._drop.argtypes = (_INT, _LONG, _POINTER)

    def drop(self, protocol, block):
        """Acts as a consumer that only releases."""
        self.run(self._drop, protocol, block.n, block.addresses)

    def settle(self):
        return self.core.devx_ledger_outstanding()


class Julia(Native):
    """Julia code runs on the thread that made this object, which must call `serve`; other threads wait for it."""

    def __init__(self, library, bindir, package, program):
        self.jobs = queue.SimpleQueue()
        self.thread = threading.get_ident()
        self.julia = embedded.Julia(library, bindir, package, program)
        signatures = [(_INT, *signature) for signature in (*SIGNATURES, (), (_POINTER,))]
        functions = self.julia.functions("Soak.FUNCTIONS", signatures)
        super().__init__(*functions[:4])
        self._yield, self._settle = functions[4:]

    def run(self, function, *arguments):
        if threading.get_ident() == self.thread:
            super().run(function, *arguments)
            return
        done = queue.SimpleQueue()
        self.jobs.put((function, arguments, done))
        failure = done.get()
        if failure:
            raise failure

    def serve(self):
        """Does the work that another thread waits for, or waits a little itself; then lets tasks run."""
        try:
            function, arguments, done = self.jobs.get(timeout=0.002)
            failure = None
            try:
                super().run(function, *arguments)
            except Exception as raised:
                failure = raised
            done.put(failure)
        except queue.Empty:
            pass
        super().run(self._yield)

    def settle(self):
        outstanding = ctypes.c_int64()
        self.run(self._settle, ctypes.byref(outstanding))
        return outstanding.value

    def close(self):
        self.julia.close()


class Java:
    def __init__(self, classpath, *options):
        jpype.startJVM(*options, classpath=classpath, interrupt=False)
        self.soak = jpype.JClass("Soak")
        self.heap = 0

    @staticmethod
    def numbers(values):
        return jpype.JArray(jpype.JLong)(numpy.frombuffer(values, dtype=numpy.int64))

    def make(self, protocol, spec, block, flags):
        numbers = self.numbers(block.addresses)
        block.addresses[:] = self.soak.make(protocol, self.numbers(spec), numbers, flags)

    def hand_on(self, protocol, next_protocol, spec, block, next_block, flags):
        theirs, ours = self.numbers(block.addresses), self.numbers(next_block.addresses)
        handed = self.soak.handOn(protocol, next_protocol, self.numbers(spec), theirs, ours, flags)
        next_block.addresses[:] = handed

    def end(self, protocol, spec, block, flags):
        self.soak.end(protocol, self.numbers(spec), self.numbers(block.addresses), flags)

    def refuse(self, protocol, spec, block):
        self.soak.refuse(protocol, self.numbers(spec), self.numbers(block.addresses))

    def settle(self):
        outstanding, self.heap = (int(each) for each in self.soak.settle())
        return outstanding


# --- Python ---

_new_capsule = ctypes.PYFUNCTYPE(ctypes.py_object, _POINTER, ctypes.c_char_p, _POINTER)(
    ("PyCapsule_New", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(_POINTER, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))
_rename = ctypes.PYFUNCTYPE(_INT, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_LEGACY, _USED_LEGACY = b"dltensor", b"used_dltensor"


class _Legacy:
    """A producer that knows only DLPack before 1.0."""

    def __init__(self, address, device):
        self.address, self.device = address, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, stream=None):
        return _new_capsule(self.address, _LEGACY, None)


_RELEASE = ctypes.CFUNCTYPE(None, _POINTER)


class _CudaArrayStruct(ctypes.Structure):
    """A devx_cuda_array."""

    _fields_ = [
        ("version", ctypes.c_int32),
        ("read_only", ctypes.c_int32),
        ("data", _POINTER),
        ("ndim", _LONG),
        ("shape", ctypes.POINTER(_LONG)),
        ("strides", ctypes.POINTER(_LONG)),
        ("typestr", ctypes.c_char_p),
        ("descr", ctypes.c_char_p),
        ("mask", _POINTER),
        ("stream", _LONG),
        ("release", _POINTER),
        ("private_data", _POINTER),
    ]


class _CudaArray:
    """A struct that was moved here, presented as the object that CuPy and Numba take."""

    def __init__(self, address):
        source = _CudaArrayStruct.from_address(address)
        self.struct = struct = _CudaArrayStruct()
        ctypes.memmove(ctypes.addressof(struct), address, ctypes.sizeof(struct))
        source.release = None
        shape = tuple(struct.shape[: struct.ndim]) if struct.ndim else ()
        strides = tuple(struct.strides[: struct.ndim]) if struct.strides and struct.ndim else None
        self.__cuda_array_interface__ = {
            "version": struct.version,
            "typestr": struct.typestr.decode(),
            "shape": shape,
            "strides": strides,
            "data": (struct.data or 0, bool(struct.read_only)),
            "stream": struct.stream if struct.stream > 0 else None,
        }

    def __del__(self):
        _RELEASE(self.struct.release)(ctypes.addressof(self.struct))


class Python:
    def make(self, protocol, spec, block, flags):
        for i in range(block.n):
            thing = self.made(protocol, spec)
            block.addresses[i] = self.give(protocol, spec, thing, block.addresses[i])
            self.leave(thing, flags)

    def hand_on(self, protocol, next_protocol, spec, block, next_block, flags):
        for i in range(block.n):
            thing = self.take(protocol, spec, block.addresses[i])
            if protocol < STREAM:
                self.check(spec, thing)
            next_block.addresses[i] = self.give(next_protocol, spec, thing, next_block.addresses[i])
            self.leave(thing, flags)

    def end(self, protocol, spec, block, flags):
        for address in block.addresses:
            thing = self.take(protocol, spec, address)
            self.check(spec, thing)
            self.leave(thing, flags)

    def refuse(self, protocol, spec, block):
        for address in block.addresses:
            try:
                self.take(protocol, spec, address)
            except devexchange.Error:
                continue
            raise AssertionError("a struct with an error in it was taken")

    def settle(self):
        gc.collect()
        # A call into the package gives up what other threads left to Python.
        devexchange.from_buffer(b"").close()
        return devexchange.outstanding()

    @staticmethod
    def leave(thing, flags):
        if not flags & FORGET:
            thing.close()
            return
        # Only garbage collection frees it.
        cycle = [thing]
        cycle.append(cycle)

    @staticmethod
    def made(protocol, spec):
        device = CUDA if spec.on_device else HOST
        if protocol <= CUDA_ARRAY:
            array = numpy.arange(spec.base, spec.base + spec.elements, dtype=TYPES[spec.dtype]).reshape(spec.shape)
            array.setflags(write=not spec.read_only)
            tensor = from_dlpack(array)
            return tensor.copy_to(device, LEGACY_STREAM) if spec.on_device else tensor
        rows = range(spec.base, spec.base + spec.elements)
        batch = from_arrow(pyarrow.record_batch({"n": pyarrow.array(rows, "int64"), "s": [str(row) for row in rows]}))
        batch = batch.copy_to(device, LEGACY_STREAM) if spec.on_device else batch
        if protocol < STREAM:
            return batch
        return BatchStream.of(batch.schema, [batch] * BATCHES, device_type=device[0])

    @staticmethod
    def take(protocol, spec, address):
        stream = LEGACY_STREAM if spec.on_device else None
        if protocol == DLPACK:
            return Tensor.import_dlpack(address, stream=stream)
        if protocol == DLPACK_LEGACY:
            return from_dlpack(_Legacy(address, CUDA if spec.on_device else HOST), stream=stream)
        if protocol == CUDA_ARRAY:
            return devexchange.from_cuda_array_interface(_CudaArray(address), stream=LEGACY_STREAM)
        if protocol == ARRAY:
            return RecordBatch.import_arrow(address, address + SCHEMA_AT)
        if protocol == DEVICE_ARRAY:
            return RecordBatch.import_arrow_device(address, address + SCHEMA_AT)
        return (BatchStream.import_arrow if protocol == STREAM else BatchStream.import_arrow_device)(address)

    @staticmethod
    def give(protocol, spec, thing, target):
        stream = LEGACY_STREAM if spec.on_device else None
        if protocol == DLPACK:
            return thing.export_share(stream=stream)
        if protocol == DLPACK_LEGACY:
            capsule = thing.__dlpack__(stream=stream)
            address = _pointer_of(capsule, _LEGACY)
            _rename(capsule, _USED_LEGACY)
            return address
        if protocol in (ARRAY, DEVICE_ARRAY):
            (thing.export_share if protocol == ARRAY else thing.export_share_device)(target)
            thing.schema.export_arrow(target + SCHEMA_AT)
        else:
            (thing.export_arrow if protocol == STREAM else thing.export_arrow_device)(target)
        return target

    def check(self, spec, thing):
        if isinstance(thing, BatchStream):
            batches = list(thing)
            assert len(batches) == BATCHES, batches
            for batch in batches:
                self.check(spec, batch)
                batch.close()
            return
        with thing.copy_to(HOST, LEGACY_STREAM) if spec.on_device else contextlib.nullcontext(thing) as seen:
            if isinstance(seen, RecordBatch):
                n = seen["n"]
                assert (len(n), n[len(n) - 1]) == (spec.elements, spec.base + spec.elements - 1), n.to_pylist()
                return
            assert (seen.shape, seen.dtype) == (spec.shape, TYPES[spec.dtype]), (seen.shape, seen.dtype)
            assert thing.read_only == bool(spec.read_only)
            with memoryview(seen) as view:
                found = view[tuple(extent - 1 for extent in spec.shape)]
                assert found == spec.base + spec.elements - 1, found
