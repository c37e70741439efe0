//! Bad input, described once for all languages, and a producer that makes it.
//!
//! The files in `cases/` say what is wrong with which struct, which error names it, and what becomes of the struct.
//! [`Made`] is a case in memory: structs at addresses, with callbacks that count. A runner imports it through the API
//! of its language, compares the error, and asks [`Made::after`] and [`Made::end`] whether everything was given back
//! correctly. Languages other than Rust use the same through [`ffi`] (`corpus.h`).
//!
//! The corpus calls nothing of the library under test; it uses only that library's definitions of the standards'
//! structs and the numbers of its statuses.
#![expect(clippy::expect_used, clippy::panic, reason = "what only tests call fails by panicking")]

mod asynchronous;
pub mod callback;
mod consumer;
mod cuda;
mod cuda_array;
mod description;
mod edit;
pub mod fault;
pub mod ffi;
mod ipc;
mod layout;
mod made;
mod memory;
#[path = "../../../core/tests/patience/mod.rs"]
mod patience;
mod stream;
mod tensor;
mod thing;
mod tree;

pub use description::{Case, LANGUAGES, cases};
pub use made::Made;
