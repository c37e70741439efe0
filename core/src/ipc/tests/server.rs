//! Servers and their clients: addresses, names, offers, releases, and ends.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::{Importing, address, long, numbers_and_texts, shared, soon};
use crate::abi::types::*;
use crate::arrow::builder::ArrayBuilder;
use crate::device::Device;
use crate::dlpack::Copying;
use crate::error::Error;
use crate::fork::tests::without_children;
use crate::ipc::credentials::Credentials;
use crate::ipc::server::Server;
use crate::ipc::socket::Socket;
use crate::ipc::{Client, connect};
use crate::memory::Owner;
use crate::tensor::{Flags, Tensor, TensorDesc};

#[test]
fn a_tensor_is_the_same_memory_in_all_its_imports() {
    let server = Server::bind(&address("same")).expect("bound");
    let tensor = shared(&[1, 2, 3]);
    server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
    let client = connect(&address("same")).expect("connected");
    let (first, second) = (client.tensor("t").expect("imported"), client.tensor("t").expect("again"));
    // In the process that made the memory, it is not even mapped again.
    assert_eq!((first.data(), second.data()), (tensor.data(), tensor.data()));
    assert_eq!(server.leases(), 1);
    drop(first);
    assert_eq!((server.withdraw("t"), server.withdraw("t")), (Ok(true), Ok(false)));
    let error = client.tensor("t").expect_err("withdrawn");
    assert!(error.message().contains("name is \"t\": nothing is offered under it"), "{error}");
    drop((server, client));
    assert_eq!(second.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
}

#[test]
fn an_importer_without_a_timeout_waits() {
    let server = Server::bind(&address("no-timeout")).expect("bound");
    server.offer_tensor("t", &shared(&[1, 2]), Copying::Never).expect("offered");
    let client = Client::connect(&address("no-timeout"), None).expect("connected");
    assert_eq!(client.tensor("t").expect("imported").as_slice::<i32>(), Ok(&[1, 2][..]));
}

#[test]
fn only_the_same_user_is_let_in() {
    let own = rustix::process::geteuid().as_raw();
    let of = |user| Credentials { user, process: 0 };
    of(own).require_own_user().expect("the same");
    let error = of(own + 1).require_own_user().expect_err("another");
    assert!(error.message().contains(&format!("user {}, not of user {own}", own + 1)), "{error}");
}

#[test]
fn an_exporter_that_accepts_nobody_is_late() {
    let listener = Socket::listen(&address("full")).expect("listening");
    let mut waiting = Vec::new();
    let error = loop {
        match Socket::connect(&address("full"), Instant::now()) {
            Ok(socket) => waiting.push(socket),
            Err(error) => break error,
        }
        assert!(waiting.len() < 10_000, "no end");
    };
    assert!(error.status() == DEVX_NOT_READY && error.message().contains("accepted no connection"), "{error}");
    let error = Client::connect(&address("full"), Some(Duration::from_millis(10))).expect_err("full");
    assert_eq!(error.status(), DEVX_NOT_READY, "{error}");
    drop(listener);
}

#[test]
fn addresses_and_names_are_checked() {
    let _children = without_children();
    for bad in ["", "@", &"x".repeat(108), &format!("@{}", "x".repeat(108))] {
        let error = Server::bind(bad).expect_err("no address");
        assert!(error.message().contains(&format!("address is {bad:?}")), "{error}");
    }
    let longest = std::env::temp_dir().join(format!("devx-ipc-{}-{}", std::process::id(), "x".repeat(107)));
    let longest = &longest.to_str().expect("UTF-8")[..107];
    drop(Server::bind(longest).expect("bound"));
    let server = Server::bind(&address("names")).expect("bound");
    let error = Server::bind(&address("names")).expect_err("in use");
    assert!(error.status() == DEVX_SYSTEM && error.errno() != 0 && error.message().contains("bind"), "{error}");
    let client = connect(&address("names")).expect("connected");
    let too_long = "x".repeat(256);
    for (bad, status, text) in [
        ("", DEVX_INVALID_ARGUMENT, "name has 0 bytes"),
        (&too_long, DEVX_INVALID_ARGUMENT, "name has 256 bytes: between 1 and 255"),
        ("a\0b", DEVX_INVALID_TEXT, "name is \"a\\0b\": there is a NUL byte at 1"),
    ] {
        let offered = server.offer_tensor(bad, &shared(&[1]), Copying::Never).expect_err("no name");
        let offered_batch = server.offer_batch(bad, &numbers_and_texts(), Copying::Always).expect_err("no name");
        let asked = client.tensor(bad).expect_err("no name");
        for error in [offered, offered_batch, asked] {
            assert!(error.status() == status && error.message().contains(text), "{error}");
        }
    }
    let error = connect("@devexchange-nobody-is-here").expect_err("nobody");
    assert!(error.message().contains("connect: "), "{error}");
    let directory = std::env::temp_dir().join(format!("devx-ipc-{}", std::process::id()));
    let path = directory.to_str().expect("UTF-8");
    let named = Server::bind(path).expect("bound");
    connect(path).expect("connected");
    let error = Server::bind(path).expect_err("in use");
    assert!(!error.message().contains("is left"), "{error}");
    drop(named);
    assert!(!directory.exists(), "the file of the socket is gone");
    // The file that a killed program leaves.
    drop(std::os::unix::net::UnixListener::bind(path).expect("bound"));
    let error = Server::bind(path).expect_err("left");
    let says = format!("address {path:?}: bind: ");
    assert!(
        error.message().starts_with("the file is left of a program that is gone, and has to be removed: "),
        "{error}"
    );
    assert!(error.message().contains(&says), "{error}");
    std::fs::remove_file(path).expect("removed");
}

/// Descriptors of this process, other than the first three, that a program it starts would get, too.
fn inheritable() -> Vec<i32> {
    let all = std::fs::read_dir("/proc/self/fd").expect("the descriptors");
    let numbers = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let is_inheritable = |fd: &i32| {
        // SAFETY: only the flags of the descriptor are read, which fails if it is closed meanwhile.
        let flags = unsafe { libc::fcntl(*fd, libc::F_GETFD) };
        *fd > 2 && flags >= 0 && flags & libc::FD_CLOEXEC == 0
    };
    numbers.filter(is_inheritable).collect()
}

#[test]
fn no_descriptor_goes_to_programs_that_this_one_starts() {
    let before = inheritable();
    let path = std::env::temp_dir().join(format!("devx-ipc-exec-{}", std::process::id()));
    let path = path.to_str().expect("UTF-8");
    let server = Server::bind(path).expect("bound");
    let tensor = shared(&[1, 2]);
    server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
    server.offer_batch("b", &numbers_and_texts(), Copying::Always).expect("offered");
    let client = connect(path).expect("connected");
    let imported = (client.tensor("t").expect("imported"), client.batch("b").expect("imported"));
    assert_eq!(inheritable(), before);
    drop((imported, client, server));
}

/// The error must not advise to remove a file that is not a socket, although nobody listens there.
#[test]
fn a_file_that_is_no_socket_is_not_a_server_that_is_gone() {
    let file = std::env::temp_dir().join(format!("devx-ipc-file-{}", std::process::id()));
    std::fs::write(&file, "of somebody else").expect("written");
    let file = file.to_str().expect("UTF-8");
    for path in [file, "/tmp", "/dev/null"] {
        let error = Server::bind(path).expect_err("in use");
        let said = format!("there is a file that is no socket: address {path:?}: bind: ");
        assert!(error.status() == DEVX_SYSTEM && error.message().starts_with(&said), "{error}");
    }
    assert_eq!(std::fs::read(file).expect("still there"), b"of somebody else");
    std::fs::remove_file(file).expect("removed");
}

/// A client that asks while a server ends is told that it has ended, not that there was never such an offer.
#[test]
fn who_asks_a_server_that_ends_is_told_so() {
    for i in 0..300 {
        // A new address each time: a program that another test starts has this process's sockets open for a moment.
        let address = address(&format!("ending-{i}"));
        let server = Server::bind(&address).expect("bound");
        server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
        let client = connect(&address).expect("connected");
        client.tensor("t").expect("offered");
        let asking = std::thread::spawn(move || {
            loop {
                if let Err(error) = client.tensor("t") {
                    return error;
                }
            }
        });
        drop(server);
        let error = asking.join().expect("ended");
        assert_eq!(error.status(), DEVX_CLOSED, "{error}");
    }
}

/// A release on the thread of a server may be what ends another server. Its address is free then, as on any other thread.
#[test]
fn a_server_that_ends_on_the_thread_of_another_one_frees_its_address() {
    let _children = without_children();
    let server = Server::bind(&address("ends-another")).expect("bound");
    let client = connect(&address("ends-another")).expect("connected");
    for i in 0..100 {
        let ends = address(&format!("ended-{i}"));
        let (memory, other, (tell, told)) = (shared(&[1]), Server::bind(&ends).expect("bound"), channel());
        let desc = TensorDesc {
            data: memory.data(),
            device: Device::CPU,
            dtype: memory.dtype(),
            shape: &[1],
            strides: None,
            byte_offset: 0,
            flags: Flags::READ_ONLY,
        };
        let owner = Owner::on_release(move || {
            drop((memory, other));
            let _ = tell.send(Socket::listen(&ends).map(drop));
        });
        // SAFETY: the owner keeps the memory.
        let tensor = unsafe { Tensor::from_raw_parts(&desc, owner) }.map_err(Error::from).expect("a tensor");
        server.offer_tensor("t", &tensor, Copying::Never).expect("offered");
        drop(tensor);
        let imported = client.tensor("t").expect("imported");
        assert_eq!(server.withdraw("t"), Ok(true));
        drop(imported);
        told.recv_timeout(long()).expect("released").expect("the address is free");
    }
}

/// If another file has the name of the socket's file when the server ends, that file stays.
#[test]
fn a_server_removes_its_own_file_only() {
    let directory = std::env::temp_dir().join(format!("devx-ipc-own-{}", std::process::id()));
    std::fs::create_dir(&directory).expect("a directory");
    let path = directory.join("socket");
    let address = path.to_str().expect("UTF-8");
    let (first, moved) = (Server::bind(address).expect("bound"), directory.join("moved"));
    std::fs::remove_file(&path).expect("removed");
    let second = Server::bind(address).expect("bound in its place");
    drop(first);
    connect(address).expect("the second one is still there");
    std::fs::create_dir(&moved).expect("a directory");
    std::fs::rename(&path, moved.join("socket")).expect("moved");
    std::fs::write(&path, "of somebody else").expect("written");
    drop(second);
    assert!(path.exists());
    std::fs::remove_file(&path).expect("removed");
    // The file is removed from its original directory, even if that was renamed.
    let third = Server::bind(address).expect("bound");
    let renamed = directory.with_extension("renamed");
    std::fs::rename(&directory, &renamed).expect("renamed");
    drop(third);
    assert!(!renamed.join("socket").exists());
    std::fs::remove_dir_all(&renamed).expect("removed");
}

#[test]
fn long_descriptors_go_as_files() {
    let server = Server::bind(&address("long")).expect("bound");
    let numbers = vec![1_i64, 2, 3];
    let mut table = ArrayBuilder::batch(3);
    for i in 0..600 {
        let name = format!("a column with a name that is not short at all, and the number {i}");
        table = table.child(ArrayBuilder::new(&name, "l", 3).buffer(std::ptr::null()).buffer(numbers.as_ptr().cast()));
    }
    // SAFETY: each column is the vector, which has three values and belongs to the owner.
    let batch = unsafe { table.owner(Owner::new(numbers)).build(Device::CPU) }.expect("built");
    server.offer_batch("b", &batch, Copying::IfNeeded).expect("offered");
    let imported = connect(&address("long")).expect("connected").batch("b").expect("imported");
    assert_eq!((imported.n_columns(), imported.length()), (600, 3));
    assert_eq!(imported.column(599).expect("there").values::<i64>(), Ok(&[1, 2, 3][..]));
}

/// More releases at once than a socket has room for: none is lost, and nobody waits.
#[test]
fn many_releases_at_once_all_arrive() {
    let server = Server::bind(&address("many")).expect("bound");
    server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
    let client = connect(&address("many")).expect("connected");
    // A new offer makes the importer ask again.
    let anew = |_| {
        server.offer_tensor("u", &shared(&[2]), Copying::Never).expect("offered");
        client.tensor("t").expect("imported")
    };
    let held: Vec<_> = (0..3000).map(anew).collect();
    assert_eq!(server.leases(), 3000);
    drop(held);
    soon("all are released", || server.leases() == 0);
}
