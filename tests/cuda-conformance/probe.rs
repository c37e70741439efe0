//! A question to a driver: how it is asked, and how its answer is judged.

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::answer::{Answer, SKIPPED};
use crate::measured::Machine;
use crate::scene;

/// The beginning of an answer in the output of the asking process. All other lines are output of the driver.
pub(crate) const ANSWER: &str = "answer: ";

/// How long a question may take. After that, the answer is that the driver hangs.
const PATIENCE: Duration = Duration::from_secs(40);

/// A question.
pub(crate) struct Probe {
    /// `theme.question`.
    pub(crate) name: &'static str,
    /// The question, in words.
    pub(crate) asks: &'static str,
    /// The documented answer or, where nothing is documented, the believed one.
    pub(crate) expected: &'static str,
    /// Other answers that a real driver may give, on which nothing here relies.
    pub(crate) allowed: &'static [&'static str],
    pub(crate) simulated: Simulated,
    /// Whether the question is asked without `cuInit` and a current context.
    bare: bool,
    run: fn() -> Answer,
}

/// What the simulated driver answers.
#[derive(Clone, Copy)]
pub(crate) enum Simulated {
    /// The expected answer.
    Same,
    /// A different answer, on purpose.
    Otherwise { answer: &'static str, why: &'static str },
    /// No answer, because it does not model this.
    NotModelled(&'static str),
}

pub(crate) const fn probe(
    name: &'static str,
    asks: &'static str,
    expected: &'static str,
    run: fn() -> Answer,
) -> Probe {
    Probe { name, asks, expected, allowed: &[], simulated: Simulated::Same, bare: false, run }
}

impl Probe {
    pub(crate) const fn or(mut self, allowed: &'static [&'static str]) -> Self {
        self.allowed = allowed;
        self
    }

    pub(crate) const fn simulated(mut self, answer: &'static str, why: &'static str) -> Self {
        self.simulated = Simulated::Otherwise { answer, why };
        self
    }

    pub(crate) const fn not_modelled(mut self, why: &'static str) -> Self {
        self.simulated = Simulated::NotModelled(why);
        self
    }

    pub(crate) const fn bare(mut self) -> Self {
        self.bare = true;
        self
    }

    /// Asks the question in this process, which was started for it.
    pub(crate) fn ask(&self) -> Answer {
        if !self.bare {
            scene::start();
        }
        (self.run)()
    }
}

/// How an answer compares with what is expected of this driver.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The expected answer.
    Passed,
    /// For a real driver: an unexpected answer, but nothing here relies on the expected one.
    Allowed,
    /// Any other answer.
    Failed,
    /// No answer: the driver does not model this, or the question makes no sense on this machine.
    Skipped,
}

pub(crate) struct Outcome {
    pub(crate) answer: Answer,
    pub(crate) verdict: Verdict,
}

impl Probe {
    /// Asks in a separate process and judges the answer.
    pub(crate) fn result(&self, machine: &Machine) -> Outcome {
        if let (true, Simulated::NotModelled(_)) = (machine.simulated, self.simulated) {
            return Outcome { answer: "not modelled".to_owned(), verdict: Verdict::Skipped };
        }
        let answer = answer_of_child(self.name, machine);
        let expected = match self.simulated {
            Simulated::Otherwise { answer, .. } if machine.simulated => answer,
            _ => self.expected,
        };
        let verdict = if answer.starts_with(SKIPPED) {
            Verdict::Skipped
        } else if answer == expected {
            Verdict::Passed
        } else if !machine.simulated && self.allowed.contains(&answer.as_str()) {
            Verdict::Allowed
        } else {
            Verdict::Failed
        };
        Outcome { answer, verdict }
    }
}

/// A command that runs this program again on the same driver. Checks for leaks are off, because the process of a question frees
/// nothing.
pub(crate) fn again(driver: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.arg("--driver").arg(driver).stdin(Stdio::null());
    command.envs([("SIMCUDA_FATAL", "off"), ("ASAN_OPTIONS", "detect_leaks=0")]);
    command
}

fn answer_of_child(name: &str, machine: &Machine) -> Answer {
    let mut command = again(&machine.library);
    command.args(["--ask", name]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("run this program");
    let Some(status) = end_of(&mut child) else { return "hangs".to_owned() };
    let (mut out, mut complaint) = (String::new(), String::new());
    // The output of a child fits into its pipes, so it can be read after the child's end.
    let _ = child.stdout.take().map(|mut pipe| pipe.read_to_string(&mut out));
    let _ = child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut complaint));
    let answer = out.lines().rev().find_map(|line| line.strip_prefix(ANSWER)).map(str::to_owned);
    match (answer, status.signal(), status.code()) {
        (Some(answer), None, Some(0)) => answer,
        (_, Some(signal), _) => crash(signal),
        (_, _, code) => {
            let last = complaint.lines().find(|line| !line.is_empty() && !line.starts_with("thread ")).unwrap_or("");
            format!("no answer: exit status {code:?}: {last}")
        }
    }
}

fn end_of(child: &mut Child) -> Option<ExitStatus> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Ok(Some(status)) = child.try_wait() {
            return Some(status);
        }
        if Instant::now() > end {
            let _ = child.kill();
            let _ = child.wait();
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn crash(signal: i32) -> Answer {
    match signal {
        libc::SIGSEGV => "crash (SIGSEGV)".to_owned(),
        libc::SIGABRT => "crash (SIGABRT)".to_owned(),
        other => format!("crash (signal {other})"),
    }
}
