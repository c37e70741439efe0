//! Repeated imports of what is held already: they share what is open, and ask again as soon as the offer may have changed.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use super::{Importing, Raw, address, duplicates, long, numbers_and_texts, shared, soon};
use crate::abi::dlpack::DLManagedTensorVersioned;
use crate::abi::types::{DEVX_CLOSED, DEVX_INVALID_ARGUMENT, DEVX_MISMATCH};
use crate::dlpack::{self, Copying, Request};
use crate::error::Result;
use crate::ipc::changes::{Changes, Watched};
use crate::ipc::memory::{file, seal};
use crate::ipc::message::{Message, PROTOCOL};
use crate::ipc::server::Server;
use crate::ipc::socket::Socket;
use crate::ipc::{Client, connect, export_tensor};
use crate::tensor::{Flags, Tensor};

#[test]
fn one_lease_stands_for_all_imports_until_the_last_is_released() {
    let server = Server::bind(&address("again")).expect("bound");
    server.offer_tensor("t", &shared(&[1, 2, 3]), Copying::Never).expect("offered");
    server.offer_batch("b", &numbers_and_texts(), Copying::Always).expect("offered");
    let client = connect(&address("again")).expect("connected");
    let tensors = [(); 3].map(|()| client.tensor("t").expect("imported"));
    let batches = [(); 2].map(|()| client.batch("b").expect("imported"));
    assert_eq!(server.leases(), 2);
    let [first, second, third] = tensors;
    drop((first, batches));
    soon("the batch is released", || server.leases() == 1);
    drop(second);
    assert_eq!((third.as_slice::<i32>(), server.leases()), (Ok(&[1, 2, 3][..]), 1));
    drop(third);
    soon("and then the tensor", || server.leases() == 0);
    // A connection that imports under ever new names must not grow for ever.
    let remembered = || format!("{client:?}").contains("Hold {");
    assert!(!remembered());
    let anew = client.tensor("t").expect("imported");
    assert_eq!((anew.as_slice::<i32>(), server.leases()), (Ok(&[1, 2, 3][..]), 1));
    assert!(remembered());
}

/// The copy that is made for an offer is shared by all importers: no consumer may take it for its own (DLPack 1.3,
/// `DLPACK_FLAG_BITMASK_IS_COPIED`).
#[test]
fn what_several_import_is_nobodys_own_copy() {
    let server = Server::bind(&address("several")).expect("bound");
    server.offer_tensor("t", &shared(&[1, 2, 3]), Copying::Always).expect("offered");
    let client = connect(&address("several")).expect("connected");
    let tensors = [(); 2].map(|()| client.tensor("t").expect("imported"));
    assert_eq!(tensors.each_ref().map(Tensor::flags), [Flags::default(); 2]);
    let given = tensors.map(|tensor| dlpack::export::<DLManagedTensorVersioned>(tensor, &Request::default()));
    let [first, second] = given.map(|given| given.expect("given").import().expect("taken"));
    assert_eq!((first.data(), [first.flags(), second.flags()]), (second.data(), [Flags::default(); 2]));
}

#[test]
fn what_is_offered_instead_is_imported_next() {
    let server = Server::bind(&address("instead")).expect("bound");
    server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
    let client = connect(&address("instead")).expect("connected");
    let held = client.tensor("t").expect("imported");
    for round in 2..50 {
        server.offer_tensor("t", &shared(&[round]), Copying::Never).expect("offered");
        let (next, again) = (client.tensor("t").expect("imported"), client.tensor("t").expect("imported"));
        assert_eq!((next.as_slice::<i32>(), again.data()), (Ok(&[round][..]), next.data()));
    }
    soon("only the first is held", || server.leases() == 1);
    assert_eq!(held.as_slice::<i32>(), Ok(&[1][..]));
}

#[test]
fn what_is_not_offered_any_more_is_refused() {
    let server = Server::bind(&address("withdrawn")).expect("bound");
    server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
    server.offer_tensor("u", &shared(&[2]), Copying::Never).expect("offered");
    let client = connect(&address("withdrawn")).expect("connected");
    let held = [client.tensor("t").expect("imported"), client.tensor("u").expect("imported")];
    assert_eq!(server.withdraw("t"), Ok(true));
    let error = client.tensor("t").expect_err("withdrawn");
    assert_eq!(error.status(), DEVX_INVALID_ARGUMENT);
    assert!(error.message().contains("nothing is offered under it"), "{error}");
    drop(server);
    let error = client.tensor("u").expect_err("closed");
    assert!(error.status() == DEVX_CLOSED && error.message().contains("the server is closed"), "{error}");
    drop(held);
}

#[test]
fn a_tensor_that_is_held_is_still_no_batch() {
    let server = Server::bind(&address("kinds")).expect("bound");
    server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
    server.offer_batch("b", &numbers_and_texts(), Copying::Always).expect("offered");
    let client = connect(&address("kinds")).expect("connected");
    let refused = || {
        [client.batch("t").expect_err("a tensor"), client.tensor("b").expect_err("a batch")]
            .map(|error| (error.status(), error.message().to_owned()))
    };
    let before = refused();
    assert_eq!(before.each_ref().map(|error| error.0), [DEVX_MISMATCH; 2]);
    let held = (client.tensor("t").expect("imported"), client.batch("b").expect("imported"));
    assert_eq!(refused(), before);
    soon("only what is held is leased", || server.leases() == 2);
    drop(held);
}

