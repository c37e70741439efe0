//! Everything a simulator knows, as plain data. The rules are in the modules that change it.

use crate::api_ipc::IpcHandle;
use crate::clock::{Clock, Timeline};
use crate::config::Config;
use crate::fault::Faults;
use crate::finding::{Finding, Site};
use crate::memory::{Arena, Backing, HostAddr, Shared};
use crate::ranges::Ranges;
use crate::rng::Rng;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

/// The kind of object that a handle names; it is part of the handle's bits, so that kinds are never confused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandleKind {
    Context = 0x51,
    Stream = 0x52,
    Event = 0x53,
    Pool = 0x54,
    Graph = 0x55,
}

pub(crate) struct State {
    pub(crate) cfg: Config,
    pub(crate) rng: Rng,
    pub(crate) device_space: Option<Arena>,
    pub(crate) host_space: Option<Arena>,
    pub(crate) initialised: bool,
    pub(crate) deinitialised: bool,
    pub(crate) stop: bool,
    pub(crate) pumping: bool,
    pub(crate) next_handle: u64,
    pub(crate) next_timeline: Timeline,
    pub(crate) next_alloc: u64,
    pub(crate) hosts: BTreeMap<u64, Host>,
    /// What all host threads together know, in the observed order.
    pub(crate) host_clock: Clock,
    pub(crate) tokens: BTreeMap<u64, Clock>,
    pub(crate) devices: Vec<Device>,
    pub(crate) contexts: BTreeMap<u64, Context>,
    pub(crate) streams: BTreeMap<u64, Stream>,
    pub(crate) events: BTreeMap<u64, Event>,
    pub(crate) pools: BTreeMap<u64, Pool>,
    pub(crate) graphs: BTreeMap<u64, Graph>,
    pub(crate) captures: BTreeMap<u64, Capture>,
    /// Whether new streams get the handles of destroyed ones.
    pub(crate) reuse_streams: bool,
    /// Handles of destroyed streams that nobody has yet.
    pub(crate) free_streams: Vec<u64>,
    /// Streams that have the handle of an earlier one.
    pub(crate) named: BTreeMap<u64, u64>,
    /// Where handles that are no longer valid were destroyed.
    pub(crate) gone: BTreeMap<u64, Site>,
    /// Allocations by first address, freed ones included: addresses are not reused.
    pub(crate) allocs: BTreeMap<u64, Alloc>,
    pub(crate) faults: Faults,
    pub(crate) findings: Vec<Finding>,
    pub(crate) stats: Stats,
    /// Operations submitted and executed, over all streams.
    pub(crate) submitted: u64,
    pub(crate) executed: u64,
    /// Polls in a row that found nothing finished.
    pub(crate) idle_polls: u32,
    pub(crate) retired_timelines: u32,
}

/// Counts for tests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) races: u64,
    pub(crate) use_after_free: u64,
    pub(crate) skipped: u64,
}

/// A thread of the client.
pub(crate) struct Host {
    pub(crate) number: u32,
    pub(crate) timeline: Timeline,
    pub(crate) seq: u64,
    pub(crate) clock: Clock,
    pub(crate) stack: Vec<u64>,
    pub(crate) label: Option<Arc<str>>,
    pub(crate) capture_mode: CaptureMode,
}

pub(crate) struct Device {
    pub(crate) used: u64,
    pub(crate) primary: Option<u64>,
    pub(crate) primary_flags: u32,
    pub(crate) default_pool: Option<u64>,
    pub(crate) current_pool: Option<u64>,
}

