//! Queues: submitting work with its order, and deciding what runs when.

use crate::call::{Call, Inner};
use crate::clock::Clock;
use crate::code::{Code, CuResult};
use crate::config::Mode;
use crate::memory::Span;
use crate::race::Touch;
use crate::state::{Bytes, Dep, Op, Place, Record, State, StreamKind, Work};
use parking_lot::MutexGuard;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A point in a stream: everything up to this operation.
pub(crate) type Point = (u64, u64);

/// A wait for something outside our own queues looks again after this time.
const NAP: Duration = Duration::from_micros(500);
/// Draining ends after this long without progress.
const GIVE_UP: Duration = Duration::from_secs(2);
/// The number of fruitless polls before one of them makes something run.
const PATIENCE: u32 = 6;

impl State {
    /// Whether a point is over. A stream that is gone has nothing left to do.
    pub(crate) fn is_done(&self, point: Point) -> bool {
        self.streams.get(&point.0).is_none_or(|s| s.done >= point.1)
    }

    fn dep_done(&self, dep: &Dep) -> bool {
        match dep {
            Dep::Stream(stream, seq) => self.is_done((*stream, *seq)),
            Dep::Shared(shared, number) => shared.completed() >= *number,
        }
    }

    /// Streams whose first operation may run now, with its submission number.
    fn ready(&self) -> Vec<(u64, u64)> {
        self.streams
            .iter()
            .filter(|(_, s)| !s.busy)
            .filter_map(|(h, s)| s.queue.front().map(|op| (*h, op)))
            .filter(|(_, op)| op.deps.iter().all(|d| self.dep_done(d)))
            .map(|(h, op)| (h, op.order))
            .collect()
    }

    /// How far each stream must get for the targets to be over.
    fn needed(&self, targets: &[Point]) -> BTreeMap<u64, u64> {
        let mut need: BTreeMap<u64, u64> = BTreeMap::new();
        let mut todo: Vec<Point> = targets.to_vec();
        while let Some((stream, seq)) = todo.pop() {
            let Some(s) = self.streams.get(&stream) else { continue };
            let so_far = need.get(&stream).copied().unwrap_or(s.done);
            if seq <= so_far {
                continue;
            }
            need.insert(stream, seq);
            for op in s.queue.iter().filter(|o| o.seq > so_far && o.seq <= seq) {
                todo.extend(op.deps.iter().filter_map(|d| match d {
                    Dep::Stream(s, q) => Some((*s, *q)),
                    Dep::Shared(..) => None,
                }));
            }
        }
        need
    }

    /// The stream to run next, by the rules of the mode.
    fn pick(&mut self, targets: Option<&[Point]>) -> Option<u64> {
        let mut ready = self.ready();
        if self.cfg.mode == Mode::Adversarial {
            if let Some(targets) = targets {
                let need = self.needed(targets);
                ready.retain(|(s, _)| {
                    let first = self.streams.get(s).and_then(|s| s.queue.front()).map_or(u64::MAX, |o| o.seq);
                    need.get(s).is_some_and(|upto| first <= *upto)
                });
            }
            return ready.iter().max_by_key(|r| r.1).map(|r| r.0);
        }
        let at = self.rng.below(ready.len());
        ready.get(at).map(|r| r.0)
    }

    /// The bytes at a place, if they still exist.
    pub(crate) fn span<'a>(&'a self, place: &'a Place, n: u64) -> Option<Span<'a>> {
        match place {
            Place::Host(host) => host.span(0, n),
            Place::Known { base, offset } => {
                let alloc = self.allocs.get(base)?;
                match &alloc.bytes {
                    Bytes::Backing(backing) => backing.span(*offset, n),
                    Bytes::Arena => self.host_space.as_ref()?.span(base.checked_add(*offset)?, n),
                    Bytes::Host(host) => host.span(*offset, n),
                    Bytes::Released => None,
                }
            }
        }
    }

