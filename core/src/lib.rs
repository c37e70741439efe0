//! devexchange-core: what an exchange of device memory means, in one place.
//!
//! An exchange answers four questions, and each has its modules:
//! * **what** is it: [`dtype`], [`layout`], [`schema`](arrow::schema)
//! * **where** is it: [`device`]
//! * **who** keeps it alive: [`memory`]
//! * **when** may it be touched: [`order`]
//!
//! [`Tensor`] and [`Batch`] are the answers together. The protocols, [`dlpack`], [`arrow`] and [`cuda_array`], only
//! translate between them and the structs of the standards, which lie in [`abi`]; [`convert`] turns one into the other,
//! [`ipc`] takes both to other processes. Their memory may come from a [`manager`]. The [`ledger`] counts what is not
//! released yet.
//!
//! Ownership is handed over in three ways, named alike in every language: *share* (the owner is counted: clone
//! and export), *move* (export the thing itself), *borrow* (a view for the length of one call). An import takes
//! ownership only if it succeeds.
//!
//! Memory of a vector's goes to a consumer of DLPack, who calls the deleter when it is done; what a producer gives
//! comes in the same way:
//!
//! ```
//! use devexchange_core::abi::dlpack::DLManagedTensorVersioned;
//! use devexchange_core::dlpack::{self, Request};
//! use devexchange_core::{Tensor, ledger};
//!
//! # fn main() -> devexchange_core::Result<()> {
//! let tensor = Tensor::from_vec(vec![1.0_f64, 2.0, 3.0, 4.0, 5.0, 6.0], &[2, 3])?;
//! let handed: *mut DLManagedTensorVersioned = dlpack::share(&tensor, &Request::default())?.into_raw();
//! // `handed` may cross a C ABI now. Who takes it in on the other side, in Rust too:
//! // SAFETY: a valid tensor, which nobody else owns.
//! let seen = unsafe { dlpack::import(handed) }?;
//! assert_eq!(seen.shape(), [2, 3]);
//! assert_eq!(seen.as_slice::<f64>()?, tensor.as_slice::<f64>()?);
//! drop((tensor, seen));
//! assert_eq!(ledger::outstanding(), 0);
//! # Ok(())
//! # }
//! ```
//!
//! Device memory is the same, with a [`Stream`](runtime::cuda::Stream) where work is queued: [`Tensor::produced_on`] by the
//! producer, [`Tensor::wait`] and [`Tensor::used_on`] by the consumer. The memory is released only after the work that was
//! named. The CUDA driver is looked for when a program first asks for a CUDA device; without one, that is an error.
//!
//! # Features
//! | feature | what there is then |
//! |---|---|
//! | `arrow` | arrays, schemas and record batch readers of arrow-rs, both ways (`arrow_rs`) |
//! | `cudarc` | slices and streams of cudarc, both ways (`cudarc_slice`) |
//! | `half` | elements of the 16-bit floats of `half` |
//! | `cuda-version-from-build-system` (default) | the version of CUDA that cudarc is built for is that of `nvcc`, or the newest |
//! | `cuda-12090` | cudarc is built for CUDA 12.9, whatever the machine has |
//! | `static-tls` | what a thread has of its own is found faster, for programs that are linked or started with this library |
//!
//! The exchange itself needs none of them, on CUDA devices neither.
#![cfg_attr(docsrs, feature(doc_cfg))]

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
// Public for the bindings, which are built together with this: no part of the API, and no version promises it.
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
mod sync;
pub mod tensor;
// As `fork`.
#[doc(hidden)]
pub mod text;
mod thread;
pub mod trace;
mod view;

pub use arrow::{Batch, BatchStream, Column, Schema};
pub use device::{Device, DeviceType};
pub use dtype::{DType, Element};
pub use error::{Error, Refused, Result};
pub use memory::Owner;
pub use tensor::{Borrowed, Flags, Tensor, TensorDesc};

// The crates whose types are in the API, in the versions that these are of.
#[cfg(feature = "cudarc")]
pub use cudarc;
#[cfg(feature = "half")]
pub use half;
#[cfg(feature = "arrow")]
pub use {arrow_array, arrow_schema};
pub use {futures_core, futures_sink};
