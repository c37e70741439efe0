//! Arrow's structs as they are before anything is written, and after they were released or moved from.

use super::arrow_data::{ArrowArray, ArrowSchema};
use super::arrow_device::ArrowDeviceArray;
use super::arrow_device_stream::ArrowDeviceArrayStream;
use super::arrow_stream::ArrowArrayStream;

macro_rules! released {
    ($($name:ident),*) => {$(
        impl $name {
            /// An empty struct, whose `release` is NULL: room for an export, and what an import leaves behind.
            // SAFETY: all fields are numbers, addresses that may be NULL, or optional functions.
            pub const RELEASED: Self = unsafe { std::mem::zeroed() };
        }
    )*};
}

released!(ArrowSchema, ArrowArray, ArrowDeviceArray, ArrowArrayStream, ArrowDeviceArrayStream);
