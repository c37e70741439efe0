//! Streams of batches with one schema, on one kind of device, pulled one after the other.
//!
//! A stream comes from Rust ([`BatchStream::new`]) or from a producer of the Arrow C stream interface or of the C
//! Device data interface ("Device Stream Interface"), and goes to Rust ([`BatchStream::next`]) or to a consumer of
//! either interface.

mod alone;
mod export;
mod import;
mod interface;

use std::fmt;
use std::iter::FusedIterator;
use std::panic::{RefUnwindSafe, UnwindSafe};

use alone::Alone;

use super::batch::Batch;
use super::format::Type;
use super::schema::Schema;
use crate::abi::types::DEVX_BUSY;
use crate::device::{Device, DeviceType};
use crate::error::{Error, Result, caught, refuse};
use crate::memory::{Shielded, Slab, TailSize, Vacant, held_by_bindings};
use crate::text::Name;

/// A stream of batches. Cloning shares it: a batch that one clone pulls, the others do not get.
///
/// Any thread may use it, but only one call at a time: a call that comes while another one runs is refused with
/// `DEVX_BUSY`. The source is given up when the last clone is gone. The batches do not depend on the stream that they
/// came from.
///
/// A source in Rust for a consumer in C, whose part this example plays in Rust:
///
/// ```
/// use devexchange_core::dlpack::Copying;
/// use devexchange_core::{BatchStream, DeviceType, Result, Tensor, convert};
///
/// # fn main() -> Result<()> {
/// let batch = |first: i64| {
///     let rows = Tensor::from_vec(vec![first, first + 1, first + 2], &[3, 1])?;
///     convert::batch(&rows, &["n"], Copying::Never)
/// };
/// let schema = batch(0)?.schema().clone();
/// let stream = BatchStream::of(&schema, DeviceType::CPU, [0, 3].map(batch))?;
///
/// let mut handed = stream.export_owned()?; // its address is for the consumer (`as_mut_ptr`)
/// let pulled = handed.import()?;
/// let mut values = Vec::new();
/// while let Some(batch) = pulled.next()? {
///     values.extend_from_slice(batch.column_named("n").unwrap().values::<i64>()?);
/// }
/// assert_eq!(values, [0, 1, 2, 3, 4, 5]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct BatchStream(Slab<Header>);

struct Header {
    schema: Schema,
    device_type: DeviceType,
    /// How many streams of this library were exported and imported below this one, each pulling from the next.
    depth: usize,
    state: Alone<State>,
}

struct State {
    source: Source,
    /// How the stream ended, if it did; this never changes afterwards.
    end: Option<Result<()>>,
}

type Source = Shielded<Box<dyn FnMut() -> Result<Option<Batch>> + Send>>;

fn source(pull: Box<dyn FnMut() -> Result<Option<Batch>> + Send>) -> Source {
    Shielded::new("a stream's source", pull)
}

// A source that panics ends its stream; everything else that changes does so in one step.
impl UnwindSafe for BatchStream {}
impl RefUnwindSafe for BatchStream {}

impl BatchStream {
    /// Makes a stream of what `source` returns: batches, then `None`.
    ///
    /// `source` is called on whatever thread pulls, and not again after `None` or an error. A panic in it is an error
    /// ([`BatchStream::next`]); one in its drop is caught and traced.
    ///
    /// # Errors
    /// `DEVX_DEVICE` for a device type that is unknown or that this library has no runtime for, `DEVX_OUT_OF_MEMORY`. The
    /// source is dropped; to keep it in this case, use [`BatchStream::with`].
    pub fn new(
        schema: &Schema,
        device_type: DeviceType,
        source: impl FnMut() -> Result<Option<Batch>> + Send + 'static,
    ) -> Result<Self> {
        Self::with(schema, device_type, || source)
    }

    /// Makes a stream of batches that exist already or are made one by one.
    ///
    /// # Errors
    /// Same as [`BatchStream::new`].
    pub fn of<I>(schema: &Schema, device_type: DeviceType, batches: I) -> Result<Self>
    where
        I: IntoIterator<Item = Result<Batch>, IntoIter: Send + 'static>,
    {
        let mut batches = batches.into_iter();
        Self::new(schema, device_type, move || batches.next().transpose())
    }

    /// Like [`BatchStream::new`], but for a source that must be taken only if nothing fails: `take` is called last, or
    /// never.
    ///
    /// # Errors
    /// Same as [`BatchStream::new`]; then `take` was not called.
    pub fn with<F>(schema: &Schema, device_type: DeviceType, take: impl FnOnce() -> F) -> Result<Self>
    where
        F: FnMut() -> Result<Option<Batch>> + Send + 'static,
    {
        Self::above(0, schema, device_type, take)
    }