pub(crate) struct Context {
    pub(crate) device: u32,
    pub(crate) id: u64,
    pub(crate) flags: u32,
    pub(crate) primary: bool,
    /// Whether it was reset, and nobody has retained it since: nothing can be done in it.
    pub(crate) reset: bool,
    /// One per retain; a created context has one.
    pub(crate) holders: Vec<Site>,
    pub(crate) legacy: u64,
    pub(crate) per_thread: BTreeMap<u64, u64>,
    /// Contexts whose memory this one may access.
    pub(crate) peers: BTreeSet<u64>,
    /// Releases that a fault stopped and that were not repeated successfully.
    pub(crate) excused: usize,
    /// What is over on destroyed streams: nobody can wait for one of them, but a wait for the whole context includes
    /// them.
    pub(crate) over: Clock,
    /// The same for blocking streams, which work on the legacy stream comes after.
    pub(crate) over_blocking: Clock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamKind {
    Legacy,
    PerThread,
    User,
}

pub(crate) struct Stream {
    pub(crate) ctx: u64,
    pub(crate) kind: StreamKind,
    pub(crate) non_blocking: bool,
    pub(crate) priority: i32,
    pub(crate) timeline: Timeline,
    pub(crate) submitted: u64,
    pub(crate) done: u64,
    pub(crate) busy: bool,
    pub(crate) queue: VecDeque<Op>,
    /// What the last submitted operation knows to be over when it ends, itself included.
    pub(crate) clock: Clock,
    pub(crate) destroyed: bool,
    pub(crate) capture: Option<u64>,
    pub(crate) origin: Site,
    pub(crate) excused: bool,
}

/// What an operation waits for.
#[derive(Clone, Debug)]
pub(crate) enum Dep {
    Stream(u64, u64),
    Shared(Arc<Shared>, u64),
}

pub(crate) struct Op {
    pub(crate) seq: u64,
    /// Number among all operations, in order of submission.
    pub(crate) order: u64,
    pub(crate) deps: Vec<Dep>,
    pub(crate) work: Work,
    /// Kept if the work runs the client's code, which may read memory.
    pub(crate) clock: Option<Clock>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    Known { base: u64, offset: u64 },
    Host(HostAddr),
}

pub(crate) enum Work {
    Nothing,
    Copy {
        to: Place,
        from: Place,
        n: u64,
    },
    Put {
        to: Place,
        data: Vec<u8>,
    },
    /// A pattern repeated over the range.
    Fill {
        to: Place,
        n: u64,
        pattern: [u8; 4],
        width: u8,
    },
    Call(Box<dyn FnOnce() + Send>),
    Free(u64),
    Record {
        event: u64,
        version: u64,
        shared: Option<(Arc<Shared>, u64)>,
    },
}

#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) stream: u64,
    pub(crate) seq: u64,
    pub(crate) clock: Clock,
    pub(crate) version: u64,
}

#[derive(Clone)]
pub(crate) struct CapturedRecord {
    pub(crate) capture: u64,
    pub(crate) knows: Clock,
}

