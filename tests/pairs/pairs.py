"""Memory shared by processes of five languages: each offers the same things, each imports them from each, and all must
see the same.

    pairs.py host|cuda COMMAND...

A command starts the program of a language (peer.c, Peer.java, peer.jl, peer.py, peer.rs). Its further arguments are the address
at which it offers and, with `cuda`, that word. It prints "ready", and answers each of these lines with one line:

    import ADDRESS    imports everything from there, and holds it: what it sees, as text
    write ADDRESS     adds one to the first element of the tensor "shared" from there
    look              the first element of its own, what it has given, and what is outstanding
    release           gives up what it holds

At the end of its input it gives up the rest, and prints what is outstanding.
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
PATIENCE = 60


class Peer:
    def __init__(self, number, command, cuda):
        self.command, self.address = command, f"@devexchange-pairs-{os.getpid()}-{number}"
        arguments = [*shlex.split(command), self.address, *["cuda"] * cuda]
        self.process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def hear(self):
        # Nobody waits for ever.
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
    # The driver opens no memory of its own process.
    pairs = [(exporter, importer) for exporter in peers for importer in peers if not cuda or importer is not exporter]
    each, things = len(pairs) // len(peers), 6 + cuda
    for number, (exporter, importer) in enumerate(pairs):
        # The writes of earlier importers are visible.
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
    # Imports everything again; then one process after the other dies with what it holds.
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
