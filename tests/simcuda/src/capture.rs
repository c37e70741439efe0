//! Stream capture: which calls it forbids, and how streams join a capture and leave it. What is captured is only
//! counted; graphs do not run.

use crate::call::{Call, Need, Sim};
use crate::code::{Code, CuResult};
use crate::finding::Kind;
use crate::state::{Capture, CaptureMode, CapturedRecord, Graph, HandleKind, StreamKind};
use std::collections::BTreeMap;

/// State of a stream with respect to capture, as `cuStreamIsCapturing` gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum CaptureStatus {
    /// Not capturing.
    None = 0,
    /// Capturing.
    Active = 1,
    /// Part of a capture that something broke; the capture must be ended.
    Invalidated = 2,
}

fn mode(number: u32) -> CuResult<CaptureMode> {
    match number {
        0 => Ok(CaptureMode::Global),
        1 => Ok(CaptureMode::ThreadLocal),
        2 => Ok(CaptureMode::Relaxed),
        _ => Err(Code::INVALID_VALUE),
    }
}

impl Sim {
    /// `cuStreamBeginCapture_v2`; modes 0 global, 1 thread-local, 2 relaxed.
    #[track_caller]
    pub fn stream_begin_capture(&self, stream: u64, mode_number: u32) -> CuResult<()> {
        self.call("cuStreamBeginCapture_v2", Need::Init, |c| {
            let stream = c.stream(stream)?;
            let mode = mode(mode_number)?;
            let thread = c.thread;
            let Some(s) = c.st.streams.get_mut(&stream) else { return Err(Code::INVALID_HANDLE) };
            if s.kind == StreamKind::Legacy {
                return Err(Code::CAPTURE_UNSUPPORTED);
            }
            if s.capture.is_some() {
                return Err(Code::INVALID_VALUE);
            }
            let timeline = s.timeline;
            let id = c.st.next_handle;
            c.st.next_handle += 1;
            if let Some(s) = c.st.streams.get_mut(&stream) {
                s.capture = Some(id);
            }
            let streams = BTreeMap::from([(stream, (timeline, 0, Default::default()))]);
            let capture = Capture { mode, thread, origin_stream: stream, invalid: false, streams, nodes: 0 };
            c.st.captures.insert(id, capture);
            Ok(())
        })
    }

    /// `cuStreamEndCapture`: the graph.
    #[track_caller]
    pub fn stream_end_capture(&self, stream: u64) -> CuResult<u64> {
        self.call("cuStreamEndCapture", Need::Init, |c| {
            let stream = c.stream(stream)?;
            let id = c.capture_of(stream).ok_or(Code::INVALID_VALUE)?;
            let Some(capture) = c.st.captures.get(&id) else { return Err(Code::INVALID_VALUE) };
            if capture.origin_stream != stream {
                c.capture_violation("a capture ends on the stream where it began");
                return Err(Code::CAPTURE_UNMATCHED);
            }
            if capture.mode != CaptureMode::Relaxed && capture.thread != c.thread {
                return Err(Code::CAPTURE_WRONG_THREAD);
            }
            let Some(capture) = c.st.captures.remove(&id) else { return Err(Code::INVALID_VALUE) };
            for s in c.st.streams.values_mut().filter(|s| s.capture == Some(id)) {
                s.capture = None;
            }
            if capture.invalid {
                return Err(Code::CAPTURE_INVALIDATED);
            }
            let origin = capture.streams.get(&stream).map(|s| s.2.clone()).unwrap_or_default();
            let joined = capture.streams.iter().all(|(h, (t, n, _))| *h == stream || (*n > 0 && origin.get(*t) >= *n));
            if !joined {
                c.capture_violation("a stream that joined the capture was not joined back");
                return Err(Code::CAPTURE_UNJOINED);
            }
            let graph = c.st.handle(HandleKind::Graph);
            let origin = c.site();
            c.st.graphs.insert(graph, Graph { nodes: capture.nodes, origin, excused: false });
            Ok(graph)
        })
    }

    /// `cuStreamIsCapturing`. It fails for the legacy stream while a blocking stream captures, but the question breaks
    /// nothing.
    #[track_caller]
    pub fn stream_is_capturing(&self, stream: u64) -> CuResult<CaptureStatus> {
        self.call("cuStreamIsCapturing", Need::Init, |c| c.askable(stream).map(|stream| c.capture_status(stream).0))
    }

    /// `cuStreamGetCaptureInfo_v2`: status, and the capture's number; allowed in the same cases as
    /// `cuStreamIsCapturing`.
    #[track_caller]
    pub fn stream_capture_info(&self, stream: u64) -> CuResult<(CaptureStatus, u64)> {
        self.call("cuStreamGetCaptureInfo_v2", Need::Init, |c| c.askable(stream).map(|stream| c.capture_status(stream)))
    }

