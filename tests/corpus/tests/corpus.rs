//! The corpus through the Rust API: one test for each case. Arguments are parts of names, as for other tests.
//!
//! The program runs itself again with the simulated CUDA driver, for the cases that need one.
#![expect(clippy::panic, reason = "what only tests call fails by panicking")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::ptr::with_exposed_provenance_mut as address;
use std::time::Duration;

use devexchange_core::abi::dlpack::{DLManagedTensor, DLManagedTensorVersioned};
use devexchange_core::arrow::asynchronous::{AsyncReader, ReaderOptions};
use devexchange_core::arrow::value::Value;
use devexchange_core::cuda_array;
use devexchange_core::dlpack;
use devexchange_core::error::status_name;
use devexchange_core::ipc;
use devexchange_core::{Batch, BatchStream, Column, Error, Result, Schema, ledger};
use devexchange_corpus::{Case, Made, callback, cases};
use devexchange_tests::sim;

/// An imported thing, which is given up when it is dropped.
type Imported = Box<dyn Reads>;

/// Reads an imported thing in full. Returns the number of batches, and the error.
trait Reads {
    fn read(&self) -> (u32, Result<()>) {
        (0, Ok(()))
    }
}

impl Reads for Schema {}
impl Reads for devexchange_core::Tensor {}
impl Reads for cuda_array::Imported {}

impl Reads for Batch {
    fn read(&self) -> (u32, Result<()>) {
        (0, read_rows(self.root()))
    }
}

impl Reads for BatchStream {
    fn read(&self) -> (u32, Result<()>) {
        count(|| self.next().map(|batch| batch.is_some()))
    }
}

impl Reads for AsyncReader {
    fn read(&self) -> (u32, Result<()>) {
        let patience = Some(Duration::from_secs(10));
        count(|| self.wait_batch(patience).map(|batch| batch.is_some()))
    }
}

/// Requests batches until there are no more.
fn count(mut next: impl FnMut() -> Result<bool>) -> (u32, Result<()>) {
    let mut batches = 0;
    loop {
        match next() {
            Ok(true) => batches += 1,
            Ok(false) => return (batches, Ok(())),
            Err(error) => return (batches, Err(error)),
        }
    }
}

