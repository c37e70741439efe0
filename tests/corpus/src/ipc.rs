//! An exporter for one importer (`core/src/ipc/message.rs` and `core/src/ipc/descriptor.rs` describe the protocol)
//! whose descriptor and messages are what a case says. It is a list of named fields:
//!
//! `hello.magic`, `hello.type`, `hello.protocol`, `hello.exporter`; `given.magic`, `given.type`, `given.request`,
//! `given.in_file`; and those of the descriptor. An edit names one. Setting a text also sets the number of its bytes, which
//! is the field `NAME.length`. After all edits the descriptor is sealed (length and checksum); an edit that begins with
//! `then ` comes after the seal. Other words describe the rest: `cut = N` (after the seal, only N bytes are left),
//! `append = "…"` (before the seal), `hello.cut`, `given.cut`, `hello.append` (of the messages; a message without bytes is
//! not sent: the exporter is gone), `files = N`, `file.bytes = N`, `file.seals = 0` (a memory file that its exporter could
//! truncate).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, accept, bind, connect, listen, recv, sendmsg, socket_with,
};

use crate::description::Case;
use crate::edit;

const MAGIC: u32 = 0x4950_5844;

/// An exporter that waits for its importer.
pub(crate) struct Exporter {
    pub(crate) address: String,
    state: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct State {
    was_asked: AtomicBool,
    /// The number of messages that gave the lease up.
    releases: AtomicU32,
}

/// What the exporter sends.
struct Said {
    hello: Vec<u8>,
    given: Fields,
    given_cut: usize,
    descriptor: Vec<u8>,
    files: Vec<OwnedFd>,
}

#[derive(Default)]
struct Fields(Vec<(String, Vec<u8>)>);

impl Fields {
    fn with(mut self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        self.0.push((name.to_owned(), bytes.as_ref().to_vec()));
        self
    }

    fn counted(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let length = (bytes.as_ref().len() as u32).to_le_bytes();
        self.with(&format!("{name}.length"), length).with(name, bytes)
    }

    fn find(&mut self, name: &str) -> Option<&mut Vec<u8>> {
        self.0.iter_mut().find(|(other, _)| other == name).map(|(_, bytes)| bytes)
    }

    /// Sets a field to a value. Returns whether there is a field of that name.
    fn set(&mut self, name: &str, value: &str) -> bool {
        let text = value.starts_with('"').then(|| edit::text(value).expect("a text"));
        let length = text.as_ref().map(|text| (text.len() as u32).to_le_bytes().to_vec());
        let Some(bytes) = self.find(name) else { return false };
        match text {
            Some(text) => *bytes = text,
            None => {
                let number: i128 = value.parse().unwrap_or_else(|_| panic!("{name}: {value:?} is no number"));
                let width = bytes.len();
                *bytes = number.to_le_bytes().get(..width).expect("a number").to_vec();
            }
        }
        if let (Some(length), Some(place)) = (length, self.find(&format!("{name}.length"))) {
            *place = length;
        }
        true
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|(_, bytes)| bytes.clone()).collect()
    }
}

