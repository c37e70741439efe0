//! The configuration of a simulator: devices, schedule, strictness. For the C ABI (`simcuda-driver`) every field has an
//! environment variable.

use crate::fault::Fault;
use crate::finding::Kind;

/// Who decides when queued work runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Nothing runs until somebody waits; then a seeded random choice among what may run.
    Lazy,
    /// Worker threads run the work, each operation after a seeded random delay of at most `delay_us`.
    Threads {
        /// How many workers.
        workers: u32,
        /// The longest delay before an operation, in microseconds.
        delay_us: u64,
    },
    /// Only what a wait needs runs, the most recently submitted first: everything else stays undone as long as
    /// the rules allow.
    Adversarial,
}

/// How calls of different host threads are ordered, because the threads' own locks are invisible here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostOrder {
    /// The calls count as ordered by arrival. What one thread waited for, the next call knows.
    Observed,
    /// Only annotated edges between threads count.
    Annotated,
}

/// When a finding ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fatal {
    /// At exit (C ABI) or when the simulator is dropped (in process), with a report.
    AtEnd,
    /// At once.
    Now,
    /// Never; findings are only recorded.
    Off,
}

/// The parameters of a simulator.
#[derive(Clone, Debug)]
pub struct Config {
    /// Number of devices, 0 included. `SIMCUDA_DEVICES`; with `SIMCUDA_VISIBLE` = 1 at most the devices that
    /// `CUDA_VISIBLE_DEVICES` names, as in a real driver (by default the machine's own setting does not decide what a
    /// test sees).
    pub devices: u32,
    /// Version profile as the driver reports it: 11080, 12020, 12090 or 13000. `SIMCUDA_VERSION`.
    pub version: u32,
    /// The scheduler. `SIMCUDA_MODE` = `lazy`, `threads` or `adversarial`; `SIMCUDA_WORKERS`, `SIMCUDA_DELAY_US`.
    pub mode: Mode,
    /// Seed of every choice. `SIMCUDA_SEED`.
    pub seed: u64,
    /// Bytes of address space reserved for device pointers; valgrind needs a small one. `SIMCUDA_VA_GB`.
    pub va_size: u64,
    /// Bytes of address space for pinned and managed memory; with the C ABI a sixteenth of `va_size`.
    pub host_va_size: u64,
    /// Memory of each device; allocations beyond it fail.
    pub memory: u64,
    /// Fill new memory with 0xCD. `SIMCUDA_POISON` = 0 or 1.
    pub poison: bool,
    /// Report reads of device bytes that nothing has written. `SIMCUDA_INITCHECK` = 0 or 1.
    pub initcheck: bool,
    /// Order between host threads. `SIMCUDA_HOST_ORDER` = `observed` or `annotated`.
    pub host_order: HostOrder,
    /// Freeing waits for the device, as real drivers happen to do, instead of being a race with queued work.
    /// `SIMCUDA_FREE` = `strict` or `waits`.
    pub free_waits: bool,
    /// A synchronous copy from pageable memory may return before the bytes have arrived, as documented. With
    /// `false` it waits. `SIMCUDA_STAGING` = `documented` or `waits`.
    pub staged_copies_pend: bool,
    /// Whether a copy on a stream of another device, without named contexts, is refused for pool memory to which that
    /// device has no access, as in real drivers. If `false`, such copies stand for kernels of peer devices.
    /// `SIMCUDA_REACH` = `anywhere` or `documented`.
    pub pools_have_reach: bool,
    /// Whether devices can be peers at all. `SIMCUDA_PEER` = 0 or 1.
    pub peers: bool,
    /// Log requests for functions that are not implemented. `SIMCUDA_STRICT` = 0 or 1.
    pub strict: bool,
    /// When findings are fatal. `SIMCUDA_FATAL` = `exit`, `now` or `off`.
    pub fatal: Fatal,
    /// Kinds of findings that are not recorded. `SIMCUDA_ALLOW` = names separated by commas.
    pub allowed: Vec<Kind>,
    /// Put the caller's file and line into sites (in process only).
    pub locations: bool,
    /// Put a backtrace into sites. `SIMCUDA_BACKTRACE` = 0 or 1.
    pub backtraces: bool,
    /// In the lazy and adversarial modes, run one operation after this many idle milliseconds once somebody may be
    /// waiting outside the driver (host functions, shared events). 0: never. `SIMCUDA_IDLE_MS`.
    pub idle_ms: u64,
    /// Faults armed from the start. `SIMCUDA_FAIL` = `function|*:nth:code[:sticky]`, several separated by commas.
    pub faults: Vec<Fault>,
}