    fn copy(&mut self, to: &Place, from: &Place, n: u64) -> bool {
        match (self.span(from, n), self.span(to, n)) {
            (Some(source), Some(target)) => {
                target.copy_from(&source);
                true
            }
            _ => false,
        }
    }

    fn put(&mut self, to: &Place, write: impl FnOnce(&Span<'_>), n: u64) -> bool {
        self.span(to, n).as_ref().map(write).is_some()
    }
}

/// Runs the first operation of a stream. Work on memory that is gone is skipped: the free that removed it was
/// reported when it was asked for.
fn run_first(inner: &Inner, st: &mut MutexGuard<'_, State>, handle: u64, keep_order: bool) {
    let Some(stream) = st.streams.get_mut(&handle) else { return };
    let Some(op) = stream.queue.pop_front() else { return };
    stream.busy = true;
    let Op { seq, work, clock, .. } = op;
    let ran = match work {
        Work::Nothing => true,
        Work::Copy { to, from, n } => st.copy(&to, &from, n),
        Work::Put { to, data } => st.put(&to, |span| span.put(&data), data.len() as u64),
        Work::Fill { to, n, pattern, width } => {
            let width = usize::from(width.clamp(1, 4));
            let unit = pattern.get(..width).unwrap_or(&pattern);
            match unit {
                [byte] => st.put(&to, |span| span.fill(*byte), n),
                _ => {
                    let data = unit.repeat(usize::try_from(n).unwrap_or(0) / width);
                    st.put(&to, |span| span.put(&data), n)
                }
            }
        }
        Work::Call(function) => {
            let job = crate::callback::job(inner, st, handle, seq, clock, function);
            return inner.run_callback(st, job, keep_order);
        }
        Work::Free(base) => {
            st.release_bytes(base);
            true
        }
        Work::Record { event, version, shared } => {
            if let Some(e) = st.events.get_mut(&event) {
                e.time = Some((version, Instant::now()));
            }
            if let Some((shared, number)) = shared {
                shared.complete(number);
            }
            true
        }
    };
    if !ran {
        st.stats.skipped += 1;
    }
    finish(inner, st, handle, seq);
}

/// Notes the end of a stream's running operation.
pub(crate) fn finish(inner: &Inner, st: &mut State, handle: u64, seq: u64) {
    st.executed += 1;
    let mut finished = false;
    if let Some(stream) = st.streams.get_mut(&handle) {
        stream.busy = false;
        stream.done = seq;
        finished = stream.destroyed && stream.queue.is_empty();
    }
    if finished {
        st.end_stream(handle);
    }
    inner.changed.notify_all();
}

/// Runs one operation, if any may run. For a wait, `targets` says what it is for.
pub(crate) fn advance(inner: &Inner, st: &mut MutexGuard<'_, State>, targets: Option<&[Point]>) -> bool {
    advance_with(inner, st, targets, true)
}

fn advance_with(inner: &Inner, st: &mut MutexGuard<'_, State>, targets: Option<&[Point]>, keep_order: bool) -> bool {
    match st.pick(targets) {
        Some(stream) => {
            run_first(inner, st, stream, keep_order);
            true
        }
        None => false,
    }
}

/// A worker of the threaded mode.
fn work(inner: &Inner, delay_us: u64) {
    let mut st = inner.state.lock();
    while !st.stop {
        let Some(stream) = st.pick(None) else {
            inner.changed.wait_for(&mut st, Duration::from_millis(20));
            continue;
        };
        let delay = st.rng.below(usize::try_from(delay_us).unwrap_or(0) + 1);
        if delay > 0 {
            if let Some(s) = st.streams.get_mut(&stream) {
                s.busy = true;
            }
            MutexGuard::unlocked(&mut st, || std::thread::sleep(Duration::from_micros(delay as u64)));
        }
        run_first(inner, &mut st, stream, false);
    }
}

/// Runs something from time to time while the client may be waiting for us outside any call.
fn pump(inner: &Inner, idle: Duration) {
    let mut st = inner.state.lock();
    while !st.stop {
        let before = st.executed;
        let deadline = Instant::now() + idle;
        while !st.stop && !inner.changed.wait_until(&mut st, deadline).timed_out() {}
        if st.executed == before {
            advance(inner, &mut st, None);
        }
    }
}

impl crate::Sim {
    pub(crate) fn start_workers(&self, mode: Mode) {
        let Mode::Threads { workers, delay_us } = mode else { return };
        let mut all = self.inner.workers.lock();
        for _ in 0..workers {
            let inner = Arc::clone(&self.inner);
            all.push(std::thread::spawn(move || work(&inner, delay_us)));
        }
    }

