"""Makes many exchanges (`ROUNDS` in the environment says how many) and checks that memory stays flat."""

import gc
import os
import time

import devexchange

ROUNDS = int(os.environ.get("ROUNDS", "20000"))
#: How much an exchange may leave behind, and how much the allocator may keep, whatever the number of rounds.
BYTES_PER_EXCHANGE, SLACK = 4, 1 << 20


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def soak(name, exchange, rounds=ROUNDS):
    """Makes that many exchanges after a warm-up, and prints the result."""
    for _ in range(max(rounds // 10, 2_000)):
        exchange()
    gc.collect()
    outstanding, before, start = devexchange.outstanding(), resident_bytes(), time.perf_counter()
    for _ in range(rounds):
        exchange()
    seconds = time.perf_counter() - start
    gc.collect()
    grown = resident_bytes() - before
    print(f"soak: {name}: {rounds} exchanges, {seconds / rounds * 1e6:.2f} us each, {grown} bytes more resident")
    assert devexchange.outstanding() == outstanding
    assert grown <= max(BYTES_PER_EXCHANGE * rounds, SLACK)
