//! devexchange-core: what an exchange of device memory means, in one place.
//!
//! An exchange answers four questions, and each has its modules:
//! * **what** is it: [`dtype`], [`layout`], [`schema`](arrow::schema)
//! * **where** is it: [`device`]
//! * **who** keeps it alive: [`memory`]
//! * **when** may it be touched: [`order`]
//!
//! [`Tensor`] and [`Batch`] are the answers together. The protocols, [`dlpack`] and [`arrow`], only translate
//! between them and the structs of the standards, which lie in [`abi`]; [`convert`] turns one into the other.
//!
//! Ownership is handed over in three ways, named alike in every language: *share* (the owner is counted: clone
//! and export), *move* (export the thing itself), *borrow* (a view for the length of one call). An import takes
//! ownership only if it succeeds.

pub mod abi;
pub mod arrow;
#[cfg(feature = "arrow")]
pub mod arrow_rs;
pub mod convert;
pub mod cuda_array;

pub mod device;
pub mod dlpack;
pub mod dtype;
pub mod error;
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
pub mod text;
pub mod trace;

pub use arrow::{Batch, BatchStream, Column, Schema};
pub use device::{Device, DeviceType};
pub use dtype::{DType, Element};
pub use error::{Error, Refused, Result};
pub use memory::Owner;
pub use tensor::{Borrowed, Flags, Tensor, TensorDesc};
