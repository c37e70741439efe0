"""RAPIDS' memory manager as a peer, through its Python package: rmm_pool.py [list] (docs/bench.md, "Another program").

It is called from Python, so each figure includes Python's loop and objects: some 0.1 us.
"""

import sys
import time

import rmm

SIZES = (4096, 1 << 20, 64 << 20)


def measure(pool, stream, size, times):
    start = time.perf_counter_ns()
    for _ in range(times):
        pool.deallocate(pool.allocate(size, stream), size, stream)
    return time.perf_counter_ns() - start


def main():
    if sys.argv[1:] == ["list"]:
        for size in SIZES:
            print(f"memory/pool/{size}\trmm")
        return
    stream = rmm.pylibrmm.stream.Stream()
    pool = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), initial_pool_size=256 << 20)
    for line in sys.stdin:
        operation, _, times = line.split("\t")
        ns = measure(pool, stream, int(operation.rsplit("/", 1)[1]), int(times))
        print(f"{ns}\t0", flush=True)


if __name__ == "__main__":
    main()
