"""Four languages in one process, for as long as desired: C, Java, Julia and Python make things, hand them to each other
by every protocol and in random order, and release them on random threads, by hand or by garbage collection. Afterwards
nothing may be outstanding, and memory must not have grown.

    soak.py --seconds 300 [--seed 1] [--processes 2] [--threads 3] [--device host|cuda]     (scripts/soak.sh)

Every thread draws rounds from a seed: which language makes what, of which shape and type, by which protocol and to
which language it goes, how it is handed out (share, move), which language leaves it to garbage collection, whether a
broken struct is offered first, and which thread is the last user. When a block of rounds is over, garbage is collected
everywhere, every ledger must come to zero, and the resident memory is noted.
"""

import argparse
import collections
import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

HERE = Path(__file__).parent
#: The bytes that one exchange may leave behind. Growth below the second number is not a slope: it is what caches, compiled
#: code and the allocators take, whatever the number of exchanges.
BYTES_PER_EXCHANGE, SLACK = 1.0, 8 << 20
#: The part of the exchanges after which memory counts: before, code is compiled and pools fill.
WARM_UP = 0.25
#: A shorter run shows nothing about memory: it is nearly all warm-up.
FEWEST_TO_JUDGE = 500_000
BLOCK_SECONDS = 4.0
MOST_AT_ONCE = 128
#: Seconds beyond its time after which a process counts as one that hangs.
PATIENCE = 600


def slope(points):
    """The slope of the line through the points with the least squares."""
    if len(points) < 2:
        return 0.0
    middle_x, middle_y = (sum(each) / len(points) for each in zip(*points, strict=True))
    spread = sum((x - middle_x) ** 2 for x, _ in points)
    return sum((x - middle_x) * (y - middle_y) for x, y in points) / spread if spread else 0.0


def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# --- one process ---