    /// Starts the pump: from now on somebody may wait for work without calling us.
    pub(crate) fn start_pump(&self) {
        let idle = {
            let mut st = self.inner.state.lock();
            if st.pumping || st.cfg.idle_ms == 0 || matches!(st.cfg.mode, Mode::Threads { .. }) {
                return;
            }
            st.pumping = true;
            Duration::from_millis(st.cfg.idle_ms)
        };
        let inner = Arc::clone(&self.inner);
        self.inner.workers.lock().push(std::thread::spawn(move || pump(&inner, idle)));
    }
}

impl Call<'_> {
    /// Queues work on a stream, ordered by the stream, the legacy rules, the calls before it and `also`.
    /// Returns the point at which it will be over; a capturing stream only notes it.
    pub(crate) fn submit(&mut self, stream: u64, work: Work, touches: &[Touch], also: Also) -> CuResult<Point> {
        if self.captured(stream)? {
            return Ok((stream, 0));
        }
        let known = self.host_clock().clone();
        let Some(s) = self.st.streams.get(&stream) else { return Err(Code::INVALID_HANDLE) };
        let (ctx, kind, non_blocking) = (s.ctx, s.kind, s.non_blocking);
        let mut clock = known;
        let mut deps = Vec::new();
        for (dep, c) in also {
            deps.push(dep);
            clock.join(&c);
        }
        if kind == StreamKind::Legacy
            && let Some(c) = self.st.contexts.get(&ctx)
        {
            clock.join(&c.over_blocking);
        }
        let follows: Vec<(u64, u64)> = match kind {
            StreamKind::Legacy => self
                .st
                .streams
                .iter()
                .filter(|(h, o)| o.ctx == ctx && !o.non_blocking && **h != stream)
                .map(|(h, o)| (*h, o.submitted))
                .collect(),
            _ if non_blocking => Vec::new(),
            _ => {
                let legacy = self.st.contexts.get(&ctx).map_or(0, |c| c.legacy);
                self.st.streams.get(&legacy).map(|l| (legacy, l.submitted)).into_iter().collect()
            }
        };
        for (other, seq) in follows {
            if let Some(o) = self.st.streams.get(&other) {
                clock.join(&o.clock);
                if o.done < seq {
                    deps.push(Dep::Stream(other, seq));
                }
            }
        }
        self.st.submitted += 1;
        let order = self.st.submitted;
        let Some(s) = self.st.streams.get_mut(&stream) else { return Err(Code::INVALID_HANDLE) };
        s.submitted += 1;
        let (seq, timeline) = (s.submitted, s.timeline);
        clock.join(&s.clock);
        clock.raise(timeline, seq);
        s.clock = clock.clone();
        let kept = matches!(work, Work::Call(_)).then(|| clock.clone());
        s.queue.push_back(Op { seq, order, deps, work, clock: kept });
        for touch in touches {
            self.touch(*touch, timeline, seq, &clock);
        }
        if matches!(self.st.cfg.mode, Mode::Threads { .. }) {
            self.inner.changed.notify_all();
        }
        Ok((stream, seq))
    }

