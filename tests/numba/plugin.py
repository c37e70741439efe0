"""Tests of the plugin that Numba's own tests do not cover: finalizers, resets, empty arrays, and which manager it uses.

Runs in an environment with one generation of Numba, with the driver on LD_LIBRARY_PATH. Each test has its own process,
which the driver makes fail after any finding. Ends with the line `counts: N passed, N failed, 0 skipped`.
"""

import ctypes
import gc
import os
import subprocess
import sys
import threading

import numpy as np


def chosen():
    """Makes Numba use a new pool, which it returns."""
    import devexchange
    import devexchange.numba

    manager = devexchange.MemoryManager.pool()
    devexchange.numba.use(manager)
    return manager


def recorded():
    """Makes Numba use a manager that records what it is asked for, and returns the record."""
    import devexchange
    import devexchange.numba

    asked, inner = [], devexchange.MemoryManager.driver()

    class Recorder:
        def allocate(self, request):
            asked.append(request)
            flags = {"mapped": request.mapped, "portable": request.portable, "write_combined": request.write_combined}
            return inner.allocate(request.bytes, request.device, **flags)

        def pin(self, request, address):
            asked.append((request, address))
            return inner.pin(address, request.bytes, device_id=request.device.id, mapped=request.mapped).close

        def memory_info(self, device_id):
            return 10 + device_id, 20

        def ipc_handle(self, address):
            asked.append(("handle", address))
            return devexchange.IpcHandle(b"h" * 64, 5, 100, 1)

        def initialize(self, device_id):
            asked.append(("initialize", device_id))

        def reset(self, device_id):
            asked.append(("reset", device_id))

        def defer_cleanup(self, begin):
            asked.append(("defer", begin))

    devexchange.numba.use(devexchange.MemoryManager(Recorder()))
    return asked


def in_use(manager):
    return manager.statistics().allocations


def test_arrays_come_from_the_manager():
    from numba import cuda

    manager = chosen()
    array = cuda.to_device(np.arange(6.0))
    assert manager.statistics().bytes == 48
    part = array[2:4]
    del array
    assert in_use(manager) == 1
    assert part.copy_to_host().tolist() == [2, 3]
    del part
    assert in_use(manager) == 0


def test_without_a_context_nothing_is_touched():
    from numba import cuda

    import devexchange.numba

    plugin = devexchange.numba._numba_memory_manager(context=None)
    assert plugin.interface_version == 1 and isinstance(plugin, cuda.BaseCUDAMemoryManager)
    assert devexchange.numba._chosen is None


def test_nothing_is_memory_too():
    from numba import cuda

    chosen()
    context = cuda.current_context()
    assert context.memalloc(0).size == 0
    for make in [cuda.device_array, cuda.pinned_array, cuda.mapped_array]:
        assert make(0).shape == (0,)


def test_every_kind_of_memory():
    from numba import cuda

    manager = chosen()
    arrays = [cuda.pinned_array(4), cuda.mapped_array(4), cuda.managed_array(4)]
    for number, array in enumerate(arrays):
        array[:] = number
        assert array.sum() == 4 * number
    # The managed one is not from the pool.
    assert in_use(manager) == 2
    host = np.zeros(100)
    with cuda.defer_cleanup():
        for _ in range(2):
            with cuda.pinned(host), cuda.defer_cleanup():
                pass
    with cuda.mapped(host) as mapped:
        assert mapped.copy_to_host().sum() == 0
    del arrays, array, mapped
    assert in_use(manager) == 0


