//! The structs of the standards and of our C API, laid out as in memory. No logic.

pub mod arrow_async;
pub mod arrow_data;
pub mod arrow_device;
pub mod arrow_device_stream;
pub mod arrow_stream;
pub mod cuda_array;
pub mod dlpack;
mod released;
pub mod types;