    /// `cuThreadExchangeStreamCaptureMode`: sets the thread's mode and returns the previous one.
    #[track_caller]
    pub fn exchange_capture_mode(&self, number: u32) -> CuResult<u32> {
        self.call("cuThreadExchangeStreamCaptureMode", Need::Init, |c| {
            let new = mode(number)?;
            Ok(std::mem::replace(&mut c.host().capture_mode, new) as u32)
        })
    }

    /// `cuGraphDestroy`.
    #[track_caller]
    pub fn graph_destroy(&self, graph: u64) -> CuResult<()> {
        self.release("cuGraphDestroy", graph, |c| {
            if c.st.graphs.remove(&graph).is_none() {
                return Err(c.bad_handle(HandleKind::Graph, graph, Code::INVALID_VALUE));
            }
            let site = c.site();
            c.st.gone.insert(graph, site);
            Ok(())
        })
    }

    /// How many operations a graph captured (as `cuGraphGetNodes` counts).
    #[track_caller]
    pub fn graph_nodes(&self, graph: u64) -> CuResult<u64> {
        self.call("cuGraphGetNodes", Need::Init, |c| match c.st.graphs.get(&graph) {
            Some(g) => Ok(g.nodes),
            None => Err(c.bad_handle(HandleKind::Graph, graph, Code::INVALID_VALUE)),
        })
    }
}

