//! Every interleaving of a producer, a user and a canceller on three threads, over the states. The states have no
//! pointers, so they can be copied wherever the threads diverge.

use std::collections::HashSet;
use std::task::Poll;

use super::Caller;
use super::reading::{Callback, Next, Reading, Work};
use super::writing::{Failure, Last, Said, Writing};
use crate::error::Error;

/// One thread, at some step of its script.
#[derive(Clone, Debug)]
struct Thread {
    me: Caller,
    script: &'static [Step],
    /// A call to the producer that has not returned, of `request` if true, else of `cancel`.
    calling: Option<bool>,
    /// Whether it is asking for work until there is none.
    settling: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Enter(Callback),
    Leave,
    Task,
    End,
    Error,
    Release,
    /// Continues only when no other thread is in a call.
    Quiet,
    Request,
    Cancel,
    Next,
}

#[derive(Clone, Debug)]
struct World {
    reading: Reading<u32, ()>,
    threads: Vec<Thread>,
    /// The release has returned: the producer is gone.
    released: bool,
    cancels: u32,
    requests: u32,
    errors: u32,
    tasks: u32,
    dropped: u32,
    taken: u32,
}

impl World {
    /// Takes the next step of a thread; `false` if the thread has to wait.
    fn step(&mut self, at: usize) -> bool {
        let Thread { me, script, calling, settling } = self.threads[at].clone();
        if let Some(request) = calling {
            assert!(!self.released, "the producer is gone while it is called");
            self.reading.called(request);
            self.requests -= u32::from(request);
            self.threads[at].calling = None;
            return true;
        }
        if settling {
            self.threads[at].settling = self.settle(at, me);
            return true;
        }
        let [step, rest @ ..] = script else { unreachable!("the thread is done") };
        let mut settles = true;
        match step {
            Step::Enter(callback) => self.reading.enter(me, *callback),
            Step::Leave => self.reading.leave(),
            Step::Task => {
                self.tasks += 1;
                let unwanted = self.reading.on_next_task(Some(Ok(self.tasks)));
                self.dropped += u32::from(unwanted.is_some());
            }
            Step::End => assert!(self.reading.on_next_task(None).is_none()),
            Step::Error => self.reading.on_error(Error::callback(5, "no luck")),
            Step::Release => {
                self.reading.release();
                settles = false;
            }
            Step::Quiet if !self.reading.is_quiet(me) => return false,
            Step::Quiet => self.released = true,
            Step::Request => self.reading.request(1).unwrap(),
            Step::Cancel => self.reading.cancel(),
            Step::Next => match self.reading.next() {
                Poll::Ready(Next::Task(_)) => self.taken += 1,
                Poll::Ready(Next::Error(_)) => self.errors += 1,
                _ => {}
            },
        }
        self.threads[at].script = rest;
        self.threads[at].settling = settles;
        true
    }

    fn settle(&mut self, at: usize, me: Caller) -> bool {
        match self.reading.work(me) {
            None => return false,
            Some(Work::Wake) => {}
            Some(Work::Drop(tasks)) => self.dropped += tasks.len() as u32,
            Some(Work::Cancel) => {
                assert!(!self.released, "cancel after the release");
                self.cancels += 1;
                self.threads[at].calling = Some(false);
            }
            Some(Work::Request(n)) => {
                assert!(n > 0 && !self.released && self.cancels == 0, "request({n}) after cancel or release");
                self.requests += 1;
                assert_eq!(self.requests, 1, "request on two threads at once");
                self.threads[at].calling = Some(true);
            }
        }
        true
    }

    fn is_done(&self, at: usize) -> bool {
        let Thread { script, calling, settling, .. } = &self.threads[at];
        script.is_empty() && calling.is_none() && !settling
    }

    /// Tries every order of steps from here, visiting each state once. Returns the number of states.
    fn explore(self) -> usize {
        let mut seen = HashSet::new();
        let mut left = vec![self];
        while let Some(world) = left.pop() {
            if !seen.insert(format!("{world:?}")) {
                continue;
            }
            let here: Vec<_> = (0..world.threads.len()).filter(|at| !world.is_done(*at)).collect();
            let mut moved = here.is_empty();
            if here.is_empty() {
                world.check();
            }
            for at in here {
                let mut next = world.clone();
                if next.step(at) {
                    moved = true;
                    left.push(next);
                }
            }
            assert!(moved, "every thread waits for another: {world:?}");
        }
        seen.len()
    }

    fn check(&self) {
        let mut after = self.reading.clone();
        assert!(self.cancels <= 1 && self.errors <= 1);
        after.cancel();
        let mut dropped = self.dropped;
        while let Some(work) = after.work(Caller(0)) {
            match work {
                Work::Drop(tasks) => dropped += tasks.len() as u32,
                Work::Wake => {}
                Work::Cancel | Work::Request(_) => panic!("the producer is called after the release"),
            }
        }
        assert_eq!(dropped + self.taken, self.tasks, "every task is taken or dropped");
    }
}

fn explore(producer: &'static [Step], user: &'static [Step], canceller: &'static [Step]) -> usize {
    let mut reading = Reading::new(1);
    reading.on_schema(Ok(())).unwrap();
    let thread = |number, script| Thread { me: Caller(number), script, calling: None, settling: false };
    let threads = vec![thread(1, producer), thread(2, user), thread(3, canceller)];
    let world =
        World { reading, threads, released: false, cancels: 0, requests: 0, errors: 0, tasks: 0, dropped: 0, taken: 0 };
    world.explore()
}

