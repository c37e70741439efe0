//! Misbehaving peers: what they send is refused by name or harmless, nobody waits for ever, and nobody else notices.

use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::MemfdFlags;

use super::given_up::{touch, watched};
use super::{
    Importing, Raw, address, connect_impatient, duplicates, import_batch, import_tensor, leases, long,
    numbers_and_texts, patient, reseal, shared, soon,
};
use crate::abi::types::*;
use crate::arrow::Batch;
use crate::arrow::builder::ArrayBuilder;
use crate::device::Device;
use crate::dlpack::Copying;
use crate::dtype::DType;
use crate::error::Error;
use crate::ipc::credentials::Credentials;
use crate::ipc::memory::{file, file_of, seal};
use crate::ipc::message::{MAX_RELEASES, Message, PROTOCOL};
use crate::ipc::server::Server;
use crate::ipc::socket::{Received, Room, Sent, Socket};
use crate::ipc::{Client, allocate_tensor, connect, export_batch, export_tensor};

/// How long an importer waits for an answer that does not come.
fn patience() -> Duration {
    patient(150)
}

/// Every byte of a real descriptor with every value, resealed, imported with its real file.
#[test]
fn altered_descriptors_are_refused_or_lie_in_their_file() {
    let exported = export_tensor(&shared(&[1, 2, 3, 4]), Copying::Never).expect("exported");
    let (mut taken, mut refused) = (0, 0);
    let bytes = exported.descriptor().to_vec();
    for (at, value) in (0..bytes.len()).flat_map(|at| (0..=u8::MAX).map(move |value| (at, value))) {
        let mut changed = bytes.clone();
        changed[at] = value;
        reseal(&mut changed);
        let (peer, given_up) = watched();
        match import_tensor(&changed, duplicates(&exported), peer) {
            Ok(tensor) => {
                touch(&tensor);
                taken += 1;
            }
            Err(error) => {
                assert!(!error.message().is_empty());
                refused += 1;
            }
        }
        assert!(given_up.load(SeqCst), "byte {at} is {value}");
    }
    assert!(taken > 255 && refused > 10_000, "{taken} taken, {refused} refused");
}

#[test]
fn altered_descriptors_of_batches_are_refused_or_lie_in_their_file() {
    let exported = export_batch(&numbers_and_texts(), Copying::Always).expect("exported");
    let bytes = exported.descriptor().to_vec();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            reseal(&mut changed);
            let (peer, given_up) = watched();
            if let Ok(batch) = import_batch(&changed, duplicates(&exported), peer) {
                // All numbers that can be read are in the file: a fault would end this program.
                let column = batch.column(0).expect("a column");
                if let Ok(values) = column.values::<i64>() {
                    assert!(values.iter().fold(0_i64, |sum, value| sum.wrapping_add(*value)) != i64::MIN);
                }
            }
            assert!(given_up.load(SeqCst), "bit {bit} of byte {at}");
        }
    }
}

fn sealed(bytes: usize) -> OwnedFd {
    let fd = file("test", bytes).expect("a file");
    seal(&fd).expect("sealed");
    fd
}

/// File descriptors of every kind that is not a memory file.
fn wrong_kinds() -> Vec<(&'static str, OwnedFd)> {
    let (one, _) = UnixStream::pair().expect("a pair");
    // Several tests call this at the same time.
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let name = format!("devx-ipc-kind-{}-{}", std::process::id(), COUNT.fetch_add(1, SeqCst));
    let on_disk = std::env::temp_dir().join(name);
    let regular = File::create_new(&on_disk).expect("a file");
    regular.set_len(16).expect("made longer");
    std::fs::remove_file(&on_disk).expect("removed");
    vec![
        ("socket", one.into()),
        ("directory", File::open("/").expect("a directory").into()),
        ("/dev/null", File::open("/dev/null").expect("a device").into()),
        ("/dev/zero", File::open("/dev/zero").expect("a device").into()),
        ("pipe", std::io::pipe().expect("a pipe").0.into()),
        ("file on a disk", regular.into()),
        ("memory that is not sealed", file("test", 16).expect("a file")),
    ]
}