def test_memory_is_given_back_on_any_thread():
    from numba import cuda

    manager = chosen()
    arrays = [cuda.device_array(8) for _ in range(40)]
    threads = [threading.Thread(target=lambda: [arrays.pop() for _ in range(10)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert in_use(manager) == 0


def test_memory_is_ready_for_every_stream():
    from numba import cuda

    chosen()
    context, library = cuda.current_context(), ctypes.CDLL("libcuda.so.1")
    stream = ctypes.c_void_p()
    assert library.cuStreamCreate(ctypes.byref(stream), 1) == 0  # CU_STREAM_NON_BLOCKING
    for _ in range(3):
        memory = context.memalloc(64)
        address = ctypes.c_void_p(int(getattr(memory.device_pointer, "value", memory.device_pointer)))
        assert library.cuMemsetD8Async(address, 7, ctypes.c_size_t(64), stream) == 0
        assert library.cuStreamSynchronize(stream) == 0
        del memory
    assert library.cuStreamDestroy_v2(stream) == 0


def test_requests_name_the_device_and_the_flags():
    from numba import cuda

    from devexchange import DeviceType

    asked, host = recorded(), np.zeros(8)
    with cuda.gpus[1]:
        context = cuda.current_context()
        assert set(asked) == {("initialize", 1)}, asked
        asked.clear()
        assert context.get_memory_info() == (11, 20)
        memory = context.memalloc(64)
        others = [context.memhostalloc(64), context.memhostalloc(64, portable=True), context.memhostalloc(64, wc=True)]
        others.append(context.memhostalloc(64, mapped=True))
        with cuda.pinned(host):
            pass
        with cuda.mapped(host):
            pass
        flags = [(each.mapped, each.portable, each.write_combined) for each in asked[1:5]]
        assert flags == [(0, 0, 0), (0, 1, 0), (0, 0, 1), (1, 0, 0)], flags
        kinds = [DeviceType.CUDA] + 4 * [DeviceType.CUDA_HOST]
        assert [(each.device, each.bytes) for each in asked[:5]] == [((kind, 1), 64) for kind in kinds], asked
        pins = [(each[0].device.id, each[0].bytes, each[0].mapped, each[1]) for each in asked[5:] if each[0] != "initialize"]
        assert pins == [(1, 64, False, host.ctypes.data), (1, 64, True, host.ctypes.data)], pins
        asked.clear()
        handle = context.get_ipc_handle(memory)
        assert asked == [("handle", memory.device_pointer_value)] and (handle.size, handle.offset) == (64, 5)
        asked.clear()
        with cuda.defer_cleanup():
            assert ("defer", True) in asked and ("defer", False) not in asked, asked
        assert asked[-1] == ("defer", False), asked
        # Nothing keeps a pointer that Numba gave up.
        del others
        assert not context.memory_manager._counted
        asked.clear()
        context.reset()
        assert ("reset", 1) in asked and ("reset", 0) not in asked, asked
        type(context.memory_manager)(context=context).reset()  # before `initialize`
        assert asked[-1] == ("reset", 1), asked
        del memory


def test_managed_memory_beside_a_pool_is_for_the_device():
    from numba import cuda

    chosen()
    library, ordinal = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(-1)
    with cuda.gpus[1]:
        array = cuda.managed_array(8)
        address = ctypes.c_uint64(array.ctypes.data)
        assert library.cuPointerGetAttribute(ctypes.byref(ordinal), 9, address) == 0  # the device's number
        assert ordinal.value == 1


def test_all_contexts_have_one_manager():
    import devexchange.numba

    manager = devexchange.numba._manager()
    assert devexchange.numba._manager() is manager
    # `driver` by default, whose memory has handles.
    memory = manager.allocate(8)
    assert len(manager.ipc_handle(memory.address).handle) == 64
    memory.close()


def test_reset_while_arrays_are_there():
    from numba import cuda

    manager = chosen()
    arrays = [cuda.to_device(np.arange(3)), cuda.pinned_array(3), cuda.mapped_array(3), cuda.managed_array(3)]
    cuda.current_context().reset()
    assert manager.statistics().bytes == 0
    cuda.close()
    again = cuda.to_device(np.arange(3))
    assert again.copy_to_host().tolist() == [0, 1, 2]
    del arrays
    gc.collect()
    assert in_use(manager) == 1


def test_reset_before_initialize():
    from numba import cuda

    import devexchange.numba

    manager = chosen()
    plugin = devexchange.numba._numba_memory_manager(context=cuda.current_context())
    plugin.reset()
    assert manager.statistics().bytes == 0


def test_manager_that_cannot_say_how_much_there_is():
    from numba import cuda

    import devexchange
    import devexchange.numba

    class Silent:
        inner = devexchange.MemoryManager.driver()

        def allocate(self, request):
            return self.inner.allocate(request.bytes, request.device)

    devexchange.numba.use(devexchange.MemoryManager(Silent()))
    try:
        cuda.current_context().get_memory_info()
    except RuntimeError as error:
        assert "memory_info" in str(error), error
    else:
        raise AssertionError("it says something")
    assert cuda.to_device(np.arange(2)).copy_to_host().tolist() == [0, 1]
    assert Silent.inner.statistics().total_allocations == 1


def test_arrays_at_the_end_of_the_interpreter():
    from numba import cuda

    chosen()
    # A cycle keeps the arrays until the interpreter ends.
    cycle = [cuda.to_device(np.arange(3)), cuda.mapped_array(3)]
    cycle.append(cycle)


def test_names_of_managers():
    import devexchange
    from devexchange.numba import _named

    for name in ["driver", "managed", "pool", "driver:1K", "managed:10", "pool:2G"]:
        manager = _named(name)
        assert isinstance(manager, devexchange.MemoryManager)
    try:
        _named("driver:1K").allocate(1025)
    except MemoryError as error:
        assert "1024" in str(error)
    else:
        raise AssertionError("it allocates more than the limit")
    limits = {"driver:0": 0, "pool:7": 7, "managed:3K": 3 << 10, "driver:2M": 2 << 20, "pool:1G": 1 << 30, "pool:1T": 1 << 40}
    for name, limit in limits.items():
        try:
            _named(name).allocate(limit + 1)
        except MemoryError as error:
            assert f"the limit of {limit}" in str(error), error
        else:
            raise AssertionError(f"{name} allocates more than the limit")
    for name in ["", "other", "pool:x", "pool:1X", "pool:G", "pool:²"]:
        try:
            _named(name)
        except ValueError as error:
            assert repr(name) in str(error)
        else:
            raise AssertionError(name)


TESTS = {name: test for name, test in globals().items() if name.startswith("test_")}


def main():
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("NUMBA_", "SIMCUDA_"))}
    environment |= {"SIMCUDA_DEVICES": "2", "SIMCUDA_FATAL": "exit", "SIMCUDA_FREE": "waits", "SIMCUDA_STAGING": "waits"}
    failed = 0
    for name in TESTS:
        done = subprocess.run(
            [sys.executable, __file__, name], env=environment, timeout=300, capture_output=True, text=True
        )
        if done.returncode != 0 or done.stderr:
            failed += 1
            print(f"not ok - {name}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
        else:
            print(f"ok - {name}")
    print(f"counts: {len(TESTS) - failed} passed, {failed} failed, 0 skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    if len(sys.argv) > 1:
        TESTS[sys.argv[1]]()
    else:
        sys.exit(main())