    /// Waits until the points are over. The caller must record what it then knows.
    pub(crate) fn wait(&mut self, targets: &[Point]) {
        while !targets.iter().all(|t| self.st.is_done(*t)) {
            if matches!(self.st.cfg.mode, Mode::Threads { .. }) {
                self.inner.changed.wait_for(&mut self.st, Duration::from_millis(20));
            } else if !advance(self.inner, &mut self.st, Some(targets)) {
                self.inner.changed.wait_for(&mut self.st, NAP);
            }
        }
    }

    /// Runs everything queued, except work that waits for an inactive other process.
    pub(crate) fn drain(&mut self) {
        let points = self.points(|_| true);
        let mut seen = (self.st.executed, Instant::now());
        while !points.iter().all(|p| self.st.is_done(*p)) && seen.1.elapsed() < GIVE_UP {
            if matches!(self.st.cfg.mode, Mode::Threads { .. }) || !advance(self.inner, &mut self.st, None) {
                self.inner.changed.wait_for(&mut self.st, NAP);
            }
            if self.st.executed != seen.0 {
                seen = (self.st.executed, Instant::now());
            }
        }
    }

    /// Waits until another process has reached a point.
    pub(crate) fn wait_until(&mut self, over: impl Fn() -> bool) {
        while !over() {
            if !advance(self.inner, &mut self.st, None) {
                self.inner.changed.wait_for(&mut self.st, NAP);
            }
        }
    }

    /// Waits for everything queued on a stream, which the calling thread then knows to be over.
    pub(crate) fn join_stream(&mut self, stream: u64) {
        let Some(s) = self.st.streams.get(&stream) else { return };
        let (point, clock) = ((stream, s.submitted), s.clock.clone());
        self.wait(&[point]);
        self.host_clock().join(&clock);
    }

    /// Checks whether the points are over. Repeated checks make something run, so that a client that polls makes
    /// progress.
    pub(crate) fn poll(&mut self, targets: &[Point]) -> bool {
        let over = |st: &State| targets.iter().all(|t| st.is_done(*t));
        if over(&self.st) {
            self.st.idle_polls = 0;
            return true;
        }
        let mode = self.st.cfg.mode;
        match mode {
            Mode::Threads { .. } => {}
            Mode::Lazy if self.st.rng.below(3) == 0 => {
                advance_with(self.inner, &mut self.st, None, false);
            }
            _ if self.st.idle_polls >= PATIENCE => {
                self.st.idle_polls = 0;
                advance_with(self.inner, &mut self.st, Some(targets), false);
            }
            _ => self.st.idle_polls += 1,
        }
        over(&self.st)
    }

    /// Everything queued on the streams for which `which` holds.
    pub(crate) fn points(&self, which: impl Fn(&crate::state::Stream) -> bool) -> Vec<Point> {
        self.st.streams.iter().filter(|(_, s)| which(s)).map(|(h, s)| (*h, s.submitted)).collect()
    }

    /// Tells the calling thread that everything submitted so far to these streams is over.
    pub(crate) fn know(&mut self, points: &[Point]) {
        for (stream, _) in points {
            if let Some(clock) = self.st.streams.get(stream).map(|s| s.clock.clone()) {
                self.host_clock().join(&clock);
            }
        }
    }

    /// A submitted operation, the last of its stream, as something to wait for.
    pub(crate) fn dep_on(&self, point: Point) -> (Dep, Clock) {
        let clock = self.st.streams.get(&point.0).map(|s| s.clock.clone()).unwrap_or_default();
        (Dep::Stream(point.0, point.1), clock)
    }

    /// The record of an event as something to wait for.
    pub(crate) fn dep_of(record: &Record) -> (Dep, Clock) {
        (Dep::Stream(record.stream, record.seq), record.clock.clone())
    }
}

/// Further dependencies of an operation and what they bring along.
pub(crate) type Also = Vec<(Dep, Clock)>;
