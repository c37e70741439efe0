//! `cuStream*`, except capture, and host functions.

use crate::call::{Call, Need, Sim};
use crate::code::{Code, CuResult};
use crate::finding::Kind;
use crate::state::{Dep, StreamKind, Work};

/// `CU_STREAM_NON_BLOCKING`.
pub const STREAM_NON_BLOCKING: u32 = 1;
/// `CU_EVENT_WAIT_EXTERNAL` and `CU_EVENT_RECORD_EXTERNAL`.
pub const EVENT_EXTERNAL: u32 = 1;
/// Priorities go from this (greatest) to 0.
const GREATEST_PRIORITY: i32 = -5;

impl Sim {
    /// `cuStreamCreate`.
    #[track_caller]
    pub fn stream_create(&self, flags: u32) -> CuResult<u64> {
        self.call("cuStreamCreate", Need::Init, |c| create(c, flags, 0))
    }

    /// `cuStreamCreateWithPriority`. Priorities are kept, clamped, and do not affect the order.
    #[track_caller]
    pub fn stream_create_with_priority(&self, flags: u32, priority: i32) -> CuResult<u64> {
        self.call("cuStreamCreateWithPriority", Need::Init, |c| create(c, flags, priority))
    }

    /// `cuStreamDestroy_v2`: the handle ends now, the queued work still runs.
    #[track_caller]
    pub fn stream_destroy(&self, stream: u64) -> CuResult<()> {
        self.release("cuStreamDestroy_v2", stream, |c| {
            if stream <= 2 {
                return Err(Code::INVALID_HANDLE);
            }
            let (handle, stream) = (stream, c.stream(stream)?);
            c.drop_capture_of(stream);
            let site = c.site();
            c.st.gone.insert(handle, site);
            c.st.named.remove(&handle);
            if c.st.reuse_streams {
                c.st.free_streams.push(handle);
            }
            let Some(s) = c.st.streams.get_mut(&stream) else { return Ok(()) };
            s.destroyed = true;
            if s.queue.is_empty() && !s.busy {
                c.st.end_stream(stream);
            }
            Ok(())
        })
    }

    /// `cuStreamSynchronize`.
    #[track_caller]
    pub fn stream_synchronize(&self, stream: u64) -> CuResult<()> {
        self.call("cuStreamSynchronize", Need::Init, |c| {
            let stream = c.stream(stream)?;
            c.no_capture_on(stream)?;
            c.join_stream(stream);
            Ok(())
        })
    }

    /// `cuStreamQuery`.
    #[track_caller]
    pub fn stream_query(&self, stream: u64) -> CuResult<()> {
        self.call("cuStreamQuery", Need::Init, |c| {
            let stream = c.stream(stream)?;
            c.no_capture_on(stream)?;
            let point = (stream, c.st.streams.get(&stream).map_or(0, |s| s.submitted));
            if !c.poll(&[point]) {
                return Err(Code::NOT_READY);
            }
            c.know(&[point]);
            Ok(())
        })
    }

    /// `cuStreamWaitEvent`. An event that was never recorded orders nothing.
    #[track_caller]
    pub fn stream_wait_event(&self, stream: u64, event: u64, flags: u32) -> CuResult<()> {
        self.call("cuStreamWaitEvent", Need::Init, |c| {
            let stream = c.stream(stream)?;
            let e = c.event(event)?;
            let (record, shared, captured) = (e.record.clone(), e.shared.clone(), e.captured.clone());
            if flags > EVENT_EXTERNAL {
                return Err(Code::INVALID_VALUE);
            }
            if c.capture_wait(stream, captured.as_ref(), record.is_some(), flags == EVENT_EXTERNAL)? {
                return Ok(());
            }
            if let Some(record) = &record {
                c.submit(stream, Work::Nothing, &[], vec![Call::dep_of(record)])?;
            } else if let Some(shared) = shared.filter(|s| s.recorded() > 0) {
                let upto = shared.recorded();
                c.submit(stream, Work::Nothing, &[], vec![(Dep::Shared(shared, upto), Default::default())])?;
            }
            Ok(())
        })
    }

    /// `cuStreamGetCtx`.
    #[track_caller]
    pub fn stream_ctx(&self, stream: u64) -> CuResult<u64> {
        self.call("cuStreamGetCtx", Need::Init, |c| {
            let stream = c.stream(stream)?;
            c.st.streams.get(&stream).map(|s| s.ctx).ok_or(Code::INVALID_HANDLE)
        })
    }