/// Looks at every value, down to the leaves.
fn read_rows(column: Column<'_>) -> Result<()> {
    for row in 0..column.length() {
        match column.value(row)? {
            Value::List(values) | Value::Map(values) => read_rows(values)?,
            Value::Struct(of, row) => {
                for child in (0..).map_while(|k| of.child(k)) {
                    child.value(row)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn import(case: &Case, made: &Made) -> Result<Imported> {
    let at = made.address();
    Ok(match case.kind.as_str() {
        // SAFETY: a schema, in which only the case's fault is wrong; everything that cannot be checked is right.
        "schema" => Box::new(unsafe { Schema::import(address(at)) }?),
        "array" | "device_array" => Box::new(import_batch(case, made)?),
        // SAFETY: a stream.
        "stream" => Box::new(unsafe { BatchStream::import(address(at)) }?),
        // SAFETY: a device stream.
        "device_stream" => Box::new(unsafe { BatchStream::import_device(address(at)) }?),
        "async" => Box::new(import_async(made)?),
        // SAFETY: a tensor.
        "dlpack" => Box::new(unsafe { dlpack::import(address::<DLManagedTensorVersioned>(at)) }?),
        // SAFETY: a tensor of the legacy struct.
        "dlpack_legacy" => Box::new(unsafe { dlpack::import(address::<DLManagedTensor>(at)) }?),
        // SAFETY: an array of the CUDA Array Interface.
        "cuda_array" => Box::new(unsafe { cuda_array::import(address(at), &Default::default(), false) }?),
        // SAFETY: nobody writes what the producer offers.
        "ipc_tensor" => Box::new(unsafe { ipc::connect(made.listens())?.import_tensor("t") }?),
        // SAFETY: the same as for an array.
        "ipc_batch" => Box::new(unsafe { ipc::connect(made.listens())?.import_batch("t") }?),
        other => panic!("no runner for {other:?}"),
    })
}

fn import_batch(case: &Case, made: &Made) -> Result<Batch> {
    let at = made.address();
    let schema = address(made.schema());
    match case.kind.as_str() {
        // SAFETY: an array, as in `import`, and a good schema.
        "array" => unsafe { Batch::import_pair(address(at), schema) },
        // SAFETY: a device array, and a good schema.
        _ => unsafe { Batch::import_pair_device(address(at), schema) },
    }
}

fn import_async(made: &Made) -> Result<AsyncReader> {
    let reader = AsyncReader::new(ReaderOptions { limit: 4, abi_h_metadata: true }, None)?;
    let handler = reader.handler()?;
    // SAFETY: the handler was just handed out.
    unsafe { made.drive(handler) };
    reader.wait_schema(Some(Duration::from_secs(10)))?;
    Ok(reader)
}

/// Runs a case. The error says why it fails.
fn run(case: &'static Case) -> std::result::Result<(), String> {
    run_with(case, false).map(drop)
}

/// Runs a good case while each callback of its producer fails: with a code, with a text, by what it gives. Returns how
/// many failed, or why the case fails.
fn run_callbacks(case: &'static Case) -> std::result::Result<u32, String> {
    let has_callbacks = case.kind.contains("stream") || case.kind == "async";
    let mut failed = 0;
    for how in if has_callbacks && case.status.is_empty() { 0..3 } else { 0..0 } {
        for nth in 1.. {
            callback::arm(nth, how);
            let told = run_with(case, true).map_err(|wrong| format!("callback {nth}, {how}: {wrong}"))?;
            if !told {
                break;
            }
            failed += 1;
        }
    }
    Ok(failed)
}

/// Runs a case. Returns whether a callback failed meanwhile, if one may.
fn run_with(case: &'static Case, may_fail: bool) -> std::result::Result<bool, String> {
    let mut made = Made::new(case);
    let imported = import(case, &made);
    made.after(imported.is_err())?;
    let (stage, batches, result) = match imported {
        Err(error) => ("import", 0, Err(error)),
        Ok(imported) => {
            let (batches, result) = imported.read();
            ("read", batches, result)
        }
    };
    let told = if may_fail { callback::disarm() } else { None };
    match told {
        Some(told) => judge_callback(told, result)?,
        None => judge(case, stage, batches, result)?,
    }
    made.end()?;
    match ledger::outstanding() {
        0 => Ok(told.is_some()),
        n => Err(format!("{n} things are outstanding: {:?}", ledger::read())),
    }
}

fn judge(case: &Case, stage: &str, batches: u32, result: Result<()>) -> std::result::Result<(), String> {
    let Case { status, says, .. } = case;
    if batches != case.batches {
        return Err(format!("{batches} batches came, not {} ({result:?})", case.batches));
    }
    match result {
        Ok(()) if status.is_empty() => Ok(()),
        Ok(()) => Err(format!("it was accepted, but is {status}: {says}")),
        Err(error) if name_of(&error) == *status && error.message().contains(says) && stage == case.stage => Ok(()),
        Err(error) => {
            Err(format!("{} at {stage}: {error}\n    expected {status} at {}: {says}", name_of(&error), case.stage))
        }
    }
}

fn judge_callback(told: callback::Told, result: Result<()>) -> std::result::Result<(), String> {
    match result {
        Err(error) if error.status() == told.status && error.message().contains(told.says) => Ok(()),
        other => Err(format!("{other:?}; expected {told:?}")),
    }
}

fn name_of(error: &Error) -> String {
    status_name(error.status()).map_or("?".into(), |name| name.to_string_lossy().into_owned())
}

/// Set in the process that runs the cases that need a CUDA driver.
const AGAIN: &str = "DEVX_CORPUS_AGAIN";

/// Runs the cases that were not run yet, with the simulated driver.
fn again() -> bool {
    if std::env::var_os(AGAIN).is_some() || cases().iter().all(|case| !case.needs_cuda() || case.is_for("rust")) {
        return true;
    }
    let program = std::env::current_exe().and_then(|program| {
        let mut program = std::process::Command::new(program);
        program.args(std::env::args().skip(1));
        program.env("LD_LIBRARY_PATH", sim::place()).env("SIMCUDA_FATAL", "exit").env(AGAIN, "1");
        program.status()
    });
    program.is_ok_and(|status| status.success())
}

/// Which cases to run, by the arguments of `cargo test`: those with one of these texts in their names, and none with one
/// of the texts after `--skip`. Other options mean nothing here.
struct Wanted {
    texts: Vec<String>,
    skipped: Vec<String>,
}

impl Wanted {
    fn of(mut arguments: impl Iterator<Item = String>) -> Self {
        let mut wanted = Self { texts: Vec::new(), skipped: Vec::new() };
        while let Some(argument) = arguments.next() {
            if argument == "--skip" {
                wanted.skipped.extend(arguments.next());
            } else if !argument.starts_with('-') {
                wanted.texts.push(argument);
            }
        }
        wanted
    }

    fn has(&self, case: &Case) -> bool {
        let is_in_name = |text: &String| case.name.contains(text);
        (self.texts.is_empty() || self.texts.iter().any(is_in_name)) && !self.skipped.iter().any(is_in_name)
    }
}

fn main() -> ExitCode {
    let wanted = Wanted::of(std::env::args().skip(1));
    let only_cuda = std::env::var_os(AGAIN).is_some();
    let (mut passed, mut failed, mut callbacks, mut left_out) = (0, 0, 0, 0);
    for case in cases().iter().filter(|case| case.is_for("rust") && (case.needs_cuda() || !only_cuda)) {
        if !wanted.has(case) {
            left_out += 1;
            continue;
        }
        let all = || run(case).and_then(|()| run_callbacks(case));
        let result = catch_unwind(AssertUnwindSafe(all)).unwrap_or_else(|_| Err("it panicked".to_owned()));
        match result {
            Ok(swept) => {
                (passed, callbacks) = (passed + 1, callbacks + swept);
                println!("test {} ... ok", case.name);
            }
            Err(wrong) => {
                failed += 1;
                println!("test {} ... FAILED\n    {wrong}\n    rule: {}", case.name, case.source);
            }
        }
    }
    println!("{callbacks} callbacks failed");
    // There are cases of streams without a driver.
    let were_many = callbacks > 150 || only_cuda;
    let is_good = failed == 0 && (left_out > 0 || (were_many && passed > 0));
    let verdict = if is_good { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {verdict}. {passed} passed; {failed} failed; 0 ignored; 0 measured; {left_out} filtered out\n"
    );
    if again() && is_good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
