//! Asynchronous streams, without the waiting, and the bell that tells a loop of Python's to look.

pub(crate) mod bell;
pub(crate) mod reader;
pub(crate) mod writer;
