//! Two processes that exchange lines of text: a test, and the same test as a separate process playing another part.

use std::io::{BufRead, BufReader, Lines, Write, stdin, stdout};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use devexchange_core::ipc::Client;
use devexchange_core::{Batch, Error, Tensor};

use crate::patient;

/// Imports the exports of a test, in its other part or in the same one.
pub trait Importing {
    /// The tensor under a name.
    ///
    /// # Errors
    /// Those of the client.
    fn tensor(&self, name: &str) -> Result<Tensor, Error>;
    /// The batch under a name.
    ///
    /// # Errors
    /// Those of the client.
    fn batch(&self, name: &str) -> Result<Batch, Error>;
}

impl Importing for Client {
    fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        // SAFETY: no part of a test writes host memory while another one holds a slice of it.
        unsafe { self.import_tensor(name) }
    }

    fn batch(&self, name: &str) -> Result<Batch, Error> {
        // SAFETY: as above, and the batches of the tests are valid.
        unsafe { self.import_batch(name) }
    }
}

/// Names the part of a process; also marks its lines, because the test program prints others.
const PART: &str = "DEVX_PEER";

/// The part that this process plays; none in the test itself.
pub fn part() -> Option<String> {
    std::env::var(PART).ok()
}

/// The other process.
#[derive(Debug)]
pub struct Peer {
    child: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
}

impl Peer {
    /// Runs a test of this program in a part.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn start(test: &str, part: &str, variables: &[(&str, &str)]) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .envs(variables.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("run this program");
        let (to, from) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        Self { child, to, from: BufReader::new(from).lines() }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for this line of the process.
    ///
    /// # Panics
    /// If the process sends another line, or ends.
    pub fn expect(&mut self, wanted: &str) {
        loop {
            let line = self.from.next().unwrap_or_else(|| panic!("the peer ended before {wanted:?}")).expect("a line");
            if let Some((_, said)) = line.split_once(PART) {
                assert_eq!(said.trim(), wanted);
                return;
            }
        }
    }

    /// Sends a command and waits for the answer.
    ///
    /// # Panics
    /// Like [`Peer::expect`].
    pub fn tell(&mut self, command: &str, answer: &str) {
        self.send(command);
        self.expect(answer);
    }

    /// Sends a command that has no answer.
    ///
    /// # Panics
    /// If the process is gone.
    pub fn send(&mut self, command: &str) {
        writeln!(self.to, "{command}").expect("it listens");
    }

    /// Kills the process at once (`SIGKILL`), and waits until it is gone.
    ///
    /// # Panics
    /// If that fails.
    pub fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }

    /// Waits for the end of the process.
    ///
    /// # Panics
    /// If its test failed.
    pub fn end(mut self) {
        drop(self.to);
        let rest: Vec<_> = self.from.map_while(Result::ok).collect();
        let status = self.child.wait().expect("it ends");
        assert!(status.success(), "{status}: {rest:#?}");
    }
}

/// Runs one test of this program in its own process, to its end.
///
/// # Panics
/// If it cannot be started, or there is no such test: that process would end well and have tested nothing.
pub fn run(test: &str, variables: &[(&str, &str)]) -> Output {
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .envs(variables.iter().copied())
        .output()
        .expect("run this program");
    assert!(String::from_utf8_lossy(&output.stdout).contains("running 1 test\n"), "there is no test {test}");
    output
}

/// In the other process: sends a line.
pub fn say(line: &str) {
    println!("{PART} {line}");
    stdout().flush().expect("the parent listens");
}

/// In the other process: waits for a line, which must be this one.
///
/// # Panics
/// If another line comes.
pub fn ask(wanted: &str) {
    let line = stdin().lines().next().expect("the parent goes on").expect("a line");
    assert_eq!(line, wanted);
}

/// In the other process: answers lines until the line `last`.
///
/// # Panics
/// If the lines end before that.
pub fn commands(mut answer: impl FnMut(&str) -> &'static str, last: &str) {
    for line in stdin().lines() {
        let line = line.expect("a line");
        say(answer(&line));
        if line == last {
            return;
        }
    }
    panic!("the parent ended before {last:?}");
}

/// Waits until a condition holds.
///
/// # Panics
/// If that takes more than two minutes.
pub fn soon(what: &str, mut is: impl FnMut() -> bool) {
    let end = Instant::now() + patient(Duration::from_secs(120));
    while !is() {
        assert!(Instant::now() < end, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Runs `act` in a fork, which has a minute for it. Returns the wait status.
pub fn forked(act: impl FnOnce() -> bool) -> libc::c_int {
    let seconds = patient(Duration::from_secs(60)).as_secs() as libc::c_uint;
    // SAFETY: the child does no more than `act`, and ends without running handlers.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        // SAFETY: only ends the child if it waits for ever.
        unsafe { libc::alarm(seconds) };
        let failed = !act();
        // SAFETY: ends the child.
        unsafe { libc::_exit(i32::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: the child that was made above.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    status
}