    /// Like [`BatchStream::with`], but above `depth` other streams.
    fn above<F>(depth: usize, schema: &Schema, device_type: DeviceType, take: impl FnOnce() -> F) -> Result<Self>
    where
        F: FnMut() -> Result<Option<Batch>> + Send + 'static,
    {
        require_runtime(device_type)?;
        let room = Vacant::new()?;
        // A closure without captures takes no memory.
        let state = Alone::new(State { source: source(Box::new(|| Ok(None))), end: None });
        let header = Header { schema: schema.clone(), device_type, depth, state };
        let mut slab = Slab::new(header, TailSize::default())?;
        if let Some(state) = slab.unique().map(|header| header.state.get_mut()) {
            state.source = source(room.fill(take()));
        }
        Ok(Self(slab))
    }

    /// Returns the next batch, or `None` at the end. The end and an error are final: the source is not called again
    /// after either, and every later call returns the same.
    ///
    /// # Errors
    /// * The error of the source; `DEVX_CALLBACK` in place of `DEVX_BUSY` from it.
    /// * `DEVX_CALLBACK` if the callback of a producer failed, with its code and its text ([`crate::Error::errno`]).
    /// * The errors of [`Batch::import`] for an array of a producer, which is then released.
    /// * `DEVX_MISMATCH` or `DEVX_DEVICE` if the batch does not fit the stream's schema or device type.
    /// * `DEVX_PANIC` if the source panicked.
    /// * `DEVX_BUSY` while another call runs: that call goes on, and so does the stream.
    pub fn next(&self) -> Result<Option<Batch>> {
        match self.pull() {
            Some(next) => next,
            None => Err(busy()),
        }
    }

    /// Like [`BatchStream::next`], but returns `None` while another call runs.
    fn pull(&self) -> Option<Result<Option<Batch>>> {
        let header = self.0.header();
        header.state.with(|state| {
            if let Some(end) = &state.end {
                return end.clone().map(|()| None);
            }
            let given = caught(&mut **state.source);
            let next = given.and_then(|batch| match batch {
                Some(batch) => header.require_fit(&batch).map(|()| Some(batch)),
                None => Ok(None),
            });
            // From this library, `DEVX_BUSY` means that another call runs and that nothing is lost.
            let next = next.map_err(|error| match error.status() {
                DEVX_BUSY => Error::callback(libc::EBUSY, format_args!("{}", error.message())),
                _ => error,
            });
            if !matches!(next, Ok(Some(_))) {
                state.end = Some(next.as_ref().map(|_| ()).map_err(Error::clone));
            }
            next
        })
    }

    /// Iterates over the remaining batches. An error comes once, then nothing more.
    pub fn batches(&self) -> Batches<'_> {
        Batches { stream: self, over: false }
    }

    /// The schema of all batches.
    pub fn schema(&self) -> &Schema {
        &self.0.header().schema
    }

    /// The kind of device that all batches lie on. Each batch says which device of that kind.
    pub fn device_type(&self) -> DeviceType {
        self.0.header().device_type
    }
}

held_by_bindings!(BatchStream, "stream");

impl fmt::Debug for BatchStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchStream")
            .field("device_type", &self.device_type())
            .field("schema", self.schema())
            .finish_non_exhaustive()
    }
}

/// The error that another call runs.
fn busy() -> Error {
    Error::new(DEVX_BUSY, "the stream is in use by another call: it is for one at a time")
}

impl Header {
    fn require_fit(&self, batch: &Batch) -> Result<()> {
        require_device_type(batch.device().kind, self.device_type)?;
        require_same_shape(batch.schema(), &self.schema)
    }
}

/// Refuses a device type whose arrays could never be imported.
pub(in crate::arrow) fn require_runtime(device_type: DeviceType) -> Result<()> {
    // If there is a device of the type, there is one with number 0.
    Device::new(device_type, 0).map(drop)
}

/// Refuses an array on another kind of device than its stream.
pub(in crate::arrow) fn require_device_type(array: DeviceType, stream: DeviceType) -> Result<()> {
    match array == stream {
        true => Ok(()),
        false => refuse!(DEVX_DEVICE, "device_type is {array}: the stream's is {stream}"),
    }
}

/// Refuses a schema whose arrays lie differently in memory, or whose columns or struct members have other names,
/// because a consumer relies on those of the stream. Flags, metadata and other names may differ.
#[inline]
pub(in crate::arrow) fn require_same_shape(batch: &Schema, stream: &Schema) -> Result<()> {
    // The usual case.
    if batch.is(stream) { Ok(()) } else { compare_shapes(batch, stream) }
}

