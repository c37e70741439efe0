//! A case in memory: the input for the importer, and whether all of it came back.

use std::time::{Duration, Instant};

use devexchange_core::abi::arrow_async::ArrowAsyncDeviceStreamHandler;

use crate::asynchronous::Producer;
use crate::cuda_array;
use crate::description::{Case, tree as base};
use crate::ipc::Exporter;
use crate::layout::{ARRAY, CUDA_ARRAY, DEVICE_ARRAY, DEVICE_STREAM, LEGACY, SCHEMA, STREAM, Struct, VERSIONED};
use crate::memory::{word, write};
use crate::patience::patient;
use crate::stream::Stream;
use crate::thing::Thing;
use crate::{tensor, tree};

/// How long a release on another thread may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// The input of a case.
pub struct Made {
    case: &'static Case,
    input: Input,
    /// The schema of an array.
    schema: Option<Thing>,
    refused: Option<bool>,
}

enum Input {
    Struct(Thing, &'static Struct),
    Stream(Stream, &'static Struct),
    Async(Producer),
    Ipc(Exporter),
    /// The runner makes the input itself: a Python dictionary.
    Own,
}

impl Made {
    /// Makes the input.
    ///
    /// # Panics
    /// If the description is invalid.
    pub fn new(case: &'static Case) -> Self {
        let Case { kind, base: name, edits, .. } = case;
        let mut schema = None;
        let mut of = |name: &str| schema = Some(tree::schema(base(name), &[]));
        let input = match kind.as_str() {
            "schema" => Input::Struct(tree::schema(base(name), edits), &SCHEMA),
            "array" => {
                of(name);
                Input::Struct(tree::array(base(name), edits), &ARRAY)
            }
            "device_array" => {
                of(name);
                Input::Struct(tree::device_array(base(name), edits), &DEVICE_ARRAY)
            }
            "stream" => Input::Stream(Stream::new(case, false), &STREAM),
            "device_stream" => Input::Stream(Stream::new(case, true), &DEVICE_STREAM),
            "async" => Input::Async(Producer::new(case)),
            "dlpack" => Input::Struct(tensor::versioned(name, edits), &VERSIONED),
            "dlpack_legacy" => Input::Struct(tensor::legacy(name, edits), &LEGACY),
            "cuda_array" => Input::Struct(cuda_array::cuda_array(name, edits), &CUDA_ARRAY),
            "cuda_array_dict" => Input::Own,
            "ipc_tensor" | "ipc_batch" => Input::Ipc(Exporter::new(case)),
            other => panic!("there is no kind {other:?}"),
        };
        Self { case, input, schema, refused: None }
    }

    /// The address of the struct that is imported; 0 if the case has none.
    pub fn address(&self) -> usize {
        match &self.input {
            Input::Struct(thing, _) => thing.root,
            Input::Stream(stream, _) => stream.thing.root,
            Input::Async(_) | Input::Ipc(_) | Input::Own => 0,
        }
    }

    /// The address of the schema of an array; the schema is good.
    pub fn schema(&self) -> usize {
        self.schema.as_ref().map_or(0, |schema| schema.root)
    }

    /// The address at which the exporter listens.
    pub fn listens(&self) -> &str {
        match &self.input {
            Input::Ipc(exporter) => &exporter.address,
            _ => "",
        }
    }

    /// Lets the producer of an asynchronous stream call a handler, until it releases the handler; NULL if there was no
    /// memory for one.
    ///
    /// # Safety
    /// `handler` is NULL or a handler of a consumer, which nobody has called yet.
    ///
    /// # Panics
    /// If the case is not an asynchronous stream.
    pub unsafe fn drive(&self, handler: *mut ArrowAsyncDeviceStreamHandler) {
        match &self.input {
            // SAFETY: the caller's contract.
            Input::Async(producer) => unsafe { producer.drive(handler) },
            _ => panic!("{}: nothing to drive", self.case.name),
        }
    }

    /// Checks the ownership after the import. It must be called before anything that the import took is released.
    ///
    /// # Errors
    /// A fault of the ownership: a refused struct must be unchanged and still with its producer; a struct that was
    /// taken must not be released yet.
    pub fn after(&mut self, refused: bool) -> Result<(), String> {
        self.refused = Some(refused);
        let thing = match &self.input {
            Input::Struct(thing, _) => thing,
            Input::Stream(stream, _) => &stream.thing,
            _ => return Ok(()),
        };
        let releases = thing.all_releases();
        if releases > 0 {
            let what = if refused { "refused" } else { "taken" };
            return Err(format!("it was {what}, but its release was called {releases} times already"));
        }
        if refused && !thing.is_untouched() {
            return Err("it was refused, but it was changed".to_owned());
        }
        Ok(())
    }

    /// Checks the releases at the end, when everything imported is closed. The producer then releases what it still
    /// owns.
    ///
    /// # Errors
    /// The thing that was not released, or too often. The memory is then not given back, because somebody may still use
    /// it.
    pub fn end(self) -> Result<(), String> {
        self.let_go();
        let end = Instant::now() + patient(PATIENCE);
        loop {
            match self.check() {
                Ok(()) => return Ok(()),
                Err(_) if Instant::now() < end && !matches!(self.input, Input::Ipc(_)) => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(wrong) => {
                    std::mem::forget(self);
                    return Err(wrong);
                }
            }
        }
    }

    fn let_go(&self) {
        if self.refused == Some(true) {
            match &self.input {
                Input::Struct(thing, layout) => put_right(thing, layout),
                Input::Stream(stream, layout) => put_right(&stream.thing, layout),
                _ => {}
            }
        }
        // The schema was taken with the array, or put back, or not even looked at.
        if let Some(schema) = &self.schema {
            release(schema.root, &SCHEMA);
        }
    }

    fn check(&self) -> Result<(), String> {
        let Some(refused) = self.refused else { return Err("nobody said what became of the import".to_owned()) };
        let times = if refused { 1 } else { self.case.releases };
        if let Some(schema) = &self.schema {
            schema.check("the schema", 1)?;
        }
        match &self.input {
            Input::Struct(thing, _) => thing.check("the struct", times),
            Input::Stream(stream, _) => {
                stream.check_given()?;
                stream.thing.check("the stream", times)
            }
            Input::Async(producer) => producer.check(),
            // A lease that was never asked for, because the import was refused before, is not given up.
            Input::Ipc(exporter) => match (exporter.releases(), self.case.releases) {
                (None, _) if refused => Ok(()),
                (found, wanted) if found.unwrap_or(0) == wanted => Ok(()),
                (found, wanted) => Err(format!("the lease was given up {} times, not {wanted}", found.unwrap_or(0))),
            },
            Input::Own => Ok(()),
        }
    }
}

fn put_right(thing: &Thing, layout: &'static Struct) {
    thing.arena.put_back();
    release(thing.root, layout);
}

/// Calls the release of a struct, unless the struct was released or moved from.
fn release(root: usize, layout: &'static Struct) {
    let name = if std::ptr::eq(layout, &raw const VERSIONED) || std::ptr::eq(layout, &raw const LEGACY) {
        "deleter"
    } else if std::ptr::eq(layout, &raw const DEVICE_ARRAY) {
        return release(root, &ARRAY);
    } else {
        "release"
    };
    let (offset, _) = layout.field(name).expect("a release");
    let callback = std::ptr::with_exposed_provenance::<()>(word(root + offset));
    if callback.is_null() {
        return;
    }
    // SAFETY: every release of these structs takes the address of its struct.
    let callback = unsafe { std::mem::transmute::<*const (), unsafe extern "C" fn(usize)>(callback) };
    // SAFETY: the struct is valid, and still belongs to its producer.
    unsafe { callback(root) }
    // A deleter leaves the struct unchanged; nobody has it any more.
    if name == "deleter" {
        write(root + offset, &[0; 8]);
    }
}
