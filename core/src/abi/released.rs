//! The structs of Arrow before anything is written, and after they were released or moved from.

use super::arrow_data::{ArrowArray, ArrowSchema};
use super::arrow_device::ArrowDeviceArray;
use super::arrow_device_stream::ArrowDeviceArrayStream;
use super::arrow_stream::ArrowArrayStream;

macro_rules! released {
    ($($name:ident),*) => {$(
        impl $name {
            /// Holds nothing: a place for an export, and what an import leaves behind (its `release` is NULL).
            // SAFETY: all fields are numbers, addresses that may be NULL, and functions that there need not be.
            pub const RELEASED: Self = unsafe { std::mem::zeroed() };
        }
    )*};
}

released!(ArrowSchema, ArrowArray, ArrowDeviceArray, ArrowArrayStream, ArrowDeviceArrayStream);
