"""Peers that break the rules of sharing: they are refused or cut off, and harm nobody else."""

import errno
import fcntl
import os
import signal
import struct
import threading
import time
from contextlib import contextmanager

import numpy
import pyarrow
import pytest
from peer import (
    FILES,
    GIVEN,
    MOST,
    PROTOCOL,
    REFUSED,
    Exporter,
    Raw,
    get,
    given,
    head,
    hello,
    refused,
    release,
    sealed,
    soon,
)
from test_ipc import TABLE, VALUES, fresh, serving, shared

import devexchange
from devexchange import TimedOut, ipc


@pytest.fixture(autouse=True)
def no_file_stays_open():
    before = len(os.listdir("/proc/self/fd"))
    yield
    soon(lambda: len(os.listdir("/proc/self/fd")) <= before)


# --- importers ---

GOOD = get(b"values")
NONSENSE = {
    "nothing of ours": b"who is there?",
    "one byte": b"\0",
    "half a head": GOOD[:6],
    "half a request": GOOD[:12],
    "another magic": b"\xff" + GOOD[1:],
    "a type that there is not": head(6) + bytes(20),
    "a hello": hello(),
    "a gift": given(1, b"descriptor"),
    "a refusal": refused(1, 5, b"no"),
    "a request again": get(b"values", 1),
    "half a lease": release(1)[:-1],
    "too many leases": release(*range(257)),
    "a name that is no text": get(b"\xff\xfe"),
    "a name that is too long": get(b"x" * 256),
    "zeros": bytes(MOST),
    "more than a message": GOOD + bytes(MOST),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_importer_that_talks_nonsense_is_cut_off(name):
    with serving(values=shared()) as server, ipc.Client(server.address) as good:
        held = good.tensor("values")
        with Raw.connect(server.address) as raw:
            _, files = raw.given(b"values")
            assert server.leases == 2
            raw.say(NONSENSE[name])
            assert raw.receive() == (b"", [])
            soon(lambda: server.leases == 1)
            for file in files:
                os.close(file)
        assert numpy.from_dlpack(held).tolist() == VALUES.tolist()
        held.close()


def test_leases_of_others_and_files_are_nothing_to_an_importer():
    with serving(values=shared()) as server, ipc.Client(server.address) as good:
        held = good.tensor("values")
        with Raw.connect(server.address) as raw:
            raw.say(release(0, 1, 2, 2**64 - 1))
            _, files = raw.given(b"values")
            raw.say(get(b"values", 2), [0] * 16)
            message, more = raw.receive()
            assert message.startswith(head(GIVEN)) and server.leases == 3
            raw.say(get(b"missing", 3))
            message, _ = raw.receive()
            assert message.startswith(head(REFUSED)) and b"nothing is offered" in message
            for file in files + more:
                os.close(file)
        soon(lambda: server.leases == 1)
        assert numpy.from_dlpack(good.tensor("values")).tolist() == VALUES.tolist()
        held.close()


def test_importer_that_never_reads_holds_nobody_up():
    with serving(values=shared()) as server:
        with Raw.connect(server.address) as raw:
            raw.socket.setblocking(False)
            asked = 0
            try:
                for request in range(1, 5000):
                    raw.say(get(b"values", request))
                    asked += 1
            except (BlockingIOError, ConnectionError):
                pass
            assert asked > 10
            with ipc.Client(server.address) as good:
                assert numpy.from_dlpack(good.tensor("values")).tolist() == VALUES.tolist()
        soon(lambda: server.leases == 0)


def test_batch_is_mapped_for_reading_only():
    with serving(table=pyarrow.record_batch(TABLE)) as server, Raw.connect(server.address) as raw:
        _, files = raw.given(b"table")
        for file in files:
            with pytest.raises(OSError):
                os.pwrite(file, b"x", 0)
            with pytest.raises(OSError):
                os.ftruncate(file, 1)
            os.close(file)


# --- exporters ---


class Genuine:
    """The answer of a real exporter, for the use of a fake one."""

    def __init__(self, thing):
        with serving(thing=thing) as server, Raw.connect(server.address) as raw:
            self.descriptor, self.files = raw.given(b"thing")

    def close(self):
        for file in self.files:
            os.close(file)


@pytest.fixture
def tensor():
    genuine = Genuine(shared())
    yield genuine
    genuine.close()


def ask(answer, timeout=60, greeting=None):
    """Imports from an exporter that has to be refused."""
    address = fresh()
    with Exporter(address, answer, greeting), ipc.Client(address, timeout=timeout) as client:
        client.tensor("thing")


def test_genuine_bytes_are_taken(tensor):
    address = fresh()

    def answer(raw, request):
        raw.say(given(request, tensor.descriptor), tensor.files)

    with Exporter(address, answer) as exporter, ipc.Client(address) as client, client.tensor("thing") as imported:
        assert numpy.from_dlpack(imported).tolist() == VALUES.tolist()
    assert exporter.heard == [get(b"thing"), release(1)]


GREETINGS = {
    "another version": (hello(PROTOCOL + 1), BufferError, "speaks version 2"),
    "nonsense": (b"hello", ValueError, "message.magic is"),
    "a hello with more": (hello() + b"\0", ValueError, "1 bytes follow"),
    "an unknown message": (head(99), ValueError, "message.type is 99"),
    "a gift": (given(1, b""), ValueError, "does not begin with"),
    "a refusal": (refused(0, 29, b"no room"), OSError, "the exporter refused: no room"),
    "a refusal that is no text": (refused(0, 29, b"\xff"), ValueError, "not valid UTF-8"),
    "silence": (b"", TimedOut, "did not answer within"),
}


@pytest.mark.parametrize("name", GREETINGS)
def test_exporter_that_greets_wrongly_is_refused(name):
    greeting, kind, text = GREETINGS[name]
    with pytest.raises(kind, match=text):
        ask(lambda raw, request: None, timeout=60 if greeting else 0.2, greeting=greeting)


def test_exporter_that_is_gone_or_silent(tensor):
    with pytest.raises(ValueError, match="the exporter is gone"):
        ask(lambda raw, request: True)
    begin = time.monotonic()
    with pytest.raises(TimedOut, match="did not answer within") as late:
        ask(lambda raw, request: None, timeout=0.2)
    assert (late.value.errno, late.value.status_name) == (errno.ETIMEDOUT, "DEVX_NOT_READY")
    assert 0.2 <= time.monotonic() - begin < 9  # the default is 10
    # An answer to another request does not count as an answer.
    with pytest.raises(TimeoutError, match="did not answer within"):
        ask(lambda raw, request: raw.say(given(request + 7, tensor.descriptor), tensor.files), timeout=0.2)


class Signalled(Exception):
    pass


@contextmanager
def signalled(handler):
    """Gives a function that the exporter calls when the main thread begins to wait: soon after that, a signal comes."""
    before = signal.signal(signal.SIGUSR1, handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    begin = time.monotonic()
    try:
        yield timer.start
    finally:
        waited = time.monotonic() - begin
        if timer.ident:
            timer.join()
        signal.signal(signal.SIGUSR1, before)
        assert waited < 30


def raises(number, frame):
    raise Signalled


def test_signal_ends_a_wait_for_a_greeting():
    with pytest.raises(Signalled), signalled(raises) as send:
        ask(lambda raw, request: None, timeout=60, greeting=send)


def test_signal_ends_a_wait_for_an_answer_and_not_the_connection(tensor):
    """The interrupted request is given up at once, whether an answer comes or not."""
    address, asked = fresh(), []

    def answer(raw, request):
        asked.append(request)
        if len(asked) == 1:
            send()
            return
        for each in asked:
            raw.say(given(each, tensor.descriptor), tensor.files)

    with Exporter(address, answer) as exporter, ipc.Client(address, timeout=60) as client:
        with pytest.raises(Signalled), signalled(raises) as send:
            client.tensor("thing")
        with client.tensor("thing") as imported:
            assert numpy.from_dlpack(imported).tolist() == VALUES.tolist()
    assert exporter.heard == [get(b"thing", 1), release(1), get(b"thing", 2), release(2)]


def test_signal_that_is_handled_does_not_end_a_wait(tensor):
    address, go_on = fresh(), threading.Event()

    def answer(raw, request):
        send()
        assert go_on.wait(60)
        raw.say(given(request, tensor.descriptor), tensor.files)

    wait = signalled(lambda number, frame: go_on.set())
    with wait as send, Exporter(address, answer), ipc.Client(address, timeout=60) as client:
        client.tensor("thing").close()


def test_answer_that_comes_twice_is_taken_once(tensor):
    address = fresh()

    def answer(raw, request):
        for _ in range(3 - request):
            raw.say(given(request, tensor.descriptor), tensor.files)

    with Exporter(address, answer) as exporter, ipc.Client(address) as client:
        first, second = client.tensor("thing"), client.tensor("thing")
        assert first.data_ptr == second.data_ptr
        first.close()
        second.close()
    assert exporter.heard == [get(b"thing", 1), get(b"thing", 2), release(1), release(2)]


def test_every_cut_and_every_altered_byte_is_refused(tensor):
    cases = [tensor.descriptor[:length] for length in range(len(tensor.descriptor))]
    for at in range(len(tensor.descriptor)):
        cases.append(tensor.descriptor[:at] + bytes([tensor.descriptor[at] ^ 1]) + tensor.descriptor[at + 1 :])
    cases.append(tensor.descriptor + b"\0")
    refuse_all(cases, tensor.files)


def refuse_all(cases, files, what="tensor", taken=None):
    """Imports several descriptors, one after the other, over one connection."""
    address, left = fresh(), list(cases)

    def answer(raw, request):
        raw.say(given(request, left.pop(0)), files)

    with Exporter(address, answer), ipc.Client(address) as client:
        for descriptor in cases:
            try:
                thing = getattr(client, what)("thing")
            except devexchange.Error as error:
                assert str(error)
            else:
                assert taken is not None, descriptor
                taken(thing)
                thing.close()
                del thing
        client.close()


def test_altered_bytes_with_the_right_checksum_are_harmless(tensor):
    """Imported memory lies within the file, whichever bytes were altered."""
    cases = []
    for at in range(32, len(tensor.descriptor)):
        for value in {0, 1, 2, 7, 0x40, 0x7F, 0x80, 0xFF} - {tensor.descriptor[at]}:
            cases.append(sealed(tensor.descriptor[:at] + bytes([value]) + tensor.descriptor[at + 1 :]))
    seen = []

    def taken(imported):
        seen.append(imported.shape)
        if imported.dtype == "float32":
            numpy.from_dlpack(imported).sum()

    refuse_all(cases, tensor.files, taken=taken)
    assert 0 < len(seen) < len(cases) / 2


def test_altered_bytes_of_a_batch_are_harmless():
    genuine = Genuine(pyarrow.record_batch({"n": [1, 2, 3], "m": [1.5, None, 3]}))
    cases = []
    for at in range(32, len(genuine.descriptor)):
        for value in {0, 1, 0x7F, 0xFF} - {genuine.descriptor[at]}:
            cases.append(sealed(genuine.descriptor[:at] + bytes([value]) + genuine.descriptor[at + 1 :]))
    refuse_all(cases, genuine.files, "batch", taken=lambda batch: batch.schema.names)
    genuine.close()


def test_other_version_of_a_descriptor_is_named(tensor):
    other = sealed(tensor.descriptor[:8] + struct.pack("<I", 2) + tensor.descriptor[12:])
    with pytest.raises(BufferError, match="version is 2: this library reads 1"):
        ask(lambda raw, request: raw.say(given(request, other), tensor.files))


ANSWERS = {
    "a hello": (lambda request: hello(), "does not answer with"),
    "a request": (lambda request: get(b"x"), "does not answer with"),
    "nonsense": (lambda request: b"nonsense", "message.magic is"),
    "no descriptor": (lambda request: given(request, b""), "magic has 8 bytes"),
    "a file that is not there": (lambda request: given(request, b"", 1), "there is none"),
    "a wrong flag": (lambda request: given(request, b"", 2), "in file is 2"),
    "a refusal": (lambda request: refused(request, 12345, b"never"), "the exporter refused: never"),
    "more than a message": (lambda request: given(request, bytes(MOST)), "more than 32768 bytes"),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_exporter_that_answers_nonsense_is_refused(name):
    answer, text = ANSWERS[name]
    with pytest.raises(ValueError, match=text):
        ask(lambda raw, request: raw.say(answer(request)))


def memory_file(content, seals=0):
    file = os.memfd_create("test", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    os.write(file, content)
    if seals:
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, seals)
    return file


# F_SEAL_SEAL, F_SEAL_SHRINK and F_SEAL_GROW; and F_SEAL_WRITE, too
SHRINK_GROW_SEAL, SEALS = 0x7, 0xF
FILE_CASES = {
    "none": (lambda: [], "there are 0 file descriptors, the regions have 1"),
    "two": (lambda: [memory_file(bytes(24), SHRINK_GROW_SEAL) for _ in range(2)], "there are 2 file descriptors"),
    "not sealed": (lambda: [memory_file(bytes(24))], "seals 0x0"),
    "only against growing": (lambda: [memory_file(bytes(24), 0x4)], "seals 0x4"),
    "too small": (lambda: [memory_file(bytes(23), SHRINK_GROW_SEAL)], "the file has 23"),
    "too large": (lambda: [memory_file(bytes(4096), SHRINK_GROW_SEAL)], "the file has 4096"),
    "no memory file": (lambda: [os.open("/dev/zero", os.O_RDWR)], "seals"),
    "a directory": (lambda: [os.open("/", os.O_RDONLY)], "seals"),
    "as many as there can be": (
        lambda: [memory_file(bytes(24), SHRINK_GROW_SEAL) for _ in range(FILES)],
        f"there are {FILES} file descriptors",
    ),
    "more than there can be": (lambda: [memory_file(b"") for _ in range(FILES + 16)], "file descriptors"),
}


@pytest.mark.parametrize("name", FILE_CASES)
def test_files_that_are_not_what_the_descriptor_says_are_refused(name, tensor):
    make, text = FILE_CASES[name]
    files = make()
    try:
        with pytest.raises(ValueError, match=text):
            ask(lambda raw, request: raw.say(given(request, tensor.descriptor), files))
    finally:
        for file in files:
            os.close(file)


def test_description_in_a_file_of_the_exporters(tensor):
    for content, text in [(b"", "magic has 8 bytes"), (bytes(100), "magic is"), (tensor.descriptor[:-1], "length is")]:
        file = memory_file(content, SEALS)
        with pytest.raises(ValueError, match=text):
            ask(lambda raw, request, file=file: raw.say(given(request, b"", 1), [file, *tensor.files]))
        os.close(file)
    # A file that claims to be longer than any description.
    file = memory_file(b"")
    os.ftruncate(file, 1 << 40)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, SEALS)
    with pytest.raises(ValueError, match="more than 16777216"):
        ask(lambda raw, request: raw.say(given(request, b"", 1), [file, *tensor.files]))
    os.close(file)
