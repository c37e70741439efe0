//! Runs on real drivers: the machine of a run, and the files that keep the answers.
//!
//! A file has the lines `date: …`, `machine: …`, `driver: …` and `device: …`, an empty line, and then one line for each
//! question: name, tab, answer.

use std::collections::BTreeMap;
use std::ffi::CStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use devexchange_tests::{cu, sim};

use crate::answer::SKIPPED;
use crate::probe::{Outcome, Probe};

/// The machine, driver and device of a run.
pub(crate) struct Machine {
    pub(crate) library: PathBuf,
    pub(crate) simulated: bool,
    pub(crate) device: String,
    pub(crate) driver: String,
}

impl Machine {
    /// Loads the driver and asks it for its version and device. Each question has a process of its own.
    pub(crate) fn here(library: &Path) -> Result<Self, String> {
        // SAFETY: the initialisers of a CUDA driver have no preconditions.
        if let Err(error) = unsafe { libloading::Library::new(library) } {
            return Err(format!("no CUDA driver here: {error}"));
        }
        let simulated = sim::cuda().has("simcuda_version");
        let code = cu!("cuInit", 0);
        if code != 0 {
            return Err(format!("no CUDA driver here that works: cuInit answers {}", crate::answer::said(code)));
        }
        let (mut version, mut name) = (0_i32, [0_u8; 256]);
        cu!("cuDriverGetVersion", &raw mut version);
        cu!("cuDeviceGetName", name.as_mut_ptr(), 255, 0);
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default().to_string_lossy().into_owned();
        // `NVRM version: NVIDIA UNIX … Kernel Module  580.65.06  …`: the first word that begins with a digit.
        let kernel = std::fs::read_to_string("/proc/driver/nvidia/version").unwrap_or_default();
        let kernel = kernel.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let driver = match kernel.filter(|_| !simulated) {
            Some(kernel) => format!("{kernel}, CUDA {}.{}", version / 1000, version % 1000 / 10),
            None => format!("CUDA {}.{}", version / 1000, version % 1000 / 10),
        };
        Ok(Self { library: library.to_owned(), simulated, device: name, driver })
    }
}

/// A run on a real driver, as stored in a file.
pub(crate) struct Run {
    pub(crate) date: String,
    pub(crate) machine: String,
    pub(crate) driver: String,
    pub(crate) device: String,
    pub(crate) answers: BTreeMap<String, String>,
}

/// The runs that are kept in a directory, in the order of their files' names.
pub(crate) fn read_all(directory: &Path) -> Result<Vec<Run>, String> {
    let listing = std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let files = listing.filter_map(|entry| Some(entry.ok()?.path()));
    let mut files: Vec<PathBuf> = files.filter(|file| file.extension().is_some_and(|end| end == "txt")).collect();
    files.sort();
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Result<Run, String> {
    let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
    let mut lines = text.lines();
    let mut field = |name: &str| {
        let value = lines.next().and_then(|line| line.strip_prefix(name)?.strip_prefix(": "));
        value.map(str::to_owned).ok_or_else(|| format!("{}: no {name}", file.display()))
    };
    let (date, machine) = (field("date")?, field("machine")?);
    let (driver, device) = (field("driver")?, field("device")?);
    let answers = lines.filter_map(|line| line.split_once('\t')).map(|(name, answer)| (name.into(), answer.into()));
    Ok(Run { date, machine, driver, device, answers: answers.collect() })
}

/// Stores a run. Only runs on real drivers are worth storing.
pub(crate) fn write(file: &Path, machine: &Machine, results: &[(&Probe, Outcome)]) -> Result<(), String> {
    if machine.simulated {
        return Err("a run on the simulated driver is not recorded".to_owned());
    }
    let mut text = format!(
        "date: {}\nmachine: {}\ndriver: {}\ndevice: {}\n\n",
        said_by("date", &["-u", "+%Y-%m-%d"]),
        said_by("uname", &["-srm"]),
        machine.driver,
        machine.device
    );
    for (probe, outcome) in results.iter().filter(|(_, outcome)| !outcome.answer.starts_with(SKIPPED)) {
        let _ = writeln!(text, "{}\t{}", probe.name, outcome.answer);
    }
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

fn said_by(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    output.map_or_else(|_| "unknown".to_owned(), |output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
