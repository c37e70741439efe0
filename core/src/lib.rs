#![doc = include_str!("../README.md")]
//!
//! # Where things are
//!
//! An exchange answers four questions, and each has its modules:
//! * **what** is it: [`dtype`], [`layout`], [`schema`](arrow::schema)
//! * **where** is it: [`device`]
//! * **who** keeps it alive: [`memory`]
//! * **when** may it be touched: [`order`], [`stream`]
//!
//! A [`Tensor`] or a [`Batch`] holds all four answers. The protocol modules, [`dlpack`], [`arrow`] and [`cuda_array`], only
//! translate between these two types and the structs of the standards, which are in [`abi`]. [`convert`] turns tensors into
//! batches and back, [`ipc`] hands both to other processes, and a [`manager`] can provide their memory. The [`ledger`]
//! counts what is not released yet.
//!
//! There are three ways to hand something over, with these names where the language allows: *share* (the owner is
//! reference-counted: clone, then export), *move* (export the handle itself) and *borrow* (a view that is valid as long as the
//! handle). An import takes ownership only if it succeeds.
//!
//! What is refused is an [`Error`]: a status, a text that names the field and its value, and the code of the driver or the
//! system if there is one. A call that was given something gives it back with the error ([`Refused`]).
//!
//! Device memory follows the same rules, with a [`Stream`] that work is queued on: the producer calls
//! [`Tensor::produced_on`], the consumer [`Tensor::wait`] and [`Tensor::used_on`]. The memory is released only after the
//! work that was named. The CUDA driver is looked for when a program first asks for a CUDA device; without a driver, that
//! is an error.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "devexchange is for Linux only: sealed memory files, abstract sockets and more of what it uses are Linux's own"
);

pub mod abi;
pub mod arrow;
#[cfg(feature = "arrow")]
pub mod arrow_rs;
pub mod convert;
pub mod cuda_array;
#[cfg(feature = "cudarc")]
pub mod cudarc_slice;
pub mod device;
pub mod dlpack;
pub mod dtype;
pub mod error;
// Public for the bindings, which are built together with this crate. Not part of the API; no version promises it.
#[doc(hidden)]
pub mod fork;
pub mod ipc;
pub mod layout;
pub mod ledger;
mod local;
pub mod manager;
pub mod memory;
pub mod order;
pub mod runtime;
mod setting;
pub mod stream;
mod sync;
pub mod tensor;
// Public like `fork`.
#[doc(hidden)]
pub mod text;
mod thread;
pub mod trace;
mod transfer;
mod vacant;
mod view;

pub use arrow::{Batch, BatchStream, Column, Schema};
pub use device::{Device, DeviceType};
pub use dtype::{DType, Element, Storable};
pub use error::{Error, Refused, Result};
pub use memory::{Borrowed, Owner};
pub use runtime::cuda::DeviceStream;
pub use stream::{RawStream, Stream};
pub use tensor::{Flags, Tensor, TensorDesc};

// The crates whose types appear in the API, in the versions that it uses.
#[cfg(feature = "cudarc")]
pub use cudarc;
#[cfg(feature = "half")]
pub use half;
#[cfg(feature = "arrow")]
pub use {arrow_array, arrow_schema};
pub use {futures_core, futures_sink};