class Soak:
    def __init__(self, options):
        # The module `languages` needs the libraries of all its languages.
        import languages

        self.languages, self.options = languages, options
        self.libc = ctypes.CDLL(None)
        environment = os.environ
        # Julia first: a JVM passes signals that are not its own to the previous handler.
        self.julia = languages.Julia(
            environment["SOAK_LIBJULIA"], environment["SOAK_JULIA_BINDIR"], environment["SOAK_JULIA_PACKAGE"],
            HERE / "soak.jl")  # fmt: skip
        self.c = languages.C(environment["SOAK_C"], environment["DEVX_LIB_C"])
        # A heap that is fully committed from the beginning does not make the process grow.
        heap = ["-Xms96m", "-Xmx96m", "-XX:+AlwaysPreTouch", "-XX:+UseSerialGC"]
        self.java = languages.Java(environment["SOAK_CLASSPATH"].split(":"), *heap)
        self.python = languages.Python()
        self.all = {"C": self.c, "Java": self.java, "Julia": self.julia, "Python": self.python}
        self.counts = collections.Counter()
        self.refused = self.dropped = 0
        self.lock = threading.Lock()
        self.handed = []
        self.failure = None
        self.stop = threading.Event()
        self.points, self.heap = [], []

    def exchanges(self):
        return sum(self.counts.values())

    # The work of one thread.

    def protocols(self, kind, maker=None):
        """The protocols by which a thing of this kind can be handed to any language, or by this language."""
        of = self.languages
        if kind == "tensor":
            found = [of.DLPACK, of.DLPACK_LEGACY]
            if self.options.device == "cuda" and maker != "Python":
                found.append(of.CUDA_ARRAY)
            return found
        # ArrowArray and ArrowArrayStream are for host memory.
        on_device = self.options.device == "cuda"
        if kind == "batch":
            return [of.DEVICE_ARRAY] if on_device else [of.ARRAY, of.DEVICE_ARRAY]
        return [of.DEVICE_STREAM] if on_device else [of.STREAM, of.DEVICE_STREAM]

    def spec(self, dice):
        on_device = self.options.device == "cuda"
        extents = [dice.randint(1, 6) for _ in range(3)]
        return self.languages.Spec(
            dtype=dice.randrange(3), ndim=dice.randrange(4), extents=(ctypes.c_int64 * 3)(*extents),
            base=dice.randrange(1000), read_only=not on_device and dice.random() < 0.2,
            device_type=2 if on_device else 1)  # fmt: skip

    def round(self, dice, blocks):
        kind = dice.choices(["tensor", "batch", "stream"], [5, 4, 1])[0]
        spec, names = self.spec(dice), list(self.all)

        def protocol_for(giver):
            found = self.protocols(kind, giver)
            if spec.read_only and self.languages.DLPACK_LEGACY in found:
                # The legacy struct cannot express that.
                found.remove(self.languages.DLPACK_LEGACY)
            return dice.choice(found)

        def flags():
            return dice.choice([0, self.languages.SHARE]) | (self.languages.FORGET if dice.random() < 0.1 else 0)

        holder = dice.choice(names)
        protocol = protocol_for(holder)
        block = self.block(blocks, dice.randint(1, MOST_AT_ONCE if kind != "stream" else 4))
        self.all[holder].make(protocol, spec, block, flags())
        counts = collections.Counter()
        for _ in range(dice.randint(0, 3)):
            taker = dice.choice(names)
            # Python gets the struct of a CUDA array as a dictionary, which its producer makes.
            in_place = protocol != self.languages.CUDA_ARRAY or taker != "Python"
            if in_place and dice.random() < 0.05:
                self.show_broken(dice, taker, protocol, spec, block)
            next_protocol, next_block = protocol_for(taker), self.block(blocks, block.n)
            self.all[taker].hand_on(protocol, next_protocol, spec, block, next_block, flags())
            counts[protocol, holder, taker] += block.n
            blocks.append(block)
            holder, protocol, block = taker, next_protocol, next_block
        with self.lock:
            self.counts.update(counts)
            self.handed.append((kind, holder, protocol, spec, block, dice.choice(names), flags()))

    def finish(self, dice, blocks):
        """Takes for good the things that some thread handed out."""
        with self.lock:
            if not self.handed:
                return
            at = dice.randrange(len(self.handed))
            self.handed[at], self.handed[-1] = self.handed[-1], self.handed[at]
            _, holder, protocol, spec, block, taker, flags = self.handed.pop()
        if dice.random() < 0.03:
            self.c.drop(protocol, block)
            with self.lock:
                self.dropped += block.n
        else:
            self.all[taker].end(protocol, spec, block, flags)
            with self.lock:
                self.counts[protocol, holder, taker] += block.n
        blocks.append(block)

    def show_broken(self, dice, taker, protocol, spec, block):
        """A struct with an error in it must be refused, and still belongs to its producer."""
        of = self.languages
        offset, kind, wrong = {
            of.DLPACK: dice.choice([(0, ctypes.c_uint32, 9), (48, ctypes.c_int32, -1), (53, ctypes.c_uint8, 7)]),
            of.DLPACK_LEGACY: (16, ctypes.c_int32, -1),
            of.CUDA_ARRAY: (16, ctypes.c_int64, -1),
            of.ARRAY: dice.choice([(0, ctypes.c_int64, -1), (of.SCHEMA_AT, ctypes.c_size_t, 0)]),
            of.DEVICE_ARRAY: dice.choice([(0, ctypes.c_int64, -1), (88, ctypes.c_int32, 99)]),
            of.STREAM: (0, ctypes.c_size_t, 0),
            of.DEVICE_STREAM: dice.choice([(0, ctypes.c_int32, 99), (8, ctypes.c_size_t, 0)]),
        }[protocol]
        fields = [kind.from_address(address + offset) for address in block.addresses]
        right = [field.value for field in fields]
        for field in fields:
            field.value = wrong
        self.all[taker].refuse(protocol, spec, block)
        for field, value in zip(fields, right, strict=True):
            field.value = value
        with self.lock:
            self.refused += block.n

    def block(self, blocks, n):
        """Unused room, with the addresses of its places."""
        found = next((at for at, block in enumerate(blocks) if block.n == n), None)
        block = self.languages.Block(n) if found is None else blocks.pop(found)
        block.clear()
        return block

    def worker(self, seed, until):
        dice, blocks = random.Random(seed), []
        try:
            while time.monotonic() < until and not self.failure and not self.stop.is_set():
                self.round(dice, blocks)
                if len(self.handed) > 4:
                    self.finish(dice, blocks)
            while self.handed and not self.failure:
                self.finish(dice, blocks)
        except BaseException as raised:
            self.failure = self.failure or raised

    # The work of Julia's thread.

    def block_of_rounds(self, number, until):
        seeds = [f"{self.options.seed}/{number}/{k}" for k in range(self.options.threads)]
        threads = [threading.Thread(target=self.worker, args=(seed, until)) for seed in seeds]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            self.julia.serve()
        if self.failure:
            raise self.failure

    def settle(self):
        """Waits until nothing is outstanding."""
        end = time.monotonic() + 300
        while True:
            outstanding = {}
            for name in ("Python", "Java", "Julia", "C"):
                outstanding[name] = self.all[name].settle()
                self.julia.serve()
            if not any(outstanding.values()):
                break
            if time.monotonic() > end:
                raise RuntimeError(f"outstanding after five minutes of garbage collection: {outstanding}")
        # Free pages must not count.
        self.libc.malloc_trim(0)

    def run(self):
        start, number = time.monotonic(), 0
        end = start + self.options.seconds
        while time.monotonic() < end and not self.stop.is_set():
            self.block_of_rounds(number, min(time.monotonic() + BLOCK_SECONDS, end))
            self.settle()
            number += 1
            self.points.append((self.exchanges(), resident_bytes()))
            self.heap.append((self.exchanges(), self.java.heap))
            say(self.options, f"{time.monotonic() - start:7.0f} s  {self.exchanges():10} exchanges, "
                f"{self.refused} refused, resident {self.points[-1][1] >> 10} KiB, "
                f"JVM heap {self.java.heap >> 10} KiB, ledgers 0")  # fmt: skip

    def result(self):
        return {
            "exchanges": self.exchanges(),
            "refused": self.refused,
            "dropped": self.dropped,
            "counts": [[self.languages.PROTOCOLS[p], giver, taker, n] for (p, giver, taker), n in self.counts.items()],
            "resident": judge(self.points, self.options.device == "host"),
            "heap": judge(self.heap, True),
        }