#[test]
fn files_of_the_wrong_kind_are_refused() {
    let exported = export_tensor(&shared(&[1, 2, 3, 4]), Copying::Never).expect("exported");
    for (kind, fd) in wrong_kinds() {
        let (peer, given_up) = watched();
        let error = import_tensor(exported.descriptor(), vec![fd], peer).expect_err(kind);
        assert_eq!(error.status(), DEVX_INVALID_ARGUMENT, "{kind}: {error}");
        assert!(error.message().contains("seals"), "{kind}: {error}");
        assert!(given_up.load(SeqCst));
    }
    // Sealed and large enough, but not writable.
    let read_only = export_batch(&numbers_and_texts(), Copying::Always).expect("exported");
    // Only the owner, who may change the mode, can open it a second time for writing.
    let mode = rustix::fs::fstat(&duplicates(&read_only)[0]).expect("a file").st_mode;
    assert_eq!(mode & 0o777, 0o444);
    let mut says_writable = read_only.descriptor().to_vec();
    let writable_at = 32 + 2 + 4 + 9;
    assert_eq!(says_writable[writable_at], 0);
    says_writable[writable_at] = 1;
    reseal(&mut says_writable);
    let error = import_batch(&says_writable, duplicates(&read_only), watched().0).expect_err("read-only");
    assert!(error.status() == DEVX_INVALID_ARGUMENT && error.message().contains("region.writable is 1"), "{error}");
}

/// Where a file of huge pages has a hole, and no page is left to fill it, a reader would be ended by a signal.
#[test]
fn files_of_huge_pages_are_refused() {
    let huge = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
    let fd = rustix::fs::memfd_create("huge", huge).expect("a file, even where no page is reserved");
    rustix::fs::ftruncate(&fd, 2 << 20).expect("made longer");
    seal(&fd).expect("sealed");
    let tensor = allocate_tensor(DType::UINT8, &[2 << 20]).expect("allocated");
    let exported = export_tensor(&tensor, Copying::Never).expect("exported");
    let (peer, given_up) = watched();
    let error = import_tensor(exported.descriptor(), vec![fd], peer).expect_err("huge pages");
    assert!(error.status() == DEVX_INVALID_ARGUMENT && error.message().contains("huge pages"), "{error}");
    assert!(given_up.load(SeqCst));
}

