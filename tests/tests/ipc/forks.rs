//! Children of a fork, which have their parent's part of an exchange, but not its threads.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use devexchange_core::abi::types::DEVX_CLOSED;
use devexchange_core::dlpack::Copying;
use devexchange_core::{DType, Device, Flags, Owner, Tensor, TensorDesc, ipc};
use devexchange_tests::peer::{Importing, forked, soon};

use super::{alone, own, shared};

#[test]
fn a_fork_gives_nothing_up() {
    let _alone = alone();
    let server = ipc::Server::bind(&own("fork")).expect("bound");
    server.offer_tensor("t", &shared(&[1, 2]), Copying::Never).expect("offered");
    let client = ipc::connect(&own("fork")).expect("connected");
    let tensor = client.tensor("t").expect("imported");
    // SAFETY: the child only drops what it has and ends without running handlers.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let refused = client.tensor("t").is_err_and(|error| error.message().contains("fork"));
        let kept = server.withdraw("t").is_err_and(|error| error.message().contains("fork"));
        drop((tensor, client, server));
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(!(refused && kept))) };
    }
    let mut status = 0;
    // SAFETY: the child that was made above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0, "a wait status: exit code in the second byte, signal in the first");
    assert_eq!(server.leases(), 1);
    assert_eq!(tensor.as_slice::<i32>(), Ok(&[1, 2][..]));
    client.tensor("t").expect("still offered");
}

/// In a user namespace, all users that it does not know have the same number, which can be the process's own, too.
#[test]
fn a_user_without_a_number_is_not_taken_for_another() {
    const NO_NAMESPACE: i32 = 2;
    let _alone = alone();
    // SAFETY: the child has one thread until it has its namespace, and ends without running handlers.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let code = || {
            // SAFETY: a system call without memory.
            if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
                return NO_NAMESPACE;
            }
            let _server = ipc::Server::bind(&own("no-number")).expect("bound");
            let refused =
                ipc::connect(&own("no-number")).is_err_and(|error| error.message().contains("user namespace"));
            i32::from(!refused)
        };
        // SAFETY: ends the child.
        unsafe { libc::_exit(code()) };
    }
    let mut status = 0;
    // SAFETY: the child that was made above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    // Some systems do not let every process make a user namespace.
    assert!(status == 0 || status == NO_NAMESPACE << 8, "a wait status: {status:#x}");
}

/// The thread of a server does not exist in a fork. Another thread can take its place there, and nobody else may detach
/// that thread.
#[test]
fn a_fork_keeps_its_own_threads() {
    let _alone = alone();
    let mut server = Some(ipc::Server::bind(&own("detached")).expect("bound"));
    let status = forked(|| {
        // One of them gets the stack of the former thread.
        let threads: Vec<_> = (0..8).map(|value| std::thread::spawn(move || value)).collect();
        drop(server.take());
        threads.into_iter().enumerate().all(|(value, thread)| thread.join().is_ok_and(|got| got == value))
    });
    assert_eq!(status, 0, "a wait status");
}

/// What is closed here is closed for the peers, although a fork has the sockets open, too.
#[test]
fn who_is_connected_sees_an_end_although_a_fork_lives() {
    let _alone = alone();
    let server = ipc::Server::bind(&own("ends")).expect("bound");
    server.offer_tensor("t", &shared(&[1, 2]), Copying::Never).expect("offered");
    let connect = || ipc::Client::connect(&own("ends"), Some(Duration::from_secs(60))).expect("connected");
    let (held, client) = (connect(), connect());
    let tensor = held.tensor("t").expect("imported");
    // SAFETY: the child waits for its end.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let begin = Instant::now();
    drop((tensor, held));
    soon("all is released", || server.leases() == 0);
    drop(server);
    let error = client.tensor("t").expect_err("closed");
    let again = ipc::connect(&own("ends")).expect_err("nobody listens");
    let took = begin.elapsed();
    // SAFETY: the child that was made above, which is ended.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    assert_eq!(error.status(), DEVX_CLOSED, "{error}");
    assert!(again.message().contains("refused"), "{again}");
    assert!(took < Duration::from_secs(30), "{took:?}");
}

/// Who is not admitted yet sees the end as well.
#[test]
fn who_waits_to_be_admitted_sees_an_end_although_a_fork_lives() {
    let _alone = alone();
    let server = ipc::Server::bind(&own("waits")).expect("bound");
    let memory = shared(&[1, 2]);
    let ((tell_busy, busy), (tell_go_on, go_on)) = (channel(), channel());
    let desc = TensorDesc {
        data: memory.data(),
        device: Device::CPU,
        dtype: DType::INT32,
        shape: &[2],
        strides: None,
        byte_offset: 0,
        flags: Flags::default(),
    };
    // Its release keeps the server's thread busy.
    let owner = Owner::on_release(move || {
        tell_busy.send(()).expect("heard");
        go_on.recv().expect("told");
        drop(memory);
    });
    // SAFETY: the owner keeps the memory.
    let slow = unsafe { Tensor::from_raw_parts(&desc, owner) }.expect("made");
    server.offer_tensor("t", &slow, Copying::Never).expect("offered");
    drop(slow);
    let first = ipc::Client::connect(&own("waits"), Some(Duration::from_secs(60))).expect("connected");
    let held = first.tensor("t").expect("imported");
    server.withdraw("t").expect("withdrawn");
    drop(held);
    busy.recv().expect("told");
    let late = std::thread::spawn(|| {
        let begin = Instant::now();
        (ipc::Client::connect(&own("waits"), Some(Duration::from_secs(60))).map(drop), begin.elapsed())
    });
    std::thread::sleep(Duration::from_millis(100));
    // SAFETY: the child waits for its end.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        loop {
            std::thread::sleep(Duration::from_secs(1));
        }
    }
    let closing = std::thread::spawn(move || drop(server));
    std::thread::sleep(Duration::from_millis(100));
    tell_go_on.send(()).expect("heard");
    closing.join().expect("closed");
    let (connected, took) = late.join().expect("ended");
    // SAFETY: the child that was made above, which is ended.
    unsafe { libc::kill(pid, libc::SIGKILL) };
    // SAFETY: as above.
    unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    assert_eq!(connected.expect_err("closed").status(), DEVX_CLOSED);
    assert!(took < Duration::from_secs(30), "{took:?}");
}

#[test]
fn a_fork_shares_memory_whatever_other_threads_do() {
    let _alone = alone();
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(SeqCst) {
                drop(ipc::allocate(64).expect("allocated"));
            }
        });
        let ended: Vec<_> = (0..200).map(|_| forked(|| ipc::allocate(64).is_ok())).collect();
        over.store(true, SeqCst);
        assert!(ended.iter().all(|&status| status == 0), "wait statuses: {ended:?}");
    });
}