const GIB: u64 = 1 << 30;

impl Default for Config {
    fn default() -> Self {
        Self {
            devices: 1,
            version: 12090,
            mode: Mode::Lazy,
            seed: 1,
            va_size: 64 * GIB,
            host_va_size: 8 * GIB,
            memory: 8 * GIB,
            poison: true,
            initcheck: false,
            host_order: HostOrder::Observed,
            free_waits: false,
            staged_copies_pend: true,
            pools_have_reach: false,
            peers: true,
            strict: false,
            fatal: Fatal::AtEnd,
            allowed: Vec::new(),
            locations: true,
            backtraces: false,
            idle_ms: 0,
            faults: Vec::new(),
        }
    }
}

impl Config {
    /// The default configuration with the given schedule.
    #[must_use]
    pub fn new(mode: Mode, seed: u64) -> Self {
        Self { mode, seed, ..Self::default() }
    }

    /// The configuration from the environment; `get` looks a variable up. Settings that cannot be understood are
    /// returned as complaints, because a test that silently runs with other settings proves nothing.
    pub fn from_env(get: impl Fn(&str) -> Option<String>) -> (Self, Vec<String>) {
        let mut c = Self { va_size: 1024 * GIB, locations: false, idle_ms: 20, ..Self::default() };
        let mut bad = Vec::new();
        let num = |name: &str, bad: &mut Vec<String>| -> Option<u64> {
            let text = get(name)?;
            let value = text.trim().parse().ok();
            if value.is_none() {
                bad.push(format!("{name}={text} is not a number"));
            }
            value
        };
        let word = |name: &str, known: &[&str], bad: &mut Vec<String>| -> Option<usize> {
            let text = get(name)?;
            let at = known.iter().position(|k| *k == text);
            if at.is_none() {
                bad.push(format!("{name}={text} is none of {known:?}"));
            }
            at
        };
        let small = |v: u64| u32::try_from(v).unwrap_or(u32::MAX);
        if let Some(v) = num("SIMCUDA_DEVICES", &mut bad) {
            c.devices = small(v).min(64);
        }
        if num("SIMCUDA_VISIBLE", &mut bad) == Some(1)
            && let Some(names) = get("CUDA_VISIBLE_DEVICES")
        {
            // Whatever follows the first invalid device name is invisible, too.
            let known = |name: &str| name.trim().parse::<u32>().is_ok_and(|number| number < c.devices);
            c.devices = names.split(',').take_while(|name| known(name)).count() as u32;
        }
        if let Some(v) = num("SIMCUDA_VERSION", &mut bad) {
            c.version = small(v);
        }
        c.seed = num("SIMCUDA_SEED", &mut bad).unwrap_or_else(any_seed);
        let workers = num("SIMCUDA_WORKERS", &mut bad).map_or(2, small).clamp(1, 64);
        let delay_us = num("SIMCUDA_DELAY_US", &mut bad).unwrap_or(100);
        c.mode = match word("SIMCUDA_MODE", &["lazy", "threads", "adversarial"], &mut bad) {
            Some(1) => Mode::Threads { workers, delay_us },
            Some(2) => Mode::Adversarial,
            _ => Mode::Lazy,
        };
        if let Some(v) = num("SIMCUDA_VA_GB", &mut bad) {
            c.va_size = v.max(1).saturating_mul(GIB);
        }
        c.host_va_size = (c.va_size / 16).max(GIB / 4);
        if let Some(v) = num("SIMCUDA_MEM_MB", &mut bad) {
            c.memory = v.saturating_mul(1 << 20);
        }
        for (name, flag) in [
            ("SIMCUDA_POISON", &mut c.poison),
            ("SIMCUDA_INITCHECK", &mut c.initcheck),
            ("SIMCUDA_PEER", &mut c.peers),
            ("SIMCUDA_STRICT", &mut c.strict),
            ("SIMCUDA_BACKTRACE", &mut c.backtraces),
        ] {
            if let Some(v) = num(name, &mut bad) {
                *flag = v != 0;
            }
        }
        if let Some(at) = word("SIMCUDA_HOST_ORDER", &["observed", "annotated"], &mut bad) {
            c.host_order = if at == 0 { HostOrder::Observed } else { HostOrder::Annotated };
        }
        c.free_waits = word("SIMCUDA_FREE", &["strict", "waits"], &mut bad) == Some(1);
        c.pools_have_reach = word("SIMCUDA_REACH", &["anywhere", "documented"], &mut bad) == Some(1);
        c.staged_copies_pend = word("SIMCUDA_STAGING", &["documented", "waits"], &mut bad) != Some(1);
        c.fatal = match word("SIMCUDA_FATAL", &["exit", "now", "off"], &mut bad) {
            Some(1) => Fatal::Now,
            Some(2) => Fatal::Off,
            _ => Fatal::AtEnd,
        };
        if let Some(v) = num("SIMCUDA_IDLE_MS", &mut bad) {
            c.idle_ms = v;
        }
        for name in get("SIMCUDA_ALLOW").iter().flat_map(|v| v.split(',')).filter(|n| !n.is_empty()) {
            match Kind::from_name(name.trim()) {
                Some(kind) => c.allowed.push(kind),
                None => bad.push(format!("SIMCUDA_ALLOW: no kind of finding is called {name}")),
            }
        }
        for text in get("SIMCUDA_FAIL").iter().flat_map(|v| v.split(',')).filter(|t| !t.is_empty()) {
            match Fault::parse(text) {
                Some(fault) => c.faults.push(fault),
                None => bad.push(format!("SIMCUDA_FAIL: {text} is not function:nth:code[:sticky]")),
            }
        }
        (c, bad)
    }
}

