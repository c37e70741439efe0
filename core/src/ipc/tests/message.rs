//! Messages as bytes, and peers that send nonsense.

use std::os::fd::AsFd;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::{Importing, Raw, address, connect_impatient, leases, long, patient, shared, soon};
use crate::abi::types::{DEVX_CLOSED, DEVX_DEVICE};
use crate::dlpack::Copying;
use crate::ipc::memory::file_of;
use crate::ipc::message::{MAX_MESSAGE, MAX_NAME, Message, PROTOCOL, RELEASE};
use crate::ipc::server::Server;
use crate::ipc::socket::{Received, Room, Sent, Socket};
use crate::ipc::{Client, connect, export_tensor};

#[test]
fn messages_come_out_as_they_went_in() {
    let given_up = leases(&[1, u64::MAX]);
    let all = [
        Message::Hello { protocol: 1, exporter: 77 },
        Message::Get { request: 5, name: "näme" },
        Message::Release { leases: &given_up },
        Message::Given { request: 1, descriptor: Some(b"bytes") },
        Message::Given { request: 1, descriptor: None },
        Message::Refused { request: 1, status: 5, text: "why" },
    ];
    for message in &all {
        let bytes = message.encode().expect("encoded");
        assert_eq!(Message::decode(&bytes).as_ref(), Ok(message));
        assert_eq!(bytes.starts_with(&RELEASE), matches!(message, Message::Release { .. }));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 0x81;
            // Never a panic, whatever the bytes mean now.
            assert_ne!(Message::decode(&changed).as_ref(), Ok(message));
            let _ = Message::decode(&bytes[..at]);
        }
    }
    Message::decode(&Message::Release { leases: &leases(&[0; 257]) }.encode().expect("encoded")).expect_err("too many");
    let long = "x".repeat(5000);
    let get = |name| Message::Get { request: 1, name }.encode().expect("encoded");
    Message::decode(&get(&long[..MAX_NAME])).expect("as long as a name may be");
    let longer = get(&long[..=MAX_NAME]);
    let error = Message::decode(&longer).expect_err("longer than a name may be");
    assert!(error.message().contains("name has 256 bytes: more than 255"), "{error}");
    let refusal = Message::Refused { request: 1, status: 5, text: &long }.encode().expect("encoded");
    assert!(refusal.len() < 1200);
}

/// The descriptors are not offered with the next message either.
#[test]
fn file_descriptors_of_a_message_that_is_too_long_are_closed() {
    let listener = Socket::listen(&address("too-long")).expect("listens");
    let sender = Socket::connect(&address("too-long"), Instant::now() + long()).expect("connected");
    let receiver = listener.accept().expect("accepts").expect("a peer");
    let mut room = Room::new().expect("memory");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    assert_eq!(sender.send(&[0; MAX_MESSAGE + 1], &[writer.as_fd()]), Ok(Sent::Yes));
    drop(writer);
    let error = receiver.receive(&mut room).expect_err("too long");
    assert!(error.message().contains("a message has more than"), "{error}");
    assert_eq!(room.last().1.count(), 0);
    // The pipe ends, because nobody else has its other end.
    assert_eq!(std::io::Read::read(&mut &reader, &mut [0]).expect("read"), 0);
    assert_eq!(sender.send(b"next", &[]), Ok(Sent::Yes));
    assert!(matches!(receiver.receive(&mut room), Ok(Received::Message)));
    let (bytes, fds) = room.last();
    assert_eq!((bytes, fds.count()), (&b"next"[..], 0));
}

#[test]
fn an_importer_that_talks_nonsense_is_cut_off_and_nobody_else() {
    let server = Server::bind(&address("nonsense")).expect("bound");
    server.offer_tensor("t", &shared(&[1, 2, 3]), Copying::Never).expect("offered");
    let good = connect(&address("nonsense")).expect("connected");
    let get = Message::Get { request: 1, name: "t" }.encode().expect("encoded");
    let mut cases: Vec<Vec<u8>> = (1..get.len()).map(|at| get[..at].to_vec()).filter(|cut| cut.len() < 16).collect();
    for at in 0..8 {
        let mut changed = get.clone();
        changed[at] ^= 0x40;
        cases.push(changed);
    }
    cases.push(vec![0xff; MAX_MESSAGE]);
    cases.push(vec![0; MAX_MESSAGE + 1]);
    cases.push(Message::Hello { protocol: 1, exporter: 1 }.encode().expect("encoded"));
    for nonsense in cases {
        let raw = Raw::connect("nonsense");
        raw.say(&get);
        assert!(raw.receive().is_some(), "the tensor");
        raw.say(&nonsense);
        assert!(raw.receive().is_none(), "{nonsense:?}");
        soon("what it held is released", || server.leases() == 0);
    }
    // Leases that do not belong to the importer, or no longer do, are ignored; so are file descriptors that come with them.
    let raw = Raw::connect("nonsense");
    let held = good.tensor("t").expect("imported");
    raw.say(&Message::Release { leases: &leases(&[1, 1, 0, u64::MAX]) }.encode().expect("encoded"));
    let file = file_of(b"bytes").expect("a file");
    assert_eq!(raw.0.send(&get, &[file.as_fd()]), Ok(Sent::Yes));
    assert!(raw.receive().is_some());
    assert_eq!(server.leases(), 2);
    drop(raw);
    soon("its end releases it", || server.leases() == 1);
    assert_eq!(held.as_slice::<i32>(), Ok(&[1, 2, 3][..]));
}