def judge(points, ours):
    """Bytes for each exchange after the warm-up, their sum, and whether that is too much. The simulated driver notes
    every allocation that it ever made, hundreds of bytes for each; with it resident memory is not judged."""
    total = points[-1][0] if points else 0
    warm = [point for point in points if point[0] >= total * WARM_UP]
    each = slope(warm)
    grown = each * (total - warm[0][0]) if warm else 0.0
    judged = ours and total >= FEWEST_TO_JUDGE
    grows = judged and each >= BYTES_PER_EXCHANGE and grown >= SLACK
    return {"slope": each, "grown": grown, "judged": judged, "grows": grows}


def say(options, text):
    print(f"[{options.seed}] {text}", flush=True)


def child(options):
    soak = Soak(options)
    signal.signal(signal.SIGINT, lambda *_: soak.stop.set())
    # Threads take turns more often than every 5 ms: most calls are shorter.
    sys.setswitchinterval(0.0005)
    failure = None
    try:
        soak.run()
    except Exception as raised:
        failure = f"{type(raised).__name__}: {raised}"
    print("result " + json.dumps({**soak.result(), "failure": failure}), flush=True)
    sys.stdout.flush()
    if failure:
        # The threads of a failed run may be blocked anywhere.
        os._exit(1)
    soak.julia.close()
    return 0


# --- all of them ---


def run_child(options, seed, results):
    command = [sys.executable, __file__, "--child", "--seed", str(seed), "--seconds", str(options.seconds),
               "--threads", str(options.threads), "--device", options.device]  # fmt: skip
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    result = {"failure": "it said nothing"}
    guard = threading.Timer(options.seconds + PATIENCE, process.kill)
    guard.start()
    for line in process.stdout:
        if line.startswith("result "):
            result = json.loads(line.removeprefix("result "))
        else:
            print(line, end="", flush=True)
    status = process.wait()
    guard.cancel()
    if status and (not result["failure"] or "exchanges" not in result):
        result["failure"] = f"exit status {status}"
    results[seed] = result


def print_table(results):
    counts = collections.Counter()
    for result in results.values():
        for protocol, giver, taker, n in result.get("counts", []):
            counts[protocol, giver, taker] += n
    names = ["C", "Java", "Julia", "Python"]
    protocols = sorted({protocol for protocol, _, _ in counts})
    print("\n" + f"{'exchanges':21}" + "".join(f"{protocol:>20}" for protocol in protocols))
    for giver in names:
        for taker in names:
            row = "".join(f"{counts[protocol, giver, taker]:20}" for protocol in protocols)
            print(f"{giver + ' to ' + taker:21}{row}")


def what_failed(result):
    if result["failure"]:
        return result["failure"]
    if result["resident"]["grows"]:
        return "resident memory grows"
    return "the heap of the JVM grows" if result["heap"]["grows"] else None


def report(results):
    print_table(results)
    failures = 0
    for seed, result in sorted(results.items()):
        if "resident" not in result:
            print(f"[{seed}] FAILED: {result['failure']}")
            failures += 1
            continue
        resident, heap, failure = result["resident"], result["heap"], what_failed(result)
        failures += failure is not None
        unjudged = "" if resident["judged"] else " (not judged)"
        print(
            f"[{seed}] {result['exchanges']} exchanges, slope {resident['slope']:+.3f} bytes each"
            f" ({resident['grown'] / 1024:+.0f} KiB){unjudged}, JVM heap {heap['slope']:+.3f} bytes each,"
            f" {result['refused']} refused, {result['dropped']} released unseen,"
            f" {'FAILED: ' + failure if failure else 'ledgers 0'}"
        )
    total = sum(result.get("exchanges", 0) for result in results.values())
    failed = failures > 0 or total == 0
    print(f"{total} exchanges in {len(results)} processes: {'FAILED' if failed else 'ok'}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--threads", type=int, default=3)
    parser.add_argument("--device", choices=["host", "cuda"], default="host")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options)
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"soak: seed {seed}, {options.processes} processes of {options.threads} threads, {options.seconds:.0f} s, "
          f"{options.device} memory", flush=True)  # fmt: skip
    # The terminal sends the signal to the processes, too; they end with a summary.
    signal.signal(signal.SIGINT, lambda *_: None)
    results = {}
    threads = [threading.Thread(target=run_child, args=(options, seed + k, results)) for k in range(options.processes)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return report(results)


if __name__ == "__main__":
    sys.exit(main())
