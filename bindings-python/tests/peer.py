"""Another Python process that runs what it is told, and ends of a socket that tests play by hand."""

import array
import ast
import os
import socket
import struct
import subprocess
import sys
import threading
import time

_PROGRAM = """
import ast, gc, sys
here = {}
for line in sys.stdin:
    source, value, error = ast.literal_eval(line), None, None
    try:
        try:
            code = compile(source, "<told>", "eval")
        except SyntaxError:
            exec(source, here)
        else:
            value = eval(code, here)
    except Exception as raised:
        error = type(raised).__name__, str(raised)
    print(repr((value, error)), flush=True)
here.clear()
gc.collect()
import devexchange
devexchange.from_buffer(b"").close()
assert devexchange.outstanding() == 0, devexchange.ledger()
"""


class PeerError(Exception):
    """An exception of the other process: the name of its type, and its text."""


class Peer:
    """The other process. It ends in order, with nothing outstanding, at the end of a `with` block."""

    def __init__(self, setup="", **environment):
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        if setup:
            self.run(setup)

    def run(self, source):
        """Runs statements in the other process, or returns the value of an expression."""
        # So that the test does not wait for ever.
        guard = threading.Timer(300, self.process.kill)
        guard.start()
        self.process.stdin.write(repr(source) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        guard.cancel()
        assert line, "the other process ended"
        value, error = ast.literal_eval(line)
        if error:
            raise PeerError(*error)
        return value

    def kill(self):
        self.process.kill()
        self.end()

    def end(self):
        self.process.stdin.close()
        status = self.process.wait(300)
        self.process.stdout.close()
        return status

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if self.process.returncode is None:
            status = self.end()
            assert kind or status == 0, f"the other process ended with status {status}"


def soon(done):
    """Waits until another process or thread has done something."""
    end = time.monotonic() + 120
    while not done():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.001)


# --- what is said over the socket (core/src/ipc/message.rs) ---

MAGIC, PROTOCOL = 0x49505844, 1
HELLO, GET, RELEASE, GIVEN, REFUSED = range(1, 6)
MOST = 32 << 10
FILES = 65


def head(kind):
    return struct.pack("<II", MAGIC, kind)


def hello(protocol=PROTOCOL):
    return head(HELLO) + struct.pack("<IQ", protocol, 9)


def get(name, request=1):
    return head(GET) + struct.pack("<Q", request) + name


def given(request, descriptor, in_file=0):
    return head(GIVEN) + struct.pack("<QB", request, in_file) + descriptor


def refused(request, status, text):
    return head(REFUSED) + struct.pack("<Qi", request, status) + text


def release(*requests):
    return head(RELEASE) + struct.pack(f"<{len(requests)}Q", *requests)


def sealed(descriptor):
    """The descriptor with its right length and checksum (FNV-1a, with zeros in place of the checksum itself)."""
    descriptor = descriptor[:16] + struct.pack("<QQ", len(descriptor), 0) + descriptor[32:]
    total = 0xCBF29CE484222325
    for byte in descriptor:
        total = ((total ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return descriptor[:24] + struct.pack("<Q", total) + descriptor[32:]


def _address(address):
    return "\0" + address[1:] if address.startswith("@") else address


class Raw:
    """One end of a connection that sends whatever the test wants."""

    def __init__(self, connection):
        self.socket = connection
        self.socket.settimeout(120)

    @classmethod
    def connect(cls, address):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        connection.connect(_address(address))
        raw = cls(connection)
        message, files = raw.receive()
        for file in files:
            os.close(file)
        assert message.startswith(head(HELLO))
        return raw

    def say(self, message, files=()):
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", files))] if files else []
        self.socket.sendmsg([message], rights)

    def receive(self):
        """Receives a message, empty if the peer is gone, and the files that came with it."""
        files = array.array("i")
        while True:
            try:
                message, ancillary, *_ = self.socket.recvmsg(MOST, socket.CMSG_SPACE(FILES * files.itemsize))
                break
            except ConnectionResetError:
                # The peer is gone without having read everything; what it sent before is still to come.
                continue
        for level, kind, data in ancillary:
            assert (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS)
            files.frombytes(data[: len(data) - len(data) % files.itemsize])
        return message, list(files)

    def given(self, name):
        """Asks the exporter for a name and returns its answer: descriptor and files."""
        self.say(get(name))
        message, files = self.receive()
        assert message.startswith(head(GIVEN)), message
        _, in_file = struct.unpack_from("<QB", message, 8)
        assert in_file == 0
        return message[17:], files

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Exporter:
    """An exporter for one importer: `answer(raw, request)` sends whatever it likes for each request.

    `greeting` is what it sends first, or a function that it calls instead."""

    def __init__(self, address, answer, greeting=None):
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(_address(address))
        self.listener.listen()
        self.listener.settimeout(120)
        self.answer, self.greeting, self.heard = answer, hello() if greeting is None else greeting, []
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self):
        connection, _ = self.listener.accept()
        with Raw(connection) as raw:
            if callable(self.greeting):
                self.greeting()
            elif self.greeting:
                raw.say(self.greeting)
            while True:
                try:
                    message, _ = raw.receive()
                    if not message:
                        return
                    self.heard.append(message)
                    if message.startswith(head(GET)) and self.answer(raw, struct.unpack_from("<Q", message, 8)[0]):
                        return
                except (BrokenPipeError, ConnectionResetError):
                    return

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thread.join()
        self.listener.close()