/// An exporter that answers a request as it is told to, and an importer that waits for `timeout`.
fn fake(of: &str, timeout: Duration, answers: impl FnOnce(&Raw, u64) + Send + 'static) -> Client {
    let listener = Socket::listen(&address(of)).expect("listening");
    let thread = std::thread::spawn(move || {
        let end = Instant::now() + long();
        loop {
            let Some(socket) = listener.accept().expect("accepting") else {
                assert!(listener.wait(rustix::event::PollFlags::IN, end).expect("waited"));
                continue;
            };
            let raw = Raw::new(socket);
            let _ = raw.0.send(&Message::Hello { protocol: PROTOCOL, exporter: 9 }.encode().expect("encoded"), &[]);
            // An importer that did not wait for the hello connects again.
            let Some((bytes, _)) = raw.receive() else { continue };
            return match Message::decode(&bytes) {
                Ok(Message::Get { request, .. }) => answers(&raw, request),
                other => panic!("{other:?}"),
            };
        }
    });
    drop(thread);
    connect_impatient(&address(of), timeout)
}

/// A thread of a C program can do this while another thread imports.
#[test]
fn an_import_goes_on_when_the_handle_is_released_meanwhile() {
    let ((tell_asked, asked), (tell_released, released)) = (channel(), channel::<()>());
    let client = fake("released", long(), move |raw, request| {
        tell_asked.send(()).expect("heard");
        released.recv().expect("told");
        let text = "after the release";
        raw.say(&Message::Refused { request, status: DEVX_DEVICE.0, text }.encode().expect("encoded"));
    });
    let handle = client.into_raw().expose_provenance();
    let importing = std::thread::spawn(move || {
        // SAFETY: not released before the import has begun.
        let client = unsafe { Client::borrow_raw(std::ptr::with_exposed_provenance_mut(handle)) };
        client.tensor("t").expect_err("refused")
    });
    asked.recv().expect("told");
    // SAFETY: from `into_raw`, and taken back once.
    drop(unsafe { Client::from_raw(std::ptr::with_exposed_provenance_mut(handle)) });
    tell_released.send(()).expect("heard");
    let error = importing.join().expect("ended");
    assert!(error.status() == DEVX_DEVICE && error.message().contains("after the release"), "{error}");
}

#[test]
fn an_exporter_that_talks_nonsense_is_refused() {
    let (long, short) = (long(), patient(300));
    let exported = export_tensor(&shared(&[1, 2, 3]), Copying::Never).expect("exported");
    let descriptor = exported.descriptor().to_vec();
    let error = fake("altered-tensor", long, {
        let mut altered = descriptor.clone();
        altered[60] ^= 1;
        move |raw, request| raw.say(&Message::Given { request, descriptor: Some(&altered) }.encode().expect("encoded"))
    })
    .tensor("t")
    .expect_err("altered");
    assert!(error.message().contains("checksum is"), "{error}");

    // The file is missing; the lease is given back all the same.
    let (sender, released) = std::sync::mpsc::channel();
    let error = fake("cut", long, move |raw, request| {
        raw.say(&Message::Given { request, descriptor: Some(&descriptor) }.encode().expect("encoded"));
        sender.send(raw.receive().expect("a release").0).expect("sent");
    })
    .tensor("t")
    .expect_err("no file");
    assert!(error.message().contains("there are 0 file descriptors"), "{error}");
    let released = released.recv_timeout(long).expect("released");
    assert_eq!(Message::decode(&released), Ok(Message::Release { leases: &leases(&[1]) }));

    // An answer to another request, and no answer to this one.
    let error = fake("replayed", short, move |raw, request| {
        let bytes = exported.descriptor();
        let fds: Vec<_> = exported.files().iter().map(|fd| fd.as_fd()).collect();
        let message = Message::Given { request: request + 7, descriptor: Some(bytes) }.encode().expect("encoded");
        assert_eq!(raw.0.send(&message, &fds), Ok(Sent::Yes));
        // No answer comes until the importer is gone.
        while raw.receive().is_some() {}
    })
    .tensor("t")
    .expect_err("replayed");
    assert!(error.message().contains("did not answer within"), "{error}");

    let error = fake("rude", long, |raw, _| raw.say(b"who is there?")).tensor("t").expect_err("rude");
    assert!(error.message().contains("the peer does not speak the protocol of devexchange"), "{error}");
    let error = fake("gone", long, |_, _| {}).tensor("t").expect_err("gone");
    assert_eq!(error.status(), DEVX_CLOSED, "{error}");
}