/// An exporter that the test plays by hand, for any number of importers in turn.
struct Fake {
    address: String,
    over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Fake {
    /// Calls `act` with every importer that connects, before anything was sent.
    fn start(of: &str, mut act: impl FnMut(&Raw) + Send + 'static) -> Self {
        let (address, over) = (address(of), Arc::new(AtomicBool::new(false)));
        let (listener, end) = (Socket::listen(&address).expect("listening"), Arc::clone(&over));
        let thread = std::thread::spawn(move || {
            while !end.load(SeqCst) {
                let soon = Instant::now() + Duration::from_millis(5);
                match listener.accept().expect("accepting") {
                    Some(socket) => act(&Raw::new(socket)),
                    None => drop(listener.wait(rustix::event::PollFlags::IN, soon).expect("waited")),
                }
            }
        });
        Self { address, over, thread: Some(thread) }
    }

    fn connect(&self) -> Result<Client, Error> {
        Client::connect(&self.address, Some(long()))
    }

    /// An importer that waits for answers for [`patience`] only. It may need several attempts to get the hello.
    fn connect_impatient(&self) -> Client {
        connect_impatient(&self.address, patience())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        let ended = self.thread.take().map(std::thread::JoinHandle::join);
        assert!(std::thread::panicking() || matches!(ended, Some(Ok(()))), "the exporter panicked, see above");
    }
}

fn hello() -> Vec<u8> {
    Message::Hello { protocol: PROTOCOL, exporter: 9 }.encode().expect("encoded")
}

/// Answers a request with these bytes and file descriptors, and says nothing more.
fn answer(raw: &Raw, fds: &[BorrowedFd<'_>], bytes: impl FnOnce(u64) -> Vec<u8>) {
    // It may be gone already.
    let _ = raw.0.send(&hello(), &[]);
    let Some((asked, _)) = raw.receive() else { return };
    if let Ok(Message::Get { request, .. }) = Message::decode(&asked) {
        let _ = raw.0.send(&bytes(request), fds);
    }
}

/// Waits until the importer is gone, and ignores what it sends.
fn stay(raw: &Raw) {
    while raw.receive().is_some() {}
}

/// Every altered byte of a real answer, and every length that it can be cut to: refused, or the same tensor. The exporter then
/// closes the connection, so that the importer need not wait after an invalid answer.
#[test]
fn altered_answers_are_refused_or_the_same() {
    let exported = export_tensor(&shared(&[5, 6, 7]), Copying::Never).expect("exported");
    let given =
        |request| Message::Given { request, descriptor: Some(exported.descriptor()) }.encode().expect("encoded");
    let length = given(1).len();
    // Which byte is altered and how; without a mask, this byte and all after it are cut off.
    let forms: Vec<(usize, u8)> = (0..length).flat_map(|at| [0, 0x01, 0x80, 0xff].map(|mask| (at, mask))).collect();
    let count = forms.len();
    let (again, mut forms) = (exported.descriptor().to_vec(), forms.into_iter());
    let files = duplicates(&exported);
    let fake = Fake::start("answers", move |raw| {
        let Some((at, mask)) = forms.next() else { return };
        let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        answer(raw, &fds, |request| {
            let mut bytes = Message::Given { request, descriptor: Some(&again) }.encode().expect("encoded");
            bytes[at] ^= mask;
            bytes.truncate(if mask == 0 { at } else { length });
            bytes
        });
    });
    let (mut same, mut refused) = (0, 0);
    for _ in 0..count {
        match fake.connect().expect("connected").tensor("t") {
            Ok(tensor) => {
                assert_eq!(tensor.as_slice::<i32>(), Ok(&[5, 6, 7][..]));
                same += 1;
            }
            Err(error) => {
                assert!(!error.message().is_empty());
                refused += 1;
            }
        }
    }
    assert_eq!((same, refused), (0, count));
}

#[test]
fn a_descriptor_in_a_file_of_the_wrong_kind_is_refused() {
    let mut kinds = wrong_kinds();
    kinds.push(("too large", sealed((1 << 24) + 1)));
    let names: Vec<_> = kinds.iter().map(|(name, _)| *name).collect();
    let mut kinds = kinds.into_iter();
    let fake = Fake::start("in-file", move |raw| {
        let Some((_, fd)) = kinds.next() else { return };
        let given = |request| Message::Given { request, descriptor: None }.encode().expect("encoded");
        answer(raw, &[fd.as_fd()], given);
    });
    for name in names {
        let error = fake.connect().expect("connected").tensor("t").expect_err(name);
        assert_eq!(error.status(), DEVX_INVALID_ARGUMENT, "{name}: {error}");
        assert!(error.message().contains("seals") || error.message().contains("16777217 bytes"), "{name}: {error}");
    }
}

#[test]
fn an_importer_waits_no_longer_than_it_was_told() {
    let quickly = |what: &str, act: &dyn Fn() -> Error| {
        let begin = Instant::now();
        let error = act();
        // The time is not the default of ten seconds.
        assert!(begin.elapsed() < patient(9_000), "{what}: {:?}", begin.elapsed());
        error
    };
    let late_after = |time: Duration, error: &Error| {
        let wanted = format!("did not answer within {time:?}");
        error.status() == DEVX_NOT_READY && error.is_late() && error.message().contains(&wanted)
    };
    let late = |error: &Error| late_after(patience(), error);
    // Nobody accepts the connection, and nobody sends a hello.
    let silent = Socket::listen(&address("silent")).expect("listening");
    let error = quickly("silent", &|| Client::connect(&address("silent"), Some(patience())).expect_err("no hello"));
    assert!(late(&error), "{error}");
    drop(silent);
    // A peer that keeps sending what nobody requested, fast and slowly.
    for pause in [Duration::ZERO, Duration::from_millis(7)] {
        let fake = Fake::start(&format!("flood-{}", pause.as_millis()), move |raw| {
            let _ = raw.0.send(&hello(), &[]);
            let other = Message::Refused { request: 1 << 40, status: 2, text: "no" }.encode().expect("encoded");
            loop {
                match raw.0.send(&other, &[]).expect("sent") {
                    Sent::End => return,
                    Sent::Yes | Sent::Full => std::thread::sleep(pause),
                }
            }
        });
        let client = fake.connect_impatient();
        let error = quickly("flood", &|| client.tensor("t").expect_err("no answer"));
        assert!(late(&error), "{error}");
        drop(client);
    }
    // A peer that reads nothing, and many threads that import: each waits for the others no longer than for its own answer. If
    // they waited in turn, the last one would wait for 16 answers.
    let own = patient(500);
    let fake = Fake::start("stopped", |raw| {
        let _ = raw.0.send(&hello(), &[]);
        stay(raw);
    });
    let client = connect_impatient(&fake.address, own);
    std::thread::scope(|scope| {
        let all = [(); 16].map(|()| {
            scope.spawn(|| {
                (0..3)
                    .map(|_| {
                        let begin = Instant::now();
                        let error = client.tensor("t").expect_err("no answer");
                        assert!(late_after(own, &error), "{error}");
                        begin.elapsed()
                    })
                    .max()
            })
        });
        let longest = all.map(|one| one.join().expect("ended")).into_iter().flatten().max().expect("some");
        assert!(longest < 10 * own, "{longest:?}");
    });
    drop((client, fake));
    // A hello of another version, garbage, and an end.
    let of_version_2 = Message::Hello { protocol: 2, exporter: 1 }.encode().expect("encoded");
    let longer = [&*of_version_2, &[1; 9]].concat();
    let mut says = [of_version_2, longer, vec![7; 20], Vec::new()].into_iter();
    let fake = Fake::start("hello", move |raw| {
        if let Some(said) = says.next().filter(|said| !said.is_empty()) {
            raw.say(&said);
        }
    });
    for (status, text) in [
        (DEVX_VERSION, "speaks version 2, this library 1"),
        (DEVX_VERSION, "speaks version 2, this library 1"),
        (DEVX_INVALID_ARGUMENT, "message.magic is 0x7070707"),
        (DEVX_CLOSED, "the exporter is gone"),
    ] {
        let error = quickly("hello", &|| fake.connect().expect_err("refused"));
        assert!(error.status() == status && error.message().contains(text), "{error}");
    }
}

/// An importer that does not wait any longer says so at once, whether the exporter answers or not, and whatever it says
/// about other requests.
#[test]
fn what_is_asked_in_vain_is_given_up_at_once() {
    let asked = Arc::new(Mutex::new(BTreeSet::new()));
    let kept = Arc::clone(&asked);
    let fake = Fake::start("in-vain", move |raw| {
        let mut room = Room::new().expect("memory");
        let _ = raw.0.send(&hello(), &[]);
        let unasked = Message::Given { request: 1 << 40, descriptor: Some(&[]) }.encode().expect("encoded");
        loop {
            if raw.0.send(&unasked, &[]) == Ok(Sent::End) {
                return;
            }
            match raw.0.receive(&mut room).expect("received") {
                Received::End => return,
                Received::Nothing => {}
                Received::Message => match Message::decode(room.last().0).expect("a message") {
                    Message::Get { request, .. } => assert!(kept.lock().expect("no panic").insert(request)),
                    Message::Release { leases } => leases.iter().for_each(|lease| {
                        assert!(kept.lock().expect("no panic").remove(&u64::from_le_bytes(*lease)));
                    }),
                    other => panic!("{other:?}"),
                },
            }
        }
    });
    let client = fake.connect_impatient();
    for _ in 0..3 {
        assert!(client.tensor("t").expect_err("no answer").is_late());
        soon("it is given up", || asked.lock().expect("no panic").is_empty());
    }
}

/// A batch whose descriptor takes most of a message, so that a socket has room for few of them.
fn wide() -> Batch {
    let column = |number: i32| {
        let name = "x".repeat(90) + &number.to_string();
        ArrayBuilder::new(&name, "n", 1)
    };
    // SAFETY: there are no buffers.
    unsafe { (0..150).map(column).fold(ArrayBuilder::batch(1), ArrayBuilder::child).build(Device::CPU) }.expect("built")
}

/// An importer that stops waiting again and again, while the exporter is busy, leaves all its answers unread. It keeps what it
/// holds, and gets what it requests after that.
#[test]
fn answers_wait_for_room() {
    let server = Server::bind(&address("room")).expect("bound");
    server.offer_batch("t", &wide(), Copying::IfNeeded).expect("offered");
    let raw = Raw::connect("room");
    let get = |request| raw.say(&Message::Get { request, name: "t" }.encode().expect("encoded"));
    let given = |request| match Message::decode(&raw.receive().expect("an answer").0) {
        Ok(Message::Given { request: of, .. }) => assert_eq!(of, request),
        other => panic!("{other:?}"),
    };
    (1..=40).for_each(get);
    // Some answers are on their way; the other requests wait.
    soon("there is no room", || server.leases() > 3);
    std::thread::sleep(patient(20));
    let sent = server.leases() as u64;
    assert!(sent < 40, "{sent}");
    // What is given up meanwhile is given back, or not given any more.
    raw.say(&Message::Release { leases: &leases(&[1, 39]) }.encode().expect("encoded"));
    soon("one is given back", || server.leases() as u64 == sent - 1);
    (1..=40).filter(|request| *request != 39).for_each(given);
    assert_eq!(server.leases(), 38);
    get(41);
    given(41);
    drop(raw);
    soon("its end gives all back", || server.leases() == 0);
}

#[test]
fn an_importer_that_does_not_read_is_cut_off() {
    let server = Server::bind(&address("unread")).expect("bound");
    server.offer_batch("t", &wide(), Copying::IfNeeded).expect("offered");
    let raw = Raw::connect("unread");
    for request in 1..1000 {
        let get = Message::Get { request, name: "t" }.encode().expect("encoded");
        if raw.0.send(&get, &[]) == Ok(Sent::End) {
            break;
        }
    }
    soon("it is cut off", || server.leases() == 0 && !raw.0.is_connected());
}

/// The numbers of requests are those of leases, so none may come twice.
#[test]
fn requests_are_numbered_upwards() {
    let server = Server::bind(&address("numbers")).expect("bound");
    server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
    for second in [4, 3, 0] {
        let raw = Raw::connect("numbers");
        for request in [4, second] {
            raw.say(&Message::Get { request, name: "t" }.encode().expect("encoded"));
        }
        assert!(raw.receive().is_some());
        assert!(raw.receive().is_none(), "{second}");
        soon("its end gives all back", || server.leases() == 0);
    }
}

/// An answer is recorded and sent to another importer after the exporter is gone: the result is the same memory, or nothing.
#[test]
fn what_is_replayed_is_the_same_memory_or_nothing() {
    let (descriptor, files) = {
        let exported = export_tensor(&shared(&[8, 9]), Copying::Never).expect("exported");
        (exported.descriptor().to_vec(), duplicates(&exported))
    };
    let replays = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&replays);
    let fake = Fake::start("replay", move |raw| {
        let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        count.fetch_add(1, SeqCst);
        // The first time unchanged; then for a request with another number.
        let first = count.load(SeqCst) == 1;
        answer(raw, &fds, |request| {
            let request = if first { request } else { request + 1 };
            Message::Given { request, descriptor: Some(&descriptor) }.encode().expect("encoded")
        });
        stay(raw);
    });
    let tensor = fake.connect().expect("connected").tensor("t").expect("sealed memory stays");
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[8, 9][..]));
    drop(tensor);
    let error = fake.connect_impatient().tensor("t").expect_err("for somebody else");
    assert!(error.message().contains("did not answer"), "{error}");
}