/// A seed that differs from run to run; reports print it.
fn any_seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    (now as u64 ^ (u64::from(std::process::id()) << 32)) & 0xffff_ffff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_is_read_and_nonsense_is_reported() {
        let vars = [
            ("SIMCUDA_DEVICES", "3"),
            ("SIMCUDA_MODE", "threads"),
            ("SIMCUDA_SEED", "77"),
            ("SIMCUDA_FREE", "waits"),
            ("SIMCUDA_MEM_MB", "x"),
            ("SIMCUDA_FATAL", "maybe"),
            ("SIMCUDA_ALLOW", "Race,Nonsense"),
            ("SIMCUDA_FAIL", "cuMemAlloc_v2:2:2,*:9:1234:1,what"),
            ("CUDA_VISIBLE_DEVICES", "0"),
        ];
        let (c, bad) = Config::from_env(|n| vars.iter().find(|v| v.0 == n).map(|v| v.1.to_owned()));
        assert_eq!((c.devices, c.seed, c.free_waits), (3, 77, true));
        assert_eq!(c.mode, Mode::Threads { workers: 2, delay_us: 100 });
        assert_eq!(c.allowed, [Kind::Race]);
        assert_eq!(c.faults.len(), 2);
        assert_eq!(bad.len(), 4, "{bad:?}");
    }

    #[test]
    fn devices_are_hidden_as_by_a_real_driver() {
        for (names, devices) in [("", 0), ("1", 1), ("2, 0", 2), ("0,7,1", 1), ("0,1,2", 3), ("-1", 0)] {
            let vars = [("SIMCUDA_DEVICES", "3"), ("SIMCUDA_VISIBLE", "1"), ("CUDA_VISIBLE_DEVICES", names)];
            let (c, bad) = Config::from_env(|n| vars.iter().find(|v| v.0 == n).map(|v| v.1.to_owned()));
            assert_eq!((c.devices, bad.len()), (devices, 0), "{names:?}");
        }
    }
}
