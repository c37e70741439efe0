//! Host memory shared between processes: the same bytes on both sides, given up when the importer releases it or dies,
//! valid when the exporter dies. The other process is this program again, playing the part that its first line names.
#![expect(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "the tests write into memory that they own")]

mod forks;
#[cfg(target_arch = "x86_64")]
mod interrupted;

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use devexchange_core::abi::types::{DEVX_CLOSED, DEVX_OUT_OF_MEMORY, DEVX_SYSTEM};
use devexchange_core::arrow::ArrayBuilder;
use devexchange_core::dlpack::Copying;
use devexchange_core::{Batch, DType, Device, Flags, Owner, Tensor, TensorDesc, ipc, ledger};
use devexchange_tests::peer::{Importing, Peer, ask, commands, part, say, soon};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Runs one test at a time, because the tests count what the whole process has.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn address(of: &str, process: u32) -> String {
    format!("@devexchange-ipc-{of}-{process}")
}

fn own(of: &str) -> String {
    address(of, std::process::id())
}

fn shared(values: &[i32]) -> Tensor {
    let tensor = ipc::allocate_tensor(DType::INT32, &[values.len() as i64]).expect("allocated");
    unsafe { tensor.data().cast::<i32>().copy_from_nonoverlapping(values.as_ptr(), values.len()) };
    tensor
}

fn batch(first: i64) -> Batch {
    let values = vec![first, first + 1, first + 2];
    let (offsets, text) = (vec![0_i32, 3, 3, 9], b"onesecond".to_vec());
    let table = ArrayBuilder::batch(3)
        .child(
            ArrayBuilder::new("n", "l", 3)
                .buffer(std::ptr::null())
                .buffer(values.as_ptr().cast())
                .metadata("unit", "m")
                .owner(Owner::new(values)),
        )
        .child(
            ArrayBuilder::new("t", "u", 3)
                .buffer(std::ptr::null())
                .buffer(offsets.as_ptr().cast())
                .buffer(text.as_ptr().cast())
                .owner(Owner::new((offsets, text))),
        );
    unsafe { table.build(Device::CPU) }.expect("built")
}

fn check_batch(batch: &Batch, first: i64) {
    let numbers = batch.column_named("n").expect("the column");
    assert_eq!(numbers.values::<i64>(), Ok(&[first, first + 1, first + 2][..]));
    assert_eq!(numbers.field().metadata().next(), Some((&b"unit"[..], &b"m"[..])));
    let texts = batch.column_named("t").expect("the column");
    assert_eq!([0, 1, 2].map(|row| texts.text(row)), [Ok("one"), Ok(""), Ok("second")]);
}

fn write(tensor: &Tensor, value: i32) {
    unsafe { tensor.data().cast::<i32>().write(value) };
}

/// How the memory at an address is mapped, according to the system.
fn mapped_as(address: usize) -> String {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("the maps");
    let hex = |text: &str| usize::from_str_radix(text, 16).expect("an address");
    let line = maps.lines().find(|line| {
        let (start, end) = line.split(' ').next().and_then(|range| range.split_once('-')).expect("a range");
        (hex(start)..hex(end)).contains(&address)
    });
    line.and_then(|line| line.split(' ').nth(1)).expect("a mapping").to_owned()
}

#[test]
fn both_ways_and_the_same_memory() {
    let _alone = alone();
    const NAME: &str = "both_ways_and_the_same_memory";
    if part().is_some() {
        return both_ways_peer();
    }
    let server = ipc::Server::bind(&own("both")).expect("bound");
    let (tensor, fixed) = (shared(&[1, 2, 3]), shared(&[7]));
    server.offer_tensor("tensor", &tensor, Copying::Never).expect("offered");
    server.offer_batch("batch", &batch(10), Copying::IfNeeded).expect("offered");
    let (data, device, dtype, strides) = (fixed.data(), Device::CPU, DType::INT32, None);
    let flags = Flags::READ_ONLY;
    let desc = TensorDesc { data, device, dtype, shape: &[1], strides, byte_offset: 0, flags };
    let fixed = unsafe { Tensor::from_raw_parts(&desc, Owner::new(fixed)) }.expect("read-only");
    server.offer_tensor("fixed", &fixed, Copying::Never).expect("offered");
    let mut peer = Peer::start(NAME, "importer and exporter", &[]);
    peer.expect("has all");
    let theirs = ipc::connect(&address("both", peer.id())).expect("connected");
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[100, 2, 3][..]), "what the importer wrote");
    write(&tensor, 200);
    peer.tell("look", "sees it");
    let (back, table) = (theirs.tensor("tensor").expect("a tensor"), theirs.batch("batch").expect("a batch"));
    assert_eq!(back.as_slice::<i32>(), Ok(&[4, 5][..]));
    check_batch(&table, 20);
    write(&back, 300);
    peer.tell("and yours", "sees that too");
    assert_eq!(server.leases(), 3);
    peer.tell("release", "released");
    soon("all is released", || server.leases() == 0);
    drop((back, table));
    peer.tell("all back?", "all back");
    peer.end();
}