/// Every message of an importer, with every byte altered, and cut off anywhere.
#[test]
fn an_exporter_survives_every_altered_message() {
    let server = Server::bind(&address("altered")).expect("bound");
    server.offer_tensor("t", &shared(&[1, 2, 3]), Copying::Never).expect("offered");
    let good = connect(&address("altered")).expect("connected");
    let get = Message::Get { request: 1, name: "t" }.encode().expect("encoded");
    let release = Message::Release { leases: &leases(&[1, 2]) }.encode().expect("encoded");
    for message in [get, release] {
        for at in 0..message.len() {
            for mask in [0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xff] {
                let raw = Raw::connect("altered");
                let mut changed = message.clone();
                changed[at] ^= mask;
                raw.say(&changed);
                // It may be cut off already.
                let _ = raw.0.send(&message[..at.max(1)], &[]);
            }
        }
        good.tensor("t").expect("the server goes on");
    }
    soon("all is released", || server.leases() == 0);
}

#[test]
fn silent_importers_are_limited_and_leave_room_when_they_go() {
    let server = Server::bind(&address("silent-importers")).expect("bound");
    server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
    let try_one = || Client::connect(&address("silent-importers"), Some(long()));
    let held: Vec<_> = (0..512).map(|_| try_one().expect("connected")).collect();
    let error = try_one().expect_err("too many");
    assert!(error.status() == DEVX_BUSY && error.message().contains("there are 512 importers already"), "{error}");
    held[0].tensor("t").expect("those who are in are served");
    drop(held);
    soon("there is room again", || try_one().is_ok());
    for _ in 0..3000 {
        drop(try_one());
    }
    soon("and still", || try_one().is_ok_and(|client| client.tensor("t").is_ok()));
}