    /// `cuStreamGetDevice`. Unlike `cuStreamGetCtx`, drivers refuse it during capture.
    #[track_caller]
    pub fn stream_device(&self, stream: u64) -> CuResult<i32> {
        self.call("cuStreamGetDevice", Need::Init, |c| {
            let stream = c.stream(stream)?;
            c.unsafe_call()?;
            let ctx = c.st.streams.get(&stream).map(|s| s.ctx).ok_or(Code::INVALID_HANDLE)?;
            c.context(ctx).map(|x| crate::api_context::signed(x.device))
        })
    }

    /// `cuStreamGetFlags`.
    #[track_caller]
    pub fn stream_flags(&self, stream: u64) -> CuResult<u32> {
        self.call("cuStreamGetFlags", Need::Init, |c| {
            let stream = c.stream(stream)?;
            c.st.streams.get(&stream).map(|s| u32::from(s.non_blocking)).ok_or(Code::INVALID_HANDLE)
        })
    }

    /// `cuStreamGetPriority`.
    #[track_caller]
    pub fn stream_priority(&self, stream: u64) -> CuResult<i32> {
        self.call("cuStreamGetPriority", Need::Init, |c| {
            let stream = c.stream(stream)?;
            c.st.streams.get(&stream).map(|s| s.priority).ok_or(Code::INVALID_HANDLE)
        })
    }

    /// `cuStreamGetId`.
    #[track_caller]
    pub fn stream_id(&self, stream: u64) -> CuResult<u64> {
        self.call("cuStreamGetId", Need::Init, |c| {
            let stream = c.stream(stream)?;
            c.st.streams.get(&stream).map(|s| u64::from(s.timeline)).ok_or(Code::INVALID_HANDLE)
        })
    }

    /// `cuCtxGetStreamPriorityRange`: least and greatest.
    #[track_caller]
    pub fn ctx_stream_priority_range(&self) -> CuResult<(i32, i32)> {
        self.call("cuCtxGetStreamPriorityRange", Need::Init, |c| c.current().map(|_| (0, GREATEST_PRIORITY)))
    }

    /// `cuLaunchHostFunc`: runs a function in stream order. It must not call the driver.
    #[track_caller]
    pub fn launch_host_func(&self, stream: u64, function: impl FnOnce() + Send + 'static) -> CuResult<()> {
        self.queue_call("cuLaunchHostFunc", stream, function)
    }

    /// `cuStreamAddCallback`: here the same rules as for host functions; not allowed during capture.
    #[track_caller]
    pub fn stream_add_callback(
        &self,
        stream: u64,
        flags: u32,
        function: impl FnOnce() + Send + 'static,
    ) -> CuResult<()> {
        if flags != 0 {
            return self.call("cuStreamAddCallback", Need::Init, |_| Err(Code::INVALID_VALUE));
        }
        self.queue_call("cuStreamAddCallback", stream, function)
    }

    #[track_caller]
    fn queue_call(&self, name: &'static str, stream: u64, function: impl FnOnce() + Send + 'static) -> CuResult<()> {
        self.call(name, Need::Init, |c| {
            let stream = c.stream(stream)?;
            if name == "cuStreamAddCallback" {
                c.no_capture_on(stream)?;
            }
            c.submit(stream, Work::Call(Box::new(function)), &[], Vec::new()).map(|_| ())
        })?;
        self.start_pump();
        Ok(())
    }
}

fn create(c: &mut Call<'_>, flags: u32, priority: i32) -> CuResult<u64> {
    let ctx = c.current()?;
    if flags & !STREAM_NON_BLOCKING != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let priority = priority.clamp(GREATEST_PRIORITY, 0);
    let stream = c.new_stream(ctx, StreamKind::User, flags & STREAM_NON_BLOCKING != 0, priority);
    let Some(handle) = c.st.free_streams.pop() else { return Ok(stream) };
    c.st.named.insert(handle, stream);
    c.st.gone.remove(&handle);
    Ok(handle)
}

impl Call<'_> {
    /// An event handle given by the caller.
    pub(crate) fn event(&mut self, handle: u64) -> CuResult<&mut crate::state::Event> {
        if !self.st.events.contains_key(&handle) {
            let kind = crate::state::HandleKind::Event;
            return Err(self.bad_handle(kind, handle, Code::INVALID_HANDLE));
        }
        self.st.events.get_mut(&handle).ok_or(Code::INVALID_HANDLE)
    }

    /// Checks that an event is recorded only on streams of its own context.
    pub(crate) fn same_context(&mut self, event: u64, stream: u64) -> CuResult<()> {
        let ctx = self.st.streams.get(&stream).map(|s| s.ctx);
        let own = self.event(event)?.ctx;
        if ctx == Some(own) {
            return Ok(());
        }
        let message = format!("event {event:#x} of context {own:#x} recorded on a stream of another context");
        self.find(Kind::WrongContext, message, None);
        Err(Code::INVALID_HANDLE)
    }
}