pub(crate) struct Event {
    pub(crate) ctx: u64,
    pub(crate) flags: u32,
    pub(crate) record: Option<Record>,
    pub(crate) captured: Option<CapturedRecord>,
    pub(crate) versions: u64,
    /// The number and the time of the last executed record.
    pub(crate) time: Option<(u64, Instant)>,
    pub(crate) shared: Option<Arc<Shared>>,
    pub(crate) imported: bool,
    pub(crate) origin: Site,
    pub(crate) excused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CaptureMode {
    Global,
    ThreadLocal,
    Relaxed,
}

pub(crate) struct Capture {
    pub(crate) mode: CaptureMode,
    pub(crate) thread: u64,
    pub(crate) origin_stream: u64,
    pub(crate) invalid: bool,
    /// Per participating stream: its timeline, how many operations it captured, and what they depend on.
    pub(crate) streams: BTreeMap<u64, (Timeline, u64, Clock)>,
    pub(crate) nodes: u64,
}

pub(crate) struct Graph {
    pub(crate) nodes: u64,
    pub(crate) origin: Site,
    pub(crate) excused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllocKind {
    Device,
    Pinned,
    Managed,
    Registered,
    /// Memory of another process.
    Imported,
}

pub(crate) enum Bytes {
    Backing(Backing),
    Arena,
    Host(HostAddr),
    Released,
}

pub(crate) struct Alloc {
    pub(crate) id: u64,
    pub(crate) len: u64,
    pub(crate) kind: AllocKind,
    pub(crate) device: u32,
    pub(crate) ctx: u64,
    pub(crate) flags: u32,
    pub(crate) pool: Option<u64>,
    pub(crate) bytes: Bytes,
    /// Set when the free is requested, even if the bytes go later.
    pub(crate) freed: Option<Site>,
    pub(crate) accesses: Vec<Access>,
    pub(crate) written: Ranges,
    pub(crate) sync_memops: bool,
    /// How often an imported range was opened, and by which handle: a handle that differs in any part is a different
    /// one.
    pub(crate) opened: u32,
    pub(crate) imported_by: Option<IpcHandle>,
    /// Whether a capture allocated it.
    pub(crate) of_graph: bool,
    pub(crate) origin: Site,
    pub(crate) excused: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessKind {
    Read,
    Write,
    Alloc,
    Free,
}

pub(crate) struct Access {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
    pub(crate) kind: AccessKind,
    pub(crate) timeline: Timeline,
    pub(crate) seq: u64,
    pub(crate) site: Site,
}

pub(crate) struct Pool {
    pub(crate) device: u32,
    pub(crate) default: bool,
    pub(crate) imported: bool,
    pub(crate) handle_types: u32,
    pub(crate) max_size: u64,
    pub(crate) destroyed: bool,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    pub(crate) threshold: u64,
    pub(crate) reuse: [bool; 3],
    /// Access flags of the other devices.
    pub(crate) access: BTreeMap<u32, u32>,
    pub(crate) shared: Option<Backing>,
    pub(crate) origin: Site,
    pub(crate) excused: bool,
}

impl State {
    pub(crate) fn new(cfg: Config) -> Self {
        let devices = (0..cfg.devices)
            .map(|_| Device { used: 0, primary: None, primary_flags: 0, default_pool: None, current_pool: None })
            .collect();
        let mut faults = Faults::default();
        for fault in &cfg.faults {
            faults.arm(fault.clone());
        }
        Self {
            rng: Rng::new(cfg.seed),
            device_space: Arena::reserve(cfg.va_size).ok(),
            host_space: Arena::reserve(cfg.host_va_size).ok(),
            cfg,
            initialised: false,
            deinitialised: false,
            stop: false,
            pumping: false,
            next_handle: 1,
            next_timeline: 0,
            next_alloc: 1,
            hosts: BTreeMap::new(),
            host_clock: Clock::default(),
            tokens: BTreeMap::new(),
            devices,
            contexts: BTreeMap::new(),
            streams: BTreeMap::new(),
            events: BTreeMap::new(),
            pools: BTreeMap::new(),
            graphs: BTreeMap::new(),
            captures: BTreeMap::new(),
            reuse_streams: false,
            free_streams: Vec::new(),
            named: BTreeMap::new(),
            gone: BTreeMap::new(),
            allocs: BTreeMap::new(),
            faults,
            findings: Vec::new(),
            stats: Stats::default(),
            submitted: 0,
            executed: 0,
            idle_polls: 0,
            retired_timelines: 0,
        }
    }

    /// A new handle. Bits 48 and up hold the kind, which also makes it an address that traps when dereferenced.
    pub(crate) fn handle(&mut self, kind: HandleKind) -> u64 {
        let handle = ((kind as u64) << 48) | (self.next_handle << 4);
        self.next_handle += 1;
        handle
    }

    pub(crate) fn timeline(&mut self) -> Timeline {
        self.next_timeline += 1;
        self.next_timeline
    }

    /// A destroyed stream is done with its work.
    pub(crate) fn end_stream(&mut self, handle: u64) {
        let Some(stream) = self.streams.remove(&handle) else { return };
        if let Some(context) = self.contexts.get_mut(&stream.ctx) {
            context.over.join(&stream.clock);
            if !stream.non_blocking {
                context.over_blocking.join(&stream.clock);
            }
        }
        self.retire_timeline();
    }

    /// Forgets what clocks say about timelines that are over and that no recorded access refers to. Otherwise clocks
    /// would grow with every stream that ever existed.
    pub(crate) fn retire_timeline(&mut self) {
        self.retired_timelines += 1;
        if self.retired_timelines < 256 {
            return;
        }
        self.retired_timelines = 0;
        let mut live: BTreeSet<Timeline> = self.streams.values().map(|s| s.timeline).collect();
        live.extend(self.hosts.values().map(|h| h.timeline));
        live.extend(self.allocs.values().flat_map(|a| a.accesses.iter().map(|x| x.timeline)));
        self.host_clock.keep(&live);
        self.hosts.values_mut().for_each(|h| h.clock.keep(&live));
        self.tokens.values_mut().for_each(|c| c.keep(&live));
        self.contexts.values_mut().flat_map(|c| [&mut c.over, &mut c.over_blocking]).for_each(|c| c.keep(&live));
        self.events.values_mut().filter_map(|e| e.record.as_mut()).for_each(|r| r.clock.keep(&live));
        for stream in self.streams.values_mut() {
            stream.clock.keep(&live);
            stream.queue.iter_mut().filter_map(|o| o.clock.as_mut()).for_each(|c| c.keep(&live));
        }
    }
}