impl Call<'_> {
    fn capture_of(&self, stream: u64) -> Option<u64> {
        self.st.streams.get(&stream).and_then(|s| s.capture)
    }

    pub(crate) fn is_capturing(&self, stream: u64) -> bool {
        self.capture_of(stream).is_some()
    }

    fn capture_status(&self, stream: u64) -> (CaptureStatus, u64) {
        let Some(id) = self.capture_of(stream) else { return (CaptureStatus::None, 0) };
        match self.st.captures.get(&id) {
            Some(c) if c.invalid => (CaptureStatus::Invalidated, id),
            Some(_) => (CaptureStatus::Active, id),
            None => (CaptureStatus::None, 0),
        }
    }

    pub(crate) fn capture_violation(&mut self, what: &str) {
        self.find(Kind::CaptureViolation, what.to_owned(), None);
    }

    fn invalidate(&mut self, id: u64) {
        if let Some(c) = self.st.captures.get_mut(&id) {
            c.invalid = true;
        }
    }

    /// Waiting for a capturing stream, or asking whether it is done, is illegal and breaks the capture.
    pub(crate) fn no_capture_on(&mut self, stream: u64) -> CuResult<()> {
        if let Some(id) = self.capture_of(stream) {
            self.invalidate(id);
            self.capture_violation("a capturing stream cannot be waited for or queried");
            return Err(Code::CAPTURE_UNSUPPORTED);
        }
        self.legacy_during_capture(stream)?;
        self.unsafe_call()
    }

    /// The same for all streams of a context.
    pub(crate) fn no_capture_in(&mut self, ctx: u64) -> CuResult<()> {
        let ids: Vec<u64> = self.st.streams.values().filter(|s| s.ctx == ctx).filter_map(|s| s.capture).collect();
        if ids.is_empty() {
            return self.unsafe_call();
        }
        ids.into_iter().for_each(|id| self.invalidate(id));
        self.capture_violation("a context with a capturing stream cannot be waited for");
        Err(Code::CAPTURE_UNSUPPORTED)
    }

    /// A capture can free only what a capture has allocated.
    pub(crate) fn no_free_in_capture(&mut self, stream: u64) -> CuResult<()> {
        let Some(id) = self.capture_of(stream) else { return Ok(()) };
        self.invalidate(id);
        self.capture_violation("a capture cannot free memory from outside of it");
        Err(Code::INVALID_VALUE)
    }

    /// The captures of blocking streams for which this stream, if it is the legacy stream, would have to wait.
    fn captures_before(&self, stream: u64) -> Vec<u64> {
        let Some(s) = self.st.streams.get(&stream).filter(|s| s.kind == StreamKind::Legacy) else { return Vec::new() };
        let blocking = self.st.streams.values().filter(|o| o.ctx == s.ctx && !o.non_blocking);
        blocking.filter_map(|o| o.capture).collect()
    }

    /// The stream that a handle means, if its capture state can be queried.
    fn askable(&mut self, handle: u64) -> CuResult<u64> {
        let stream = self.stream(handle)?;
        if self.captures_before(stream).is_empty() { Ok(stream) } else { Err(Code::CAPTURE_IMPLICIT) }
    }

    /// The legacy stream would have to wait for capturing blocking streams.
    fn legacy_during_capture(&mut self, stream: u64) -> CuResult<()> {
        let broken = self.captures_before(stream);
        if broken.is_empty() {
            return Ok(());
        }
        broken.into_iter().for_each(|id| self.invalidate(id));
        self.capture_violation("the legacy stream used while a blocking stream captures");
        Err(Code::CAPTURE_IMPLICIT)
    }

    /// Checks a call that may wait or allocate: it is forbidden to the threads that a capture's mode names.
    pub(crate) fn unsafe_call(&mut self) -> CuResult<()> {
        if self.st.captures.is_empty() || self.host().capture_mode == CaptureMode::Relaxed {
            return Ok(());
        }
        let (thread, own) = (self.thread, self.host().capture_mode);
        let hit: Vec<u64> = self
            .st
            .captures
            .iter()
            .filter(|(_, c)| match c.mode {
                CaptureMode::Global => c.thread == thread || own == CaptureMode::Global,
                CaptureMode::ThreadLocal => c.thread == thread,
                CaptureMode::Relaxed => false,
            })
            .map(|(id, _)| *id)
            .collect();
        if hit.is_empty() {
            return Ok(());
        }
        hit.into_iter().for_each(|id| self.invalidate(id));
        self.capture_violation("a call that may wait or allocate while a stream captures");
        Err(Code::CAPTURE_UNSUPPORTED)
    }

    /// Checks, before a submission, whether the stream captures, so that the work is only noted.
    pub(crate) fn captured(&mut self, stream: u64) -> CuResult<bool> {
        self.legacy_during_capture(stream)?;
        let Some(id) = self.capture_of(stream) else { return Ok(false) };
        let Some(capture) = self.st.captures.get_mut(&id) else { return Ok(false) };
        if capture.invalid {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        capture.nodes += 1;
        if let Some((timeline, n, knows)) = capture.streams.get_mut(&stream) {
            *n += 1;
            knows.raise(*timeline, *n);
        }
        Ok(true)
    }

    /// A record on a capturing stream. Returns what the event then stands for.
    pub(crate) fn capture_record(&mut self, stream: u64, external: bool) -> CuResult<Option<CapturedRecord>> {
        self.legacy_during_capture(stream)?;
        let Some(id) = self.capture_of(stream) else {
            return if external { Err(Code::INVALID_VALUE) } else { Ok(None) };
        };
        let Some(capture) = self.st.captures.get(&id) else { return Ok(None) };
        if capture.invalid {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        let knows = capture.streams.get(&stream).map(|s| s.2.clone()).unwrap_or_default();
        Ok(Some(CapturedRecord { capture: id, knows }))
    }

    /// The capture's part of a wait for an event. `true` if there is no other part.
    pub(crate) fn capture_wait(
        &mut self,
        stream: u64,
        event: Option<&CapturedRecord>,
        recorded: bool,
        external: bool,
    ) -> CuResult<bool> {
        self.legacy_during_capture(stream)?;
        let mine = self.capture_of(stream);
        if let Some(c) = mine.and_then(|id| self.st.captures.get(&id))
            && c.invalid
        {
            return Err(Code::CAPTURE_INVALIDATED);
        }
        match (mine, event) {
            (None, None) => Ok(false),
            (Some(id), None) => {
                if external || !recorded {
                    return self.captured(stream);
                }
                self.invalidate(id);
                self.capture_violation("a capture cannot depend on work outside of it");
                Err(Code::CAPTURE_ISOLATION)
            }
            (mine, Some(record)) => {
                let id = record.capture;
                if !self.st.captures.contains_key(&id) {
                    return Err(Code::INVALID_VALUE);
                }
                if mine.is_some_and(|m| m != id) {
                    mine.into_iter().chain([id]).for_each(|m| self.invalidate(m));
                    self.capture_violation("two captures cannot be merged");
                    return Err(Code::CAPTURE_MERGE);
                }
                let Some(s) = self.st.streams.get_mut(&stream) else { return Err(Code::INVALID_HANDLE) };
                if s.kind == StreamKind::Legacy {
                    self.invalidate(id);
                    self.capture_violation("the legacy stream cannot join a capture");
                    return Err(Code::CAPTURE_IMPLICIT);
                }
                s.capture = Some(id);
                let timeline = s.timeline;
                if let Some(c) = self.st.captures.get_mut(&id) {
                    let (_, n, knows) = c.streams.entry(stream).or_insert_with(|| (timeline, 0, Default::default()));
                    *n += 1;
                    knows.join(&record.knows);
                    knows.raise(timeline, *n);
                }
                Ok(true)
            }
        }
    }

    /// A capturing stream that is destroyed breaks its capture.
    pub(crate) fn drop_capture_of(&mut self, stream: u64) {
        if let Some(id) = self.capture_of(stream) {
            self.invalidate(id);
        }
    }
}
