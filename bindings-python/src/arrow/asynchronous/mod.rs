//! Asynchronous streams, without the waiting, and the bell that tells a Python event loop to look.

pub(crate) mod bell;
pub(crate) mod reader;
pub(crate) mod writer;