#[test]
fn each_connection_has_leases_of_its_own() {
    let server = Server::bind(&address("own")).expect("bound");
    server.offer_tensor("t", &shared(&[1]), Copying::Never).expect("offered");
    let clients = [(); 2].map(|()| connect(&address("own")).expect("connected"));
    let held = clients.each_ref().map(|client| client.tensor("t").expect("imported"));
    assert_eq!((server.leases(), held[0].data()), (2, held[1].data()));
    let [first, second] = held;
    drop(first);
    soon("one of them", || server.leases() == 1);
    assert_eq!(second.as_slice::<i32>(), Ok(&[1][..]));
}

/// Threads that import and release the same offer while it is renewed lose nothing and give nothing up twice.
#[test]
fn many_threads_import_and_release_the_same() {
    let server = Server::bind(&address("threads")).expect("bound");
    server.offer_tensor("t", &shared(&[0]), Copying::Never).expect("offered");
    let client = Client::connect(&address("threads"), Some(long())).expect("connected");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut newest = 0;
                for _ in 0..2000 {
                    let tensor = client.tensor("t").expect("imported");
                    let round = tensor.as_slice::<i32>().expect("a number")[0];
                    assert!(round >= newest, "{round} after {newest}");
                    newest = round;
                }
            });
        }
        for round in 1..100 {
            server.offer_tensor("t", &shared(&[round]), Copying::Never).expect("offered");
        }
    });
    soon("all is released", || server.leases() == 0);
}

/// An exporter that sends its hello with the file `with`, gives a tensor at each request, and reports the requests.
fn exporter(of: &str, with: Option<OwnedFd>) -> (Result<Client>, std::sync::mpsc::Receiver<u64>) {
    let listener = Socket::listen(&address(of)).expect("listening");
    let (sender, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let end = Instant::now() + long();
        let raw = loop {
            match listener.accept().expect("accepting") {
                Some(socket) => break Raw::new(socket),
                None => assert!(listener.wait(rustix::event::PollFlags::IN, end).expect("waited")),
            }
        };
        let hello = Message::Hello { protocol: PROTOCOL, exporter: 9 }.encode().expect("memory");
        let files: Vec<_> = with.iter().map(AsFd::as_fd).collect();
        raw.0.send(&hello, &files).expect("sent");
        let exported = export_tensor(&shared(&[1, 2, 3]), Copying::Never).expect("exported");
        while let Some((bytes, _)) = raw.receive() {
            if let Ok(Message::Get { request, .. }) = Message::decode(&bytes) {
                let given = Message::Given { request, descriptor: Some(exported.descriptor()) };
                let files = duplicates(&exported);
                let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
                sender.send(request).expect("told");
                raw.0.send(&given.encode().expect("memory"), &files).expect("sent");
            }
        }
    });
    (Client::connect(&address(of), Some(long())), asked)
}

#[test]
fn an_exporter_that_does_not_count_its_changes_is_asked_each_time() {
    let (client, asked) = exporter("uncounted", None);
    let client = client.expect("connected");
    let held = [(); 3].map(|()| client.tensor("t").expect("imported"));
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), [1, 2, 3]);
    drop(held);

    let (client, asked) =
        exporter("counted", Some(Changes::new().expect("a number").as_fd().try_clone_to_owned().expect("duplicated")));
    let client = client.expect("connected");
    let held = [(); 3].map(|()| client.tensor("t").expect("imported"));
    assert_eq!(asked.try_iter().collect::<Vec<_>>(), [1]);
    drop(held);
}

/// The file of the number could be truncated under its reader.
#[test]
fn a_number_of_changes_that_is_none_is_refused() {
    let sealed = |bytes| {
        let fd = file("test", bytes).expect("a file");
        seal(&fd).expect("sealed");
        fd
    };
    let cases = [
        (file("test", 8).expect("a file"), "its memory could be cut off"),
        (sealed(7), "region.bytes is 8, but the file has 7"),
        (sealed(4096), "region.bytes is 8, but the file has 4096"),
        (std::fs::File::open("/dev/zero").expect("opened").into(), "is no memory file"),
    ];
    for (i, (fd, text)) in cases.into_iter().enumerate() {
        let (client, _asked) = exporter(&format!("cut-number-{i}"), Some(fd));
        let error = client.expect_err("refused");
        assert!(error.status() == DEVX_INVALID_ARGUMENT && error.message().contains(text), "{error}");
    }
}

#[test]
fn importers_cannot_write_the_number_of_changes() {
    use std::os::fd::AsRawFd;
    let changes = Changes::new().expect("a number");
    let fd = changes.as_fd().try_clone_to_owned().expect("duplicated");
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    assert!(rustix::io::pwrite(&fd, &[1; 8], 0).is_err(), "through the descriptor");
    let anew = std::fs::OpenOptions::new().write(true).open(path).expect("a way around");
    assert!(rustix::io::pwrite(&anew, &[1; 8], 0).is_err(), "through one that was opened for writing");
    let watched = Watched::open(fd).expect("opened");
    assert_eq!(watched.read(), 0);
    changes.count();
    assert_eq!(watched.read(), 1);
}
