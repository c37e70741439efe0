//! Boxes, vectors and texts that return an error if there is no memory, where those of std end the process.
//!
//! Everything whose size comes from a description, and everything that an exchange needs, is allocated here or in a slab.

use std::alloc::{Layout, alloc_zeroed};
use std::borrow::Cow;
use std::fmt;

use crate::error::{Error, Result};
use crate::text::formatted;
use crate::vacant::Vacant;

impl<T> Vacant<T> {
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub fn new() -> Result<Self> {
        Self::find().ok_or_else(|| Error::no_memory(size_of::<T>()))
    }
}

/// Puts a value in a box; if there is no memory for it, the value is dropped.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`.
pub fn boxed<T>(value: T) -> Result<Box<T>> {
    Ok(Vacant::new()?.fill(value))
}

/// An empty vector with room for `n` values: pushing that many allocates nothing.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`.
pub fn vector<T>(n: usize) -> Result<Vec<T>> {
    let mut all = Vec::new();
    match all.try_reserve_exact(n) {
        Ok(()) => Ok(all),
        Err(_) => Err(Error::no_memory(n.saturating_mul(size_of::<T>()))),
    }
}

/// A vector of `n` zeros. They are not written if the system's memory is zero already.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`.
pub(crate) fn zeros(n: usize) -> Result<Vec<u128>> {
    let layout = match Layout::array::<u128>(n) {
        Ok(layout) if n > 0 => layout,
        _ => return vector(n),
    };
    // SAFETY: the size is not zero.
    let first = unsafe { alloc_zeroed(layout) };
    if first.is_null() {
        return Err(Error::no_memory(layout.size()));
    }
    // SAFETY: allocated for `n` numbers, and zero bits are valid numbers.
    Ok(unsafe { Vec::from_raw_parts(first.cast(), n, n) })
}

/// A vector of `n` times the same value.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`.
pub fn repeated<T: Clone>(value: T, n: usize) -> Result<Vec<T>> {
    let mut all = vector(n)?;
    all.resize(n, value);
    Ok(all)
}

/// Adds a value to a vector; if there is no memory for it, the value is dropped.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`.
pub fn push<T>(all: &mut Vec<T>, value: T) -> Result<()> {
    if all.try_reserve(1).is_err() {
        return Err(Error::no_memory(size_of::<T>()));
    }
    all.push(value);
    Ok(())
}

/// Collects the values of an iterator; stops at the first error.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`, and the errors of the iterator.
pub fn collected<T>(values: impl IntoIterator<Item = Result<T>>) -> Result<Vec<T>> {
    let mut values = values.into_iter();
    let mut all = vector(values.size_hint().0)?;
    values.try_for_each(|value| push(&mut all, value?))?;
    Ok(all)
}

/// A formatted text.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`.
pub fn said(text: fmt::Arguments<'_>) -> Result<Cow<'static, str>> {
    formatted(text).ok_or_else(|| Error::no_memory(0))
}

/// An owned copy of a text.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`.
pub(crate) fn string(text: &str) -> Result<String> {
    let mut own = String::new();
    own.try_reserve_exact(text.len()).map_err(|_| Error::no_memory(text.len()))?;
    own.push_str(text);
    Ok(own)
}
