//! Asks a CUDA driver about the behaviour that devexchange and its tests rely on, and reports which answers are the
//! expected ones. The same questions and the same expectations hold for the simulated driver of `tests/simcuda` and for
//! the driver of a GPU.
//!
//! ```text
//! cuda-conformance [--driver PATH] [--format text|markdown] [--measured DIRECTORY] [--record FILE] [NAME…]
//! ```
//!
//! Each question runs in its own process (`--ask NAME`), because a driver can crash, hang or stay broken. The text ends
//! in `N passed, N failed, N skipped`. The exit status is 0 if nothing failed, 1 if something did, and 2 if nothing
//! could be asked.
#![expect(clippy::expect_used, clippy::panic, reason = "a question that cannot be asked fails by panicking")]
#![expect(clippy::indexing_slicing, reason = "an index that is out of range is a question that fails")]

mod answer;
mod measured;
mod probe;
mod probes;
mod scene;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;

use devexchange_tests::sim;
use probe::Verdict;

/// The options of the command line.
struct Options {
    driver: PathBuf,
    markdown: bool,
    measured: Option<PathBuf>,
    record: Option<PathBuf>,
    ask: Option<String>,
    role: Option<String>,
    names: Vec<String>,
}

fn options(mut arguments: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        driver: PathBuf::from("libcuda.so.1"),
        markdown: false,
        measured: None,
        record: None,
        ask: None,
        role: None,
        names: Vec::new(),
    };
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or_else(|| format!("{argument} needs a value"));
        match argument.as_str() {
            "--driver" => options.driver = value()?.into(),
            "--measured" => options.measured = Some(value()?.into()),
            "--record" => options.record = Some(value()?.into()),
            "--ask" => options.ask = Some(value()?),
            "--role" => options.role = Some(value()?),
            "--format" => {
                options.markdown = match value()?.as_str() {
                    "text" => false,
                    "markdown" => true,
                    other => return Err(format!("unknown format {other}")),
                }
            }
            name if !name.starts_with('-') => options.names.push(name.to_owned()),
            other => return Err(format!("unknown option {other}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    match options(std::env::args().skip(1)).and_then(run) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cuda-conformance: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(options: Options) -> Result<bool, String> {
    sim::choose(&options.driver);
    if let Some(role) = &options.role {
        probes::play(role);
        return Ok(true);
    }
    if let Some(name) = &options.ask {
        let probe = probes::all().find(|probe| probe.name == name.as_str()).ok_or_else(|| format!("no {name}"))?;
        println!("{}{}", probe::ANSWER, probe.ask());
        return Ok(true);
    }
    let machine = measured::Machine::here(&options.driver)?;
    let chosen =
        probes::all().filter(|probe| options.names.is_empty() || options.names.iter().any(|n| n == probe.name));
    let results: Vec<_> = chosen.map(|probe| (probe, probe.result(&machine))).collect();
    if results.is_empty() {
        return Err("there is no such question".to_owned());
    }
    let good = results.iter().all(|(_, result)| !matches!(result.verdict, Verdict::Failed));
    if options.markdown {
        let runs = options.measured.as_deref().map_or(Ok(Vec::new()), measured::read_all)?;
        print!("{}", table::markdown(&results, &runs));
    } else {
        print!("{}", table::text(&machine, &results));
    }
    if let Some(file) = &options.record {
        measured::write(file, &machine, &results)?;
    }
    Ok(good)
}