fn both_ways_peer() {
    let server = ipc::Server::bind(&own("both")).expect("bound");
    let tensor = shared(&[4, 5]);
    server.offer_tensor("tensor", &tensor, Copying::Never).expect("offered");
    server.offer_batch("batch", &batch(20), Copying::IfNeeded).expect("offered");
    let parent = std::os::unix::process::parent_id();
    let client = ipc::connect(&address("both", parent)).expect("connected");
    let theirs = client.tensor("tensor").expect("a tensor");
    assert_eq!(theirs.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
    let table = client.batch("batch").expect("a batch");
    check_batch(&table, 10);
    let fixed = client.tensor("fixed").expect("a tensor");
    assert_eq!((fixed.as_slice::<i32>(), fixed.flags()), (Ok(&[7][..]), Flags::READ_ONLY));
    let column = table.column_named("n").expect("the column").values::<i64>().expect("numbers");
    assert_eq!(mapped_as(theirs.data().addr()), "rw-s");
    assert_eq!([mapped_as(column.as_ptr().addr()), mapped_as(fixed.data().addr())], ["r--s", "r--s"]);
    write(&theirs, 100);
    say("has all");
    commands(
        |command| match command {
            "look" => {
                assert_eq!(theirs.as_slice::<i32>(), Ok(&[200, 2, 3][..]));
                "sees it"
            }
            "and yours" => {
                assert_eq!(tensor.as_slice::<i32>(), Ok(&[300, 5][..]));
                "sees that too"
            }
            "release" => "released",
            other => panic!("{other}"),
        },
        "release",
    );
    drop((theirs, table, fixed));
    ask("all back?");
    soon("all is released", || server.leases() == 0);
    say("all back");
}

/// A tensor over shared memory, whose release is counted.
fn counted(released: &Arc<AtomicU32>) -> Tensor {
    let memory = ipc::allocate(64).expect("allocated");
    let count = Arc::clone(released);
    let owner = Owner::on_release(move || {
        drop(memory.owner);
        count.fetch_add(1, SeqCst);
    });
    let (data, device, dtype) = (memory.address, memory.device, DType::UINT8);
    let (shape, strides, flags) = (&[64][..], None, Flags::default());
    let desc = TensorDesc { data, device, dtype, shape, strides, byte_offset: 0, flags };
    unsafe { Tensor::from_raw_parts(&desc, owner) }.expect("a tensor")
}

#[test]
fn what_a_killed_importer_holds_is_released() {
    let _alone = alone();
    const NAME: &str = "what_a_killed_importer_holds_is_released";
    if part().is_some() {
        let client = ipc::connect(&address("killed", std::os::unix::process::parent_id())).expect("connected");
        let _held = (client.tensor("t").expect("imported"), client.tensor("u").expect("imported"));
        say("holds");
        return ask("never asked");
    }
    let released = Arc::new(AtomicU32::new(0));
    let server = ipc::Server::bind(&own("killed")).expect("bound");
    let tensor = counted(&released);
    ["t", "u"].iter().for_each(|name| server.offer_tensor(name, &tensor, Copying::Never).expect("offered"));
    drop(tensor);
    let mut peers = [Peer::start(NAME, "importer", &[]), Peer::start(NAME, "importer", &[])];
    peers.iter_mut().for_each(|peer| peer.expect("holds"));
    assert_eq!((server.withdraw("t"), server.withdraw("u")), (Ok(true), Ok(true)));
    assert_eq!((server.leases(), released.load(SeqCst)), (4, 0));
    let [first, second] = peers;
    first.kill();
    soon("the first one's are released", || server.leases() == 2);
    assert_eq!(released.load(SeqCst), 0);
    // The end of the server takes nothing from importers that hold something.
    drop(server);
    std::thread::sleep(std::time::Duration::from_millis(20));
    assert_eq!(released.load(SeqCst), 0);
    second.kill();
    soon("and then the memory", || released.load(SeqCst) == 1);
}

#[test]
fn what_a_killed_exporter_gave_stays_valid() {
    let _alone = alone();
    const NAME: &str = "what_a_killed_exporter_gave_stays_valid";
    if part().is_some() {
        let server = ipc::Server::bind(&own("exporter")).expect("bound");
        server.offer_tensor("t", &shared(&[1, 2, 3]), Copying::Never).expect("offered");
        server.offer_batch("b", &batch(5), Copying::Always).expect("offered");
        say("offers");
        return ask("never asked");
    }
    let mut peer = Peer::start(NAME, "exporter", &[]);
    peer.expect("offers");
    let client = ipc::connect(&address("exporter", peer.id())).expect("connected");
    let (tensor, table) = (client.tensor("t").expect("a tensor"), client.batch("b").expect("a batch"));
    peer.kill();
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
    check_batch(&table, 5);
    write(&tensor, 9);
    let error = client.tensor("t").expect_err("nobody is there");
    assert_eq!(error.status(), DEVX_CLOSED, "{error}");
    // Its memory can be exported again: it is shared memory as before.
    let server = ipc::Server::bind(&own("onwards")).expect("bound");
    server.offer_tensor("t", &tensor, Copying::Never).expect("a view");
    let again = ipc::connect(&own("onwards")).expect("connected").tensor("t").expect("imported");
    assert_eq!((again.as_slice::<i32>(), again.data()), (Ok(&[9, 2, 3][..]), tensor.data()));
}

/// The ledger counts each import; the exporter counts its leases.
#[test]
fn an_import_of_what_is_held_counts_as_an_import() {
    let _alone = alone();
    const NAME: &str = "an_import_of_what_is_held_counts_as_an_import";
    if part().is_some() {
        let client = ipc::connect(&address("again", std::os::unix::process::parent_id())).expect("connected");
        let live = || ledger::read().tensor_imports.live;
        let (first, files) = (client.tensor("t").expect("imported"), open_files());
        let second = client.tensor("t").expect("imported");
        assert_eq!((second.data(), live(), open_files()), (first.data(), 2, files));
        write(&second, 7);
        drop(first);
        assert_eq!((second.as_slice::<i32>(), live()), (Ok(&[7, 2][..]), 1));
        say("holds");
        ask("offered anew");
        let third = client.tensor("t").expect("imported");
        assert_eq!((third.as_slice::<i32>(), second.as_slice::<i32>()), (Ok(&[3, 4][..]), Ok(&[7, 2][..])));
        drop((second, third));
        assert_eq!(ledger::outstanding(), 0);
        say("released");
        return ask("end");
    }
    let server = ipc::Server::bind(&own("again")).expect("bound");
    let tensor = shared(&[1, 2]);
    server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
    let mut peer = Peer::start(NAME, "importer", &[]);
    peer.expect("holds");
    assert_eq!((server.leases(), tensor.as_slice::<i32>()), (1, Ok(&[7, 2][..])));
    server.offer_tensor("t", &shared(&[3, 4]), Copying::Never).expect("offered");
    peer.tell("offered anew", "released");
    soon("all is released", || server.leases() == 0);
    peer.send("end");
    peer.end();
}

fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("the descriptors").count()
}

