//! `cuEvent*`.

use crate::call::{Call, Need, Sim};
use crate::code::{Code, CuResult};
use crate::memory::Shared;
use crate::state::{Event, HandleKind, Record, Work};
use std::sync::Arc;

/// `CU_EVENT_BLOCKING_SYNC`.
pub const EVENT_BLOCKING_SYNC: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_DISABLE_TIMING: u32 = 2;
/// `CU_EVENT_INTERPROCESS`; needs `CU_EVENT_DISABLE_TIMING`.
pub const EVENT_INTERPROCESS: u32 = 4;

impl Sim {
    /// `cuEventCreate`.
    #[track_caller]
    pub fn event_create(&self, flags: u32) -> CuResult<u64> {
        self.call("cuEventCreate", Need::Init, |c| {
            let ctx = c.current()?;
            let alone = flags & EVENT_INTERPROCESS != 0 && flags & EVENT_DISABLE_TIMING == 0;
            if flags > 7 || alone {
                return Err(Code::INVALID_VALUE);
            }
            let shared = if flags & EVENT_INTERPROCESS == 0 {
                None
            } else {
                c.unsafe_call()?;
                Some(Arc::new(Shared::new().map_err(|_| Code::SYSTEM)?))
            };
            Ok(c.new_event(ctx, flags, shared, false))
        })
    }

    /// `cuEventDestroy_v2`. Waits that were queued before remain in force.
    #[track_caller]
    pub fn event_destroy(&self, event: u64) -> CuResult<()> {
        self.release("cuEventDestroy_v2", event, |c| {
            c.event(event)?;
            let site = c.site();
            c.st.events.remove(&event);
            c.st.gone.insert(event, site);
            Ok(())
        })
    }

    /// `cuEventRecord`.
    #[track_caller]
    pub fn event_record(&self, event: u64, stream: u64) -> CuResult<()> {
        self.record("cuEventRecord", event, stream, 0)
    }

    /// `cuEventRecordWithFlags`.
    #[track_caller]
    pub fn event_record_with_flags(&self, event: u64, stream: u64, flags: u32) -> CuResult<()> {
        self.record("cuEventRecordWithFlags", event, stream, flags)
    }

    #[track_caller]
    fn record(&self, name: &'static str, event: u64, stream: u64, flags: u32) -> CuResult<()> {
        let shared = self.call(name, Need::Init, |c| {
            if flags > 1 {
                return Err(Code::INVALID_VALUE);
            }
            let stream = c.stream(stream)?;
            c.event(event)?;
            c.same_context(event, stream)?;
            if let Some(captured) = c.capture_record(stream, flags == 1)? {
                let e = c.event(event)?;
                e.captured = Some(captured);
                e.record = None;
                return Ok(false);
            }
            let e = c.event(event)?;
            e.versions += 1;
            let version = e.versions;
            let shared = e.shared.clone().map(|s| {
                let number = s.record();
                (s, number)
            });
            let is_shared = shared.is_some();
            let (_, seq) = c.submit(stream, Work::Record { event, version, shared }, &[], Vec::new())?;
            let clock = c.st.streams.get(&stream).map(|s| s.clock.clone()).unwrap_or_default();
            let e = c.event(event)?;
            e.captured = None;
            e.record = Some(Record { stream, seq, clock, version });
            Ok(is_shared)
        })?;
        if shared {
            self.start_pump();
        }
        Ok(())
    }

    /// `cuEventQuery`. An event that was never recorded is done.
    #[track_caller]
    pub fn event_query(&self, event: u64) -> CuResult<()> {
        self.call("cuEventQuery", Need::Init, |c| {
            let (record, shared) = c.waitable(event)?;
            if let Some(record) = record {
                if !c.poll(&[(record.stream, record.seq)]) {
                    return Err(Code::NOT_READY);
                }
                c.host_clock().join(&record.clock);
            }
            if shared.is_some_and(|s| s.completed() < s.recorded()) {
                return Err(Code::NOT_READY);
            }
            Ok(())
        })
    }

    /// `cuEventSynchronize`.
    #[track_caller]
    pub fn event_synchronize(&self, event: u64) -> CuResult<()> {
        self.call("cuEventSynchronize", Need::Init, |c| {
            let (record, shared) = c.waitable(event)?;
            if let Some(record) = record {
                c.wait(&[(record.stream, record.seq)]);
                c.host_clock().join(&record.clock);
            }
            if let Some(shared) = shared {
                let upto = shared.recorded();
                c.wait_until(|| shared.completed() >= upto);
            }
            Ok(())
        })
    }

    /// `cuEventElapsedTime`, in milliseconds.
    #[track_caller]
    pub fn event_elapsed(&self, start: u64, end: u64) -> CuResult<f32> {
        self.call("cuEventElapsedTime", Need::Init, |c| {
            let mut times = [None, None];
            for (slot, event) in times.iter_mut().zip([start, end]) {
                let e = c.event(event)?;
                if e.flags & EVENT_DISABLE_TIMING != 0 {
                    return Err(Code::INVALID_HANDLE);
                }
                let Some(record) = &e.record else { return Err(Code::INVALID_HANDLE) };
                let version = record.version;
                *slot = e.time.filter(|t| t.0 == version).map(|t| t.1);
            }
            match times {
                [Some(start), Some(end)] => {
                    let sign = if end < start { -1.0 } else { 1.0 };
                    let span = end.max(start).duration_since(end.min(start));
                    Ok(sign * span.as_secs_f32() * 1e3)
                }
                _ => Err(Code::NOT_READY),
            }
        })
    }
}

/// What waiting for an event means: our own record, and, for a shared event, the count of all processes.
type Waitable = (Option<Record>, Option<Arc<Shared>>);

impl Call<'_> {
    pub(crate) fn new_event(&mut self, ctx: u64, flags: u32, shared: Option<Arc<Shared>>, imported: bool) -> u64 {
        let handle = self.st.handle(HandleKind::Event);
        let origin = self.site();
        let event = Event {
            ctx,
            flags,
            record: None,
            captured: None,
            versions: 0,
            time: None,
            shared,
            imported,
            origin,
            excused: false,
        };
        self.st.events.insert(handle, event);
        handle
    }

    fn waitable(&mut self, event: u64) -> CuResult<Waitable> {
        let e = self.event(event)?;
        let (captured, record, shared) = (e.captured.is_some(), e.record.clone(), e.shared.clone());
        if captured {
            self.capture_violation("an event of a capture cannot be waited for");
            return Err(Code::CAPTURED_EVENT);
        }
        self.unsafe_call()?;
        Ok((record, shared))
    }
}