#[test]
fn what_one_importer_holds_is_limited() {
    const MOST: usize = 1 << 16;
    const AT_ONCE: usize = 32;
    let server = Server::bind(&address("greedy")).expect("bound");
    let empty = crate::ipc::allocate_tensor(crate::dtype::DType::INT32, &[0]).expect("nothing to allocate");
    server.offer_tensor("t", &empty, Copying::Never).expect("offered");
    let greedy = Raw::connect("greedy");
    let get = |request: usize| Message::Get { request: request as u64, name: "t" }.encode().expect("encoded");
    for round in 0..MOST / AT_ONCE {
        (1..=AT_ONCE).for_each(|i| greedy.say(&get(round * AT_ONCE + i)));
        (0..AT_ONCE).for_each(|_| assert!(greedy.receive().is_some()));
    }
    assert_eq!(server.leases(), MOST as i64);
    greedy.say(&get(MOST + 1));
    let (answer, _) = greedy.receive().expect("an answer");
    match Message::decode(&answer) {
        Ok(Message::Refused { request: 65537, status, text }) => {
            assert_eq!(status, DEVX_BUSY.0);
            assert!(text.contains("holds 65536 things already"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    connect(&address("greedy")).expect("connected").tensor("t").expect("others are served");
    let some: Vec<_> = (1..=MAX_RELEASES as u64).collect();
    greedy.say(&Message::Release { leases: &leases(&some) }.encode().expect("encoded"));
    soon("some are given back", || server.leases() == (MOST - MAX_RELEASES) as i64);
    greedy.say(&get(MOST + 2));
    assert!(matches!(Message::decode(&greedy.receive().expect("an answer").0), Ok(Message::Given { .. })));
    drop(greedy);
    soon("its end gives all back", || server.leases() == 0);
}

/// More than the system has is refused without trying, because that would end other programs first.
#[test]
fn more_than_there_is_is_refused_at_once() {
    for bytes in [1 << 44, 1 << 60, isize::MAX as usize] {
        let error = crate::ipc::allocate(bytes).expect_err("nobody has so much");
        assert_eq!(error.status(), DEVX_OUT_OF_MEMORY);
        let wanted = format!("{bytes} bytes of shared memory could not be allocated: the system has ");
        assert!(error.message().starts_with(&wanted), "{error}");
    }
}

/// No exporter can pass for another one, whatever number it sends: its pools would be taken for the other's.
#[test]
fn exporters_are_told_apart_by_their_process() {
    use crate::ipc::client::told_apart;
    assert_eq!(told_apart(1, 2), told_apart(1, 2));
    assert_ne!(told_apart(1, 2), told_apart(1, 3));
    assert_ne!(told_apart(1, 2), told_apart(2, 2));
}

/// The system reports 0 for a process that it does not show: in another container, or if there is none.
#[test]
fn a_peer_that_the_system_does_not_show_has_no_process() {
    let nobody = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    assert_eq!(Credentials::of(nobody.as_fd()), Ok(Credentials { user: u32::MAX, process: 0 }));
    let (one, _other) = UnixStream::pair().expect("sockets");
    let (user, process) = (rustix::process::geteuid().as_raw(), std::process::id() as i32);
    assert_eq!(Credentials::of(one.as_fd()), Ok(Credentials { user, process }));
    let file = file("no-socket", 8).expect("a file");
    let error = Credentials::of(file.as_fd()).expect_err("no socket");
    assert!(error.status() == DEVX_SYSTEM && error.message().starts_with("getsockopt: "), "{error}");
}

/// Nobody can change the size of a file that was sealed for a reader.
#[test]
fn descriptors_in_files_are_sealed() {
    let fd = file_of(b"sealed").expect("a file");
    rustix::fs::ftruncate(&fd, 0).expect_err("sealed");
    rustix::fs::ftruncate(&fd, 100).expect_err("sealed");
    seal(&fd).expect_err("sealed for good");
}
