//! Little-endian numbers and bytes, one after the other. Reading never goes beyond the given bytes, and allocates no more than
//! their number justifies.

#![forbid(unsafe_code)]

use crate::error::{Error, Result, refuse};
use crate::memory::vector;

/// Bytes to be written; a lack of memory is reported at the end.
#[derive(Debug, Default)]
pub(super) struct Writer {
    bytes: Vec<u8>,
    without_memory: bool,
}

macro_rules! numbers {
    ($($name:ident)*) => {
        impl Writer {
            $(pub(super) fn $name(&mut self, value: $name) {
                self.raw(&value.to_le_bytes());
            })*
        }

        impl Reader<'_> {
            $(pub(super) fn $name(&mut self, what: &'static str) -> Result<$name> {
                self.array(what).map(<$name>::from_le_bytes)
            })*
        }
    };
}
numbers! { u8 u16 u32 u64 i32 i64 }

impl Writer {
    /// Makes a writer with room for `bytes` bytes.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn with_room(bytes: usize) -> Result<Self> {
        Ok(Self { bytes: vector(bytes)?, without_memory: false })
    }

    /// Removes all bytes and keeps the room for the next ones.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.without_memory = false;
    }

    pub(super) fn raw(&mut self, bytes: &[u8]) {
        match self.bytes.try_reserve(bytes.len()) {
            Ok(()) => self.bytes.extend_from_slice(bytes),
            Err(_) => self.without_memory = true,
        }
    }

    /// Writes bytes, preceded by their number.
    pub(super) fn counted(&mut self, bytes: &[u8]) {
        self.u32(bytes.len() as u32);
        self.raw(bytes);
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns the bytes that were written.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn bytes(&self) -> Result<&[u8]> {
        if self.without_memory { Err(Error::no_memory(self.bytes.len())) } else { Ok(&self.bytes) }
    }

    /// Like [`Writer::bytes`], but consumes the writer.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn into_bytes(self) -> Result<Vec<u8>> {
        self.bytes()?;
        Ok(self.bytes)
    }
}

/// Bytes from a sender that may have made mistakes.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    total: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes, total: bytes.len() }
    }

    fn at(&self) -> usize {
        self.total - self.rest.len()
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        match self.rest.split_first_chunk::<N>() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(*bytes)
            }
            None => refuse!(
                DEVX_INVALID_ARGUMENT,
                "{what} has {N} bytes at {}, but there are {} in all",
                self.at(),
                self.total
            ),
        }
    }

    pub(super) fn raw(&mut self, bytes: usize, what: &'static str) -> Result<&'a [u8]> {
        match self.rest.split_at_checked(bytes) {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(bytes)
            }
            None => refuse!(
                DEVX_INVALID_ARGUMENT,
                "{what} has {bytes} bytes at {}, but there are {} in all",
                self.at(),
                self.total
            ),
        }
    }

    /// Reads what [`Writer::counted`] wrote.
    pub(super) fn counted(&mut self, what: &'static str) -> Result<&'a [u8]> {
        let bytes = self.u32(what)? as usize;
        self.raw(bytes, what)
    }

    /// Reads how many of something follow. The number is limited to `most`, and to the room that is left if each takes at least
    /// `each` bytes.
    pub(super) fn count(&mut self, what: &'static str, most: usize, each: usize) -> Result<usize> {
        let count = self.u32(what)? as usize;
        if count > most {
            return refuse!(DEVX_INVALID_ARGUMENT, "{what} is {count}: more than {most}");
        }
        if count.saturating_mul(each) > self.rest.len() {
            return refuse!(
                DEVX_INVALID_ARGUMENT,
                "{what} is {count}, but only {} bytes follow, {each} for each at least",
                self.rest.len()
            );
        }
        Ok(count)
    }

    /// Returns all bytes that are left.
    pub(super) fn rest(self) -> &'a [u8] {
        self.rest
    }

    /// Checks that nothing follows.
    pub(super) fn end(self) -> Result<()> {
        if self.rest.is_empty() {
            return Ok(());
        }
        refuse!(DEVX_INVALID_ARGUMENT, "{} bytes follow after the end at {}", self.rest.len(), self.at())
    }
}