fn u32s(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

fn i64s(value: i64) -> [u8; 8] {
    value.to_le_bytes()
}

fn head(kind: u32) -> Fields {
    let head = Fields::default().with("magic", b"DEVXIPC\n").with("version", u32s(1)).with("kind", u32s(kind));
    let head = head.with("length", i64s(0)).with("checksum", i64s(0)).with("place", [0]).with("order", [0]);
    let head = head.with("regions", u32s(1)).with("region[0].kind", [0]).with("region[0].bytes", i64s(64));
    head.with("region[0].writable", [0])
}

fn spot(fields: Fields, name: &str, region: u32, offset: i64) -> Fields {
    fields.with(&format!("{name}region"), u32s(region)).with(&format!("{name}offset"), i64s(offset))
}

/// Four numbers of 32 bits, as a tensor.
fn tensor() -> Fields {
    let fields = head(1).with("dtype.code", [0]).with("dtype.bits", [32]).with("dtype.lanes", 1_u16.to_le_bytes());
    let fields = fields.with("flags", i64s(0)).with("ndim", u32s(1)).with("shape[0]", i64s(4));
    spot(fields.with("strides[0]", i64s(1)), "", 0, 0)
}

/// Four numbers of 32 bits, as a batch without a struct.
fn batch() -> Fields {
    let fields = head(2).with("fields", u32s(1)).with("field.flags", i64s(2)).with("n_children", u32s(0));
    let fields = fields.with("has_dictionary", [0]).counted("format", "i").counted("name", "x");
    let fields = fields.counted("metadata", "").with("array.length", i64s(4)).with("null_count", i64s(0));
    let fields = fields.with("array.offset", i64s(0)).with("n_buffers", u32s(2));
    let fields = spot(fields, "buffers[0].", u32::MAX, 0).with("buffers[0].bytes", i64s(0));
    spot(fields, "buffers[1].", 0, 0).with("buffers[1].bytes", i64s(16))
}

/// Length and checksum: FNV-1a of all bytes, the checksum's own as zeros.
fn seal(fields: &mut Fields) {
    let length = fields.bytes().len() as i64;
    fields.set("length", &length.to_string());
    fields.set("checksum", "0");
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let sum = fields.bytes().iter().fold(0xcbf2_9ce4_8422_2325, step);
    fields.set("checksum", &sum.to_string());
}

fn file(bytes: u64, seals: bool) -> OwnedFd {
    let fd = memfd_create("devexchange-corpus", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    ftruncate(&fd, bytes).expect("made longer");
    if seals {
        let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE | SealFlags::SEAL;
        fcntl_add_seals(&fd, all).expect("sealed");
    }
    fd
}

/// What the exporter sends, before it becomes bytes.
struct Draft {
    hello: Fields,
    given: Fields,
    descriptor: Fields,
    /// The edits that come after the seal.
    late: Vec<(String, String)>,
    /// The number of bytes left: of the descriptor, of the first message, of the second one.
    cut: usize,
    hello_cut: usize,
    given_cut: usize,
    files: u64,
    file_bytes: u64,
    file_seals: bool,
}

impl Draft {
    fn new(base: &str) -> Self {
        let hello = Fields::default().with("magic", u32s(MAGIC)).with("type", u32s(1)).with("protocol", u32s(1));
        let answer =
            |kind| Fields::default().with("magic", u32s(MAGIC)).with("type", u32s(kind)).with("request", i64s(0));
        let given = answer(4).with("in_file", [0]);
        let (given, descriptor, files) = match base {
            "tensor" => (given, tensor(), 1),
            "batch" => (given, batch(), 1),
            "refusal" => (answer(5).with("status", u32s(0)).with("text", ""), Fields::default(), 0),
            other => panic!("there is no descriptor {other:?}"),
        };
        let hello = hello.with("exporter", i64s(9));
        let (late, cut, file_bytes, file_seals) = (Vec::new(), usize::MAX, 64, true);
        let (hello_cut, given_cut) = (cut, cut);
        Self { hello, given, descriptor, late, cut, hello_cut, given_cut, files, file_bytes, file_seals }
    }

    fn apply(&mut self, edit: &str) {
        let (name, value) = edit.split_once('=').unwrap_or_else(|| panic!("the edit {edit:?} is not one"));
        let (name, value) = (name.trim(), value.trim());
        let number = || value.parse::<u64>().unwrap_or_else(|_| panic!("{edit:?}: no number"));
        match name {
            "files" => self.files = number(),
            "file.bytes" => self.file_bytes = number(),
            "file.seals" => self.file_seals = number() != 0,
            "cut" => self.cut = number() as usize,
            "hello.cut" => self.hello_cut = number() as usize,
            "given.cut" => self.given_cut = number() as usize,
            "hello.append" => self.hello.0.push((String::new(), edit::text(value).expect("a text"))),
            "append" => self.descriptor.0.push((String::new(), edit::text(value).expect("a text"))),
            _ => {
                if let Some(name) = name.strip_prefix("then ") {
                    return self.late.push((name.to_owned(), value.to_owned()));
                }
                let set = match name.split_once('.') {
                    Some(("hello", name)) => self.hello.set(name, value),
                    Some(("given", name)) => self.given.set(name, value),
                    _ => self.descriptor.set(name, value),
                };
                assert!(set, "{edit:?}: there is no such field");
            }
        }
    }

    fn said(mut self) -> Said {
        if !self.descriptor.0.is_empty() {
            seal(&mut self.descriptor);
        }
        for (name, value) in &self.late {
            assert!(self.descriptor.set(name, value), "there is no field {name:?}");
        }
        let mut descriptor = self.descriptor.bytes();
        descriptor.truncate(self.cut);
        let files = (0..self.files).map(|_| file(self.file_bytes, self.file_seals)).collect();
        let mut hello = self.hello.bytes();
        hello.truncate(self.hello_cut);
        Said { hello, given: self.given, given_cut: self.given_cut, descriptor, files }
    }
}

impl Exporter {
    pub(crate) fn new(case: &'static Case) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let mut draft = Draft::new(&case.base);
        case.edits.iter().for_each(|edit| draft.apply(edit));
        let said = draft.said();
        let number = NUMBER.fetch_add(1, SeqCst);
        let address = format!("@devexchange-corpus-{}-{number}", std::process::id());
        let socket = new_socket();
        bind(&socket, &abstract_name(&address)).expect("bound");
        listen(&socket, 1).expect("listening");
        let state = Arc::new(State::default());
        let own = Arc::clone(&state);
        let thread = std::thread::spawn(move || serve(&socket, said, &own));
        Self { address, state, thread: Mutex::new(Some(thread)) }
    }

    /// How often the lease was given up, once the importer is gone; `None` if it never asked for one.
    pub(crate) fn releases(&self) -> Option<u32> {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // If no importer has come so far, this is the last one.
            let _ = connect(new_socket(), &abstract_name(&self.address));
            assert!(thread.join().is_ok(), "the exporter failed");
        }
        self.state.was_asked.load(SeqCst).then(|| self.state.releases.load(SeqCst))
    }
}

fn new_socket() -> OwnedFd {
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).expect("a socket")
}

