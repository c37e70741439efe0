//! Waits that a program can break off when it has signals to handle.

#![forbid(unsafe_code)]

use std::cell::Cell;
use std::time::Duration;

use rustix::io::Errno;

use crate::error::{Error, Result};

/// How long it can take to notice a signal that arrives before the system call, or at another thread.
const OFTEN: Duration = Duration::from_millis(100);

thread_local! {
    static ASK: Cell<Option<fn() -> bool>> = const { Cell::new(None) };
}

/// Calls `act`, which may wait for another process on this thread. Meanwhile `ask` is called ten times a second and whenever a
/// signal arrives; when it returns true, the wait is broken off.
///
/// What is broken off fails with `DEVX_SYSTEM`, as if its time had passed.
pub fn interruptible<T>(ask: fn() -> bool, act: impl FnOnce() -> T) -> T {
    struct Before(Option<fn() -> bool>);
    impl Drop for Before {
        fn drop(&mut self) {
            ASK.set(self.0);
        }
    }
    let _before = Before(ASK.replace(Some(ask)));
    act()
}

/// Returns how long to wait at most before the next [`look`].
pub(super) fn slice(left: Duration) -> Duration {
    if ASK.get().is_some() { left.min(OFTEN) } else { left }
}

/// # Errors
/// `DEVX_SYSTEM` if the wait must be broken off.
pub(super) fn look() -> Result<()> {
    match ASK.get() {
        Some(ask) if ask() => Err(Error::system("poll", Errno::INTR)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::abi::types::{DEVX_BUSY, DEVX_CLOSED, DEVX_SYSTEM};
    use crate::ipc::Client;
    use crate::ipc::message::{MAX_MESSAGE, Message, PROTOCOL};
    use crate::ipc::socket::{Sent, Socket};
    use crate::ipc::tests::Importing;
    use crate::ipc::tests::{address, patient};
    use crate::ipc::wire::Writer;

    #[test]
    fn a_wait_is_broken_off_only_if_asked_for() {
        let _mute = Socket::listen(&address("mute")).expect("listening");
        let connect = |timeout| Client::connect(&address("mute"), Some(Duration::from_millis(timeout)));
        let failed = |connected: Result<Client>| connected.expect_err("nobody answers");
        let begin = Instant::now();
        let error = failed(interruptible(|| true, || connect(60_000)));
        assert_eq!((error.status(), begin.elapsed() < Duration::from_secs(30)), (DEVX_SYSTEM, true), "{error}");
        assert!(error.message().contains("Interrupted"), "{error}");
        for error in [failed(interruptible(|| false, || connect(300))), failed(connect(10))] {
            assert!(error.message().contains("did not answer within"), "{error}");
        }
        // The inner function counts, and afterwards the outer one again.
        interruptible(
            || true,
            || {
                assert!(failed(interruptible(|| false, || connect(10))).message().contains("did not answer within"));
                assert!(failed(connect(60_000)).message().contains("Interrupted"));
            },
        );
    }

    #[test]
    fn a_wait_sleeps_until_it_asks_again() {
        thread_local!(static ASKED: Cell<u32> = const { Cell::new(0) });
        fn count() -> bool {
            ASKED.set(ASKED.get() + 1);
            false
        }
        let _mute = Socket::listen(&address("sleeps")).expect("listening");
        let connect = || Client::connect(&address("sleeps"), Some(3 * OFTEN));
        interruptible(count, connect).expect_err("nobody answers");
        // Once more for each time that the wait begins or ends anew.
        assert!((1..10).contains(&ASKED.get()), "{}", ASKED.get());
    }

    /// A client of an exporter that accepts the connection and then does not answer.
    fn unanswered(of: &'static str) -> (Socket, Client) {
        let listener = Socket::listen(&address(of)).expect("listening");
        let connecting = std::thread::spawn(move || Client::connect(&address(of), Some(patient(20_000))).expect("in"));
        let exporter = loop {
            if let Some(accepted) = listener.accept().expect("accepting") {
                break accepted;
            }
        };
        let mut hello = Writer::with_room(MAX_MESSAGE).expect("memory");
        Message::Hello { protocol: PROTOCOL, exporter: 1 }.write(&mut hello);
        assert_eq!(exporter.send(hello.bytes().expect("written"), &[]), Ok(Sent::Yes));
        (exporter, connecting.join().expect("connected"))
    }

    #[test]
    fn who_asks_within_a_wait_is_refused() {
        thread_local!(static AGAIN: Cell<(Option<Client>, Option<Error>)> = const { Cell::new((None, None)) });
        fn ask_again() -> bool {
            let (client, _) = AGAIN.take();
            let refused = client.map(|client| client.tensor("t").expect_err("nobody answers"));
            AGAIN.set((None, refused));
            true
        }
        let (_exporter, client) = unanswered("within");
        AGAIN.set((Some(client.clone()), None));
        let error = interruptible(ask_again, || client.tensor("t")).expect_err("broken off");
        assert!(error.message().contains("Interrupted"), "{error}");
        let (_, refused) = AGAIN.take();
        assert_eq!(refused.expect("asked").status(), DEVX_BUSY);
    }

    #[test]
    fn a_wait_for_another_thread_is_broken_off() {
        let (exporter, client) = unanswered("turn");
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| client.tensor("t"));
            assert!(exporter.wait(rustix::event::PollFlags::IN, Instant::now() + patient(20_000)) == Ok(true));
            let begin = Instant::now();
            let error = interruptible(|| true, || client.tensor("u")).expect_err("broken off");
            assert!(error.message().contains("Interrupted"), "{error}");
            assert!(begin.elapsed() < patient(5_000));
            drop(exporter);
            assert_eq!(asking.join().expect("ended").expect_err("gone").status(), DEVX_CLOSED);
        });
    }
}