/// Kilobytes of memory, by the system's name: `VmRSS:` is the memory in use, including shared memory; `VmSize:` is the
/// address space.
fn kilobytes(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("the status");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("the size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn a_thousand_exchanges_leave_nothing() {
    let _alone = alone();
    const NAME: &str = "a_thousand_exchanges_leave_nothing";
    if part().is_some() {
        return thousand_peer();
    }
    let server = ipc::Server::bind(&own("thousand")).expect("bound");
    let mut peer = Peer::start(NAME, "importer", &[]);
    peer.expect("connected");
    let mut before = None;
    for round in 0..11 {
        // Something new, a hundred times; the first round fills what is kept for reuse.
        for _ in 0..100 {
            let tensor = shared(&vec![round; 4096]);
            server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
            server.offer_batch("b", &batch(i64::from(round)), Copying::IfNeeded).expect("offered");
            peer.tell("import", "imported");
        }
        ["t", "b"].iter().for_each(|name| assert_eq!(server.withdraw(name), Ok(true)));
        soon("all is released", || server.leases() == 0);
        let now = (open_files(), ledger::outstanding(), kilobytes("VmRSS:"));
        let (files, owners, bytes) = *before.get_or_insert(now);
        assert_eq!((now.0, now.1), (files, owners), "round {round}");
        assert!(now.2 < bytes + 4096, "{} kB were {bytes}", now.2);
    }
    peer.tell("end", "flat");
    peer.end();
}

fn thousand_peer() {
    let client = ipc::connect(&address("thousand", std::os::unix::process::parent_id())).expect("connected");
    let before = (open_files(), ledger::outstanding());
    let mut after_first = 0;
    let mut count = 0;
    say("connected");
    commands(
        |command| {
            if command == "end" {
                assert_eq!((open_files(), ledger::outstanding()), before);
                assert!(kilobytes("VmRSS:") < after_first + 4096, "{} kB were {after_first}", kilobytes("VmRSS:"));
                return "flat";
            }
            let tensor = client.tensor("t").expect("a tensor");
            let table = client.batch("b").expect("a batch");
            let values = tensor.as_slice::<i32>().expect("numbers");
            check_batch(&table, i64::from(values.last().copied().expect("4096")));
            count += 1;
            if count == 100 {
                after_first = kilobytes("VmRSS:");
            }
            "imported"
        },
        "end",
    );
}

/// A process of the same user is let in. Where a process can change its user, one of another user is not, neither as an
/// importer nor as an exporter.
#[test]
fn who_may_import() {
    let _alone = alone();
    const NAME: &str = "who_may_import";
    let try_to = |address: &str| ipc::connect(address).and_then(|client| client.tensor("t").map(drop));
    let refused = |answer: Result<(), devexchange_core::Error>| {
        let error = answer.expect_err("refused");
        assert!(error.status() == DEVX_SYSTEM && error.message().contains("is a process of user"), "{error}");
    };
    if let Some(part) = part() {
        if part != "same" {
            // SAFETY: only the user of this process is changed.
            assert_eq!(unsafe { libc::setresuid(65534, 65534, 65534) }, 0);
        }
        if part == "exporter" {
            let server = ipc::Server::bind(&own("other")).expect("bound");
            server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
            say("offers");
            return ask("end");
        }
        let answer = try_to(&address("who", std::os::unix::process::parent_id()));
        return match part.as_str() {
            "another" => {
                refused(answer);
                say("refused");
            }
            _ => {
                answer.expect("imported");
                say("imported");
            }
        };
    }
    let server = ipc::Server::bind(&own("who")).expect("bound");
    server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
    let mut same = Peer::start(NAME, "same", &[]);
    same.expect("imported");
    same.end();
    // SAFETY: asks for the user of this process.
    if unsafe { libc::geteuid() } == 0 {
        let mut another = Peer::start(NAME, "another", &[]);
        another.expect("refused");
        another.end();
        let mut exporter = Peer::start(NAME, "exporter", &[]);
        exporter.expect("offers");
        refused(try_to(&address("other", exporter.id())));
        exporter.send("end");
        exporter.end();
    }
    soon("nothing is held", || server.leases() == 0);
}

/// Sets a limit of this process while something is done.
fn limited<T>(resource: libc::__rlimit_resource_t, to: u64, act: impl FnOnce() -> T) -> T {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the result.
    assert_eq!(unsafe { libc::getrlimit(resource, &mut before) }, 0);
    let limit = libc::rlimit { rlim_cur: to, ..before };
    // SAFETY: a limit of this process.
    assert_eq!(unsafe { libc::setrlimit(resource, &limit) }, 0);
    let done = act();
    // SAFETY: restores the previous limit.
    assert_eq!(unsafe { libc::setrlimit(resource, &before) }, 0);
    done
}

/// The system refuses more file descriptors, or more bytes of a file: the result is an error, and nothing is left over.
#[test]
fn what_the_system_refuses_is_an_error() {
    let _alone = alone();
    const NAME: &str = "what_the_system_refuses_is_an_error";
    if part().is_none() {
        // The limits belong to a process, so this test has its own.
        let server = ipc::Server::bind(&own("limits")).expect("bound");
        server.offer_tensor("t", &shared(&[1, 2, 3]), Copying::Never).expect("offered");
        let mut peer = Peer::start(NAME, "limited", &[]);
        peer.expect("done");
        peer.end();
        return soon("all is released", || server.leases() == 0);
    }
    let theirs = address("limits", std::os::unix::process::parent_id());
    let private = Tensor::from_vec(vec![1_i32; 16], &[16]).expect("a tensor");
    let round = || {
        let mut errors = 0;
        let mut note = |error: Option<devexchange_core::Error>| {
            if let Some(error) = error {
                assert!([DEVX_SYSTEM, DEVX_OUT_OF_MEMORY].contains(&error.status()), "{error}");
                assert!(!error.message().is_empty());
                errors += 1;
            }
        };
        note(ipc::allocate_tensor(DType::INT32, &[16]).err());
        note(ipc::export_tensor(&private, Copying::IfNeeded).err());
        match ipc::connect(&theirs) {
            Ok(client) => note(client.tensor("t").err()),
            Err(error) => note(Some(error)),
        }
        match ipc::Server::bind(&own("limited")) {
            Ok(server) => note(server.offer_tensor("t", &private, Copying::Always).err()),
            Err(error) => note(Some(error)),
        }
        errors
    };
    assert_eq!(round(), 0, "without a limit all is well");
    let before = (open_files(), ledger::outstanding());
    let highest = before.0 as u64 + 8;
    let (mut some, mut all) = (0, 0);
    for limit in 3..highest {
        let errors = limited(libc::RLIMIT_NOFILE, limit, round);
        some += u32::from(errors > 0);
        all += u32::from(errors == 4);
        soon("nothing is left", || (open_files(), ledger::outstanding()) == before);
    }
    assert!(some > all && all > 0, "{some} limits were met, {all} by every call");
    assert_eq!(round(), 0, "and all is well again");
    // The system sends a signal for it, which ends a process.
    let made = || [ipc::allocate(1 << 20).err(), ipc::export_tensor(&private, Copying::Always).err()];
    let errors = limited(libc::RLIMIT_FSIZE, 63, made);
    for (error, bytes) in errors.into_iter().zip([1 << 20, 64]) {
        let error = error.expect("too large");
        let said = format!(
            "{bytes} bytes of shared memory could not be allocated: the files of this process have at most 63 \
             (RLIMIT_FSIZE)"
        );
        assert_eq!((error.status(), error.message()), (DEVX_OUT_OF_MEMORY, &*said));
    }
    let room = (kilobytes("VmSize:") << 10) + (64 << 20);
    let error = limited(libc::RLIMIT_AS, room, || ipc::allocate(1 << 27)).expect_err("no addresses");
    let said = "134217728 bytes of shared memory could not be allocated: mmap: ";
    assert!(error.status() == DEVX_OUT_OF_MEMORY && error.message().starts_with(said), "{error}");
    soon("nothing is left", || (open_files(), ledger::outstanding()) == before);
    say("done");
}

/// File descriptors in messages that nobody has read, four times `limit` of them; they are closed with the sockets.
fn crowd(limit: u64) -> (UnixStream, UnixStream) {
    let (sender, receiver) = UnixStream::pair().expect("sockets");
    let sixteen = [sender.as_fd(); 16];
    for _ in 0..limit / 4 {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        assert!(control.push(SendAncillaryMessage::ScmRights(&sixteen)));
        let sent = sendmsg(&sender, &[IoSlice::new(b"x")], &mut control, SendFlags::DONTWAIT);
        if sent == Err(Errno::TOOMANYREFS) {
            break;
        }
        sent.expect("sent");
    }
    (sender, receiver)
}

/// A user can have only so many file descriptors in transit between processes, over all programs. Requests beyond that
/// are refused; the requester keeps the connection, and what it holds.
#[test]
fn who_asks_while_too_many_files_are_on_their_way_keeps_what_it_holds() {
    let _alone = alone();
    const NAME: &str = "who_asks_while_too_many_files_are_on_their_way_keeps_what_it_holds";
    const LIMIT: u64 = 64;
    if part().is_none() {
        let mut peer = Peer::start(NAME, "crowded", &[]);
        peer.expect("done");
        return peer.end();
    }
    // A privileged user has no limit, and the user of another run of this test has that run's files on their way.
    let user = 20_000 + std::process::id() % 40_000;
    // SAFETY: only the user of this process is changed.
    unsafe { libc::setresuid(user, user, user) };
    let server = ipc::Server::bind(&own("crowded")).expect("bound");
    for (name, value) in [("held", 1), ("more", 2)] {
        server.offer_tensor(name, &shared(&[value]), Copying::Never).expect("offered");
    }
    let client = ipc::connect(&own("crowded")).expect("connected");
    let held = client.tensor("held").expect("imported");
    let refused = |error: devexchange_core::Error| {
        assert!(error.status() == DEVX_SYSTEM && error.message().contains("sendmsg"), "{error}");
    };
    limited(libc::RLIMIT_NOFILE, LIMIT, || {
        let crowd = crowd(LIMIT);
        refused(client.tensor("more").expect_err("too many"));
        refused(ipc::connect(&own("crowded")).expect_err("too many"));
        assert_eq!((server.leases(), held.as_slice::<i32>()), (1, Ok(&[1][..])));
        drop(crowd);
        let more = client.tensor("more").expect("imported");
        assert_eq!((server.leases(), more.as_slice::<i32>()), (2, Ok(&[2][..])));
    });
    ipc::connect(&own("crowded")).expect("connected");
    say("done");
}