/// Compares field by field. Nodes are numbered level by level: up to the first difference, the same number means the
/// same field. Trees of different size differ in the children or dictionary of a field that both have.
#[cold]
fn compare_shapes(batch: &Schema, stream: &Schema) -> Result<()> {
    for (theirs, ours) in (0..stream.nodes()).filter_map(|node| Some((batch.field(node)?, stream.field(node)?))) {
        let is_root = ours.node() == 0;
        let field = fmt::from_fn(|f| if is_root { Ok(()) } else { write!(f, "field {}: ", Name(ours.name())) });
        if theirs.format() != ours.format() {
            let (theirs, ours) = (theirs.format(), ours.format());
            return refuse!(DEVX_MISMATCH, "{field}the format is {theirs:?}, the stream's is {ours:?}");
        }
        let (n, wanted) = (theirs.n_children(), ours.n_children());
        if n != wanted {
            return match is_root {
                true => refuse!(DEVX_MISMATCH, "the batch has {n} columns, the stream {wanted}"),
                false => refuse!(DEVX_MISMATCH, "{field}n_children is {n}, the stream's is {wanted}"),
            };
        }
        if theirs.dictionary().is_some() != ours.dictionary().is_some() {
            return refuse!(DEVX_MISMATCH, "{field}only one of batch and stream has a dictionary");
        }
        let members = || theirs.children().zip(ours.children()).enumerate().filter(|_| ours.ty() == Type::Struct);
        if let Some((i, (theirs, ours))) = members().find(|(_, (theirs, ours))| theirs.raw_name() != ours.raw_name()) {
            let (theirs, ours) = (Name(theirs.name()), Name(ours.name()));
            return refuse!(DEVX_MISMATCH, "{field}column {i} is named {theirs}, the stream's {ours}");
        }
    }
    Ok(())
}

/// The iterator that [`BatchStream::batches`] returns.
#[derive(Debug)]
pub struct Batches<'a> {
    stream: &'a BatchStream,
    over: bool,
}

/// The iterator that a stream becomes: like [`Batches`], but it keeps its reference to the stream.
#[derive(Debug)]
pub struct IntoBatches {
    stream: BatchStream,
    over: bool,
}

/// Pulls the next batch, unless the iterator is `over`.
fn pull(stream: &BatchStream, over: &mut bool) -> Option<Result<Batch>> {
    if *over {
        return None;
    }
    let next = stream.next().transpose();
    *over = !matches!(next, Some(Ok(_)));
    next
}

impl Iterator for Batches<'_> {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        pull(self.stream, &mut self.over)
    }
}

impl Iterator for IntoBatches {
    type Item = Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        pull(&self.stream, &mut self.over)
    }
}

impl FusedIterator for Batches<'_> {}
impl FusedIterator for IntoBatches {}

/// The remaining batches, for a caller that does not keep the stream.
impl IntoIterator for BatchStream {
    type Item = Result<Batch>;
    type IntoIter = IntoBatches;

    fn into_iter(self) -> IntoBatches {
        IntoBatches { stream: self, over: false }
    }
}

impl<'a> IntoIterator for &'a BatchStream {
    type Item = Result<Batch>;
    type IntoIter = Batches<'a>;

    fn into_iter(self) -> Batches<'a> {
        self.batches()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::types::DEVX_MISMATCH;
    use crate::arrow::schema::FieldDesc;

    fn of_children(n_children: u32, of: FieldDesc<'_>) -> FieldDesc<'_> {
        FieldDesc { n_children, ..of }
    }

    #[test]
    fn the_first_field_that_differs_is_named() {
        let (root, n, s) = (FieldDesc::batch(2), FieldDesc::new(c"n", c"i"), FieldDesc::new(c"s", c"+s"));
        let list = FieldDesc::new(c"s", c"+l");
        let encoded = FieldDesc { has_dictionary: true, ..n };
        let stream = Schema::new(&[root, n, of_children(2, s), n, n]).unwrap();
        for (fields, why) in [
            (&[FieldDesc::batch(1), n][..], "the batch has 1 columns, the stream 2"),
            (&[n], "the format is \"i\", the stream's is \"+s\""),
            (&[root, n, FieldDesc::new(c"s", c"i")], "field \"s\": the format is \"i\", the stream's is \"+s\""),
            (&[root, n, of_children(1, list), n], "field \"s\": the format is \"+l\", the stream's is \"+s\""),
            (&[root, n, of_children(1, s), n], "field \"s\": n_children is 1, the stream's is 2"),
            (&[root, n, of_children(3, s), n, n, n], "field \"s\": n_children is 3, the stream's is 2"),
            (
                &[root, encoded, n, of_children(2, s), n, n],
                "field \"n\": only one of batch and stream has a dictionary",
            ),
        ] {
            let refused = require_same_shape(&Schema::new(fields).unwrap(), &stream).unwrap_err();
            assert_eq!((refused.status(), refused.message()), (DEVX_MISMATCH, why));
        }
        let m = FieldDesc::new(c"m", c"i");
        for (fields, why) in [
            (&[root, m, of_children(2, s), n, n], "column 0 is named \"m\", the stream's \"n\""),
            (&[root, n, of_children(2, s), n, m], "field \"s\": column 1 is named \"m\", the stream's \"n\""),
        ] {
            let refused = require_same_shape(&Schema::new(fields).unwrap(), &stream).unwrap_err();
            assert_eq!((refused.status(), refused.message()), (DEVX_MISMATCH, why));
        }
        // No consumer relies on the name of a list's items.
        let lists =
            |name| Schema::new(&[FieldDesc::batch(1), of_children(1, list), FieldDesc::new(name, c"i")]).unwrap();
        assert_eq!(require_same_shape(&lists(c"item"), &lists(c"element")), Ok(()));
        let same = Schema::new(&[root, n, of_children(2, s), n, n]).unwrap();
        assert_eq!(require_same_shape(&same, &stream), Ok(()));
    }
}
