"""Processes in five languages share memory: each offers the same tensors and batches and imports those of every other
process (on the host, also its own), and all must show the same values.

    pairs.py host|cuda COMMAND...

A command starts the program of a language (peer.c, Peer.java, peer.jl, peer.py, peer.rs). Further arguments are the address
at which it offers and, with `cuda`, that word. The program prints "ready" and answers each of these lines with one line:

    import ADDRESS    imports everything that this address offers and keeps it; answers with the values as text
    write ADDRESS     adds one to the first element of the tensor "shared" that was imported from this address
    look              answers with the first element of its own "shared", its number of leases, and its ledger's count
    release           releases all imports

At the end of its input, the program closes its server, releases its own memory and prints the ledger's count.
"""

import os
import shlex
import subprocess
import sys
import threading
import time

EXPECTED = (
    "shared 032 2x3 [{first} 2 3 4 5 6]; view 032 2 read-only [2 4]; copied 264 2 [1.5 2.5]; none 032 0x3 []; {device}"
    'rows 3 n:1,null,3 s:"a",null,"Zürich" l:[1, 2],[],null d:"x","y","x" '
    'st:{{"a": 1, "b": 0.5}},{{"a": 2, "b": 1.5}},{{"a": 3, "b": 2.5}} m:true,null,false; '
    "no rows 0 n: s: l: d: st: m:;"
)
ON_DEVICE = "device 264 2 [1.5 2.5]; "
PATIENCE = 300


class Peer:
    def __init__(self, number, command, cuda):
        self.command, self.address = command, f"@devexchange-pairs-{os.getpid()}-{number}"
        arguments = [*shlex.split(command), self.address, *["cuda"] * cuda]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def hear(self):
        # A program that hangs is killed, which ends `readline`.
        guard = threading.Timer(PATIENCE, self.process.kill)
        guard.start()
        line = self.process.stdout.readline()
        guard.cancel()
        assert line, f"{self.command} ended, or was silent"
        return line.strip()

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.hear()

    def look(self):
        return [int(number) for number in self.tell("look").split()]

    def comes_to(self, what, at, number):
        end = time.monotonic() + PATIENCE
        while (found := self.look()[at]) != number:
            assert time.monotonic() < end, f"{self.command}: {what} are {found}, not {number}"
            time.sleep(0.001)

    def kill(self):
        self.process.kill()
        self.process.wait()


FIRST, LEASES, OUTSTANDING = range(3)


def main():
    cuda = sys.argv[1] == "cuda"
    peers = [Peer(number, command, cuda) for number, command in enumerate(sys.argv[2:])]
    try:
        run(peers, cuda)
    finally:
        for peer in peers:
            peer.kill()


def run(peers, cuda):
    for peer in peers:
        assert peer.hear() == "ready"
    before = [peer.look()[OUTSTANDING] for peer in peers]
    # The CUDA driver refuses to open a memory handle in the process that exported it.
    pairs = [(exporter, importer) for exporter in peers for importer in peers if not cuda or importer is not exporter]
    each, things = len(pairs) // len(peers), 6 + cuda
    for number, (exporter, importer) in enumerate(pairs):
        # Each earlier importer has added one to the first element.
        expected = EXPECTED.format(first=1 + number % each, device=ON_DEVICE if cuda else "")
        seen = importer.tell(f"import {exporter.address}")
        assert seen == expected, f"{exporter.command} to {importer.command}:\n{seen}\n{expected}"
        assert importer.tell(f"write {exporter.address}") == "written"
    for peer in peers:
        assert peer.look()[:OUTSTANDING] == [1 + each, each * things], peer.command
    for peer in peers:
        assert peer.tell("release") == "released"
    for peer, outstanding in zip(peers, before, strict=True):
        peer.comes_to("leases", LEASES, 0)
        peer.comes_to("outstanding ones", OUTSTANDING, outstanding)
    # Import everything again; then kill one process after the other while it holds leases.
    for exporter, importer in pairs:
        importer.tell(f"import {exporter.address}")
    *dying, last = peers
    for number, peer in enumerate(dying, 1):
        peer.kill()
        for left in peers[number:]:
            left.comes_to("leases", LEASES, (each - number) * things)
    assert last.tell("release") == "released"
    last.process.stdin.close()
    assert (last.hear(), last.process.wait(PATIENCE)) == ("outstanding 0", 0), last.command


main()