fn abstract_name(address: &str) -> SocketAddrUnix {
    SocketAddrUnix::new_abstract_name(address.trim_start_matches('@').as_bytes()).expect("a name")
}

/// Serves one importer until it is gone.
fn serve(socket: &OwnedFd, mut said: Said, state: &State) {
    let mut ready = [PollFd::new(socket, PollFlags::IN)];
    // Does not wait for ever for a runner that fails before it connects.
    if poll(&mut ready, Some(&Timespec { tv_sec: 10, tv_nsec: 0 })) != Ok(1) {
        return;
    }
    let peer = accept(socket).expect("an importer");
    if said.hello.is_empty() {
        return;
    }
    send(&peer, &said.hello, &[]);
    let (mut message, mut asked) = ([0_u8; 4096], Vec::new());
    while let Ok((bytes @ 1.., _)) = recv(&peer, &mut message[..], RecvFlags::empty()) {
        let message = message.get(..bytes).unwrap_or_default();
        match message.split_at_checked(8) {
            Some(([.., 2, 0, 0, 0], rest)) => {
                state.was_asked.store(true, SeqCst);
                asked = rest.get(..8).unwrap_or_default().to_vec();
                if let Some(request) = said.given.find("request") {
                    request.clone_from(&asked);
                }
                let mut answer = [said.given.bytes(), std::mem::take(&mut said.descriptor)].concat();
                answer.truncate(said.given_cut);
                if answer.is_empty() {
                    return;
                }
                send(&peer, &answer, &said.files);
            }
            Some(([.., 3, 0, 0, 0], rest)) => {
                let leases = rest.chunks_exact(8).filter(|lease| **lease == asked).count();
                state.releases.fetch_add(leases as u32, SeqCst);
            }
            _ => {}
        }
    }
}

fn send(peer: &OwnedFd, bytes: &[u8], files: &[OwnedFd]) {
    let files: Vec<BorrowedFd<'_>> = files.iter().map(AsFd::as_fd).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !files.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(&files)), "too many files");
    }
    // An importer that is gone already needs no answer.
    let _ = sendmsg(peer, &[std::io::IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL);
}