#[test]
fn a_reader_on_three_threads() {
    use Step::*;
    let release = [Enter(Callback::Release), Release, Quiet, Leave];
    let [enter, go, quiet, leave] = release;
    let task = Box::leak(Box::new([Enter(Callback::Task), Task, Leave, enter, go, quiet, leave]));
    let error = Box::leak(Box::new([Enter(Callback::Error), Error, Leave, enter, go, quiet, leave]));
    let end = Box::leak(Box::new([Enter(Callback::Task), Task, Task, End, Leave, enter, go, quiet, leave]));
    let states = explore(task, &[Request, Next], &[Cancel])
        + explore(error, &[Request, Next], &[Cancel, Next])
        + explore(end, &[Request, Next, Next], &[Request, Next]);
    assert!(states > 1_000, "{states} states");
    println!("{states} states");
}

/// Two threads that use a writer, and a thread of the consumer that cancels and requests.
#[test]
fn a_writer_on_three_threads() {
    #[derive(Clone, Copy, Debug)]
    enum Act {
        Send,
        Answer(i32),
        Finish,
        Fail,
        Request(i64),
        Cancel,
        Abandon,
        Ending,
    }
    #[derive(Clone, Debug)]
    struct World {
        writing: Writing,
        scripts: [&'static [Act]; 3],
        /// The thread that is in a callback.
        inside: Option<usize>,
        cancelled: bool,
        refused: bool,
        sent: i64,
        requested: i64,
        last: Option<Last<'static>>,
    }
    impl World {
        fn ends(&mut self, last: Option<Last<'static>>) {
            if let Some(last) = last {
                assert!(self.inside.is_none() && self.last.is_none(), "the last word is one");
                let silent = self.cancelled || self.refused;
                assert!(!silent || !matches!(last, Last::Error(..)), "an error after cancel or refusal");
                self.last = Some(last);
            }
        }
    }
    fn go(world: &World, seen: &mut HashSet<String>) {
        if !seen.insert(format!("{world:?}")) {
            return;
        }
        let mut done = true;
        for at in 0..3 {
            let [act, rest @ ..] = world.scripts[at] else { continue };
            done = false;
            let mut next = world.clone();
            next.scripts[at] = rest;
            match *act {
                Act::Send => {
                    if next.writing.send().is_ok() {
                        assert!(next.inside.is_none() && next.last.is_none() && !next.refused);
                        next.inside = Some(at);
                        next.sent += 1;
                        assert!(next.sent <= next.requested);
                    }
                }
                Act::Answer(code) if next.inside == Some(at) => {
                    next.inside = None;
                    next.refused = next.writing.answered("on_next_task", code).is_err();
                }
                Act::Answer(_) => {}
                Act::Finish => {
                    let last = next.writing.finish().ok().flatten();
                    next.ends(last);
                }
                Act::Fail => {
                    let failure = Failure { code: 5, text: Said::Text("no luck"), metadata: None };
                    let last = next.writing.fail(failure).ok().flatten();
                    next.ends(last);
                }
                Act::Request(n) => {
                    next.requested = next.requested.saturating_add(n.max(0));
                    next.writing.request(n);
                }
                Act::Cancel => {
                    next.writing.cancel();
                    next.cancelled = true;
                }
                Act::Abandon => next.writing.abandon(),
                Act::Ending => {
                    let last = next.writing.ending();
                    next.ends(last);
                }
            }
            go(&next, seen);
        }
        if !done {
            return;
        }
        // Dropping the writer ends whatever is left.
        let mut end = world.clone();
        end.writing.abandon();
        assert_eq!(end.writing.ending().is_some(), end.last.is_none(), "the handler is released once");
    }
    let mut writing = Writing::new();
    writing.start().unwrap();
    writing.answered("on_schema", 0).unwrap();
    let world = World {
        writing,
        scripts: [&[], &[], &[]],
        inside: None,
        cancelled: false,
        refused: false,
        sent: 0,
        requested: 0,
        last: None,
    };
    use Act::*;
    let mut seen = HashSet::new();
    for consumer in [&[Request(1), Cancel][..], &[Request(2), Request(-1)], &[Request(i64::MAX), Request(1)]] {
        for code in [0, 5] {
            let sends: &'static [Act] = if code == 0 {
                &[Send, Answer(0), Ending, Finish, Ending]
            } else {
                &[Send, Answer(5), Ending, Fail, Ending]
            };
            for other in [&[Send, Answer(0), Ending][..], &[Abandon, Ending], &[Fail, Ending]] {
                go(&World { scripts: [sends, other, consumer], ..world.clone() }, &mut seen);
            }
        }
    }
    println!("{} states", seen.len());
    assert!(seen.len() > 1_000, "{} states", seen.len());
}

/// As many batches as can be counted are requested while a batch is on its way, which is then not sent.
#[test]
fn a_batch_that_was_not_sent_is_still_requested() {
    let mut writing = Writing::new();
    writing.start().unwrap();
    writing.answered("on_schema", 0).unwrap();
    writing.request(1);
    for requested in [2, i64::MAX] {
        writing.send().unwrap();
        writing.request(requested - 1);
        writing.unsent();
        assert_eq!(writing.demand(), requested);
    }
}
