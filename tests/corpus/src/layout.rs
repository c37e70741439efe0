//! The places of the fields of the standards' structs, by name: an edit can name any of them.

use std::mem::{offset_of, size_of};

use devexchange_core::abi::arrow_async::ArrowAsyncProducer;
use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::abi::arrow_device_stream::ArrowDeviceArrayStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;
use devexchange_core::abi::cuda_array::DevxCudaArray;
use devexchange_core::abi::dlpack::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPackVersion, DLTensor,
};

/// The type of a field.
#[derive(Clone, Copy)]
pub(crate) enum Type {
    /// A number of this many bytes.
    Number(usize),
    /// An address.
    Pointer,
    /// The address of a struct.
    To(&'static Struct),
    /// The address of a table of addresses of structs.
    Table(&'static Struct),
    /// A struct, in place.
    Inline(&'static Struct),
    /// The address of 64-bit numbers.
    Numbers,
    /// The address of a table of addresses.
    Pointers,
    /// 64-bit numbers, in place.
    Words,
}

/// A struct.
pub(crate) struct Struct {
    pub(crate) bytes: usize,
    fields: &'static [(&'static str, usize, Type)],
}

impl Struct {
    /// Offset and type of a field.
    pub(crate) fn field(&self, name: &str) -> Option<(usize, Type)> {
        self.fields.iter().find(|(other, ..)| *other == name).map(|&(_, offset, ty)| (offset, ty))
    }
}

macro_rules! layouts {
    ($($NAME:ident = $Struct:ty { $($field:ident: $ty:expr,)* })*) => {$(
        pub(crate) static $NAME: Struct = Struct {
            bytes: size_of::<$Struct>(),
            fields: &[$((stringify!($field), offset_of!($Struct, $field), $ty)),*],
        };
    )*};
}

const I8: Type = Type::Number(1);
const I16: Type = Type::Number(2);
const I32: Type = Type::Number(4);
const I64: Type = Type::Number(8);
const POINTER: Type = Type::Pointer;

layouts! {
    SCHEMA = ArrowSchema {
        format: POINTER, name: POINTER, metadata: POINTER, flags: I64, n_children: I64, children: Type::Table(&SCHEMA),
        dictionary: Type::To(&SCHEMA), release: POINTER, private_data: POINTER,
    }
    ARRAY = ArrowArray {
        length: I64, null_count: I64, offset: I64, n_buffers: I64, n_children: I64, buffers: Type::Pointers,
        children: Type::Table(&ARRAY), dictionary: Type::To(&ARRAY), release: POINTER, private_data: POINTER,
    }
    DEVICE_ARRAY = ArrowDeviceArray {
        array: Type::Inline(&ARRAY), device_id: I64, device_type: I32, sync_event: POINTER, reserved: Type::Words,
    }
    STREAM = ArrowArrayStream {
        get_schema: POINTER, get_next: POINTER, get_last_error: POINTER, release: POINTER, private_data: POINTER,
    }
    DEVICE_STREAM = ArrowDeviceArrayStream {
        device_type: I32, get_schema: POINTER, get_next: POINTER, get_last_error: POINTER, release: POINTER,
        private_data: POINTER,
    }
    PRODUCER = ArrowAsyncProducer {
        device_type: I32, request: POINTER, cancel: POINTER, additional_metadata: POINTER, private_data: POINTER,
    }
    VERSION = DLPackVersion { major: I32, minor: I32, }
    DEVICE = DLDevice { device_type: I32, device_id: I32, }
    DTYPE = DLDataType { code: I8, bits: I8, lanes: I16, }
    TENSOR = DLTensor {
        data: POINTER, device: Type::Inline(&DEVICE), ndim: I32, dtype: Type::Inline(&DTYPE), shape: Type::Numbers,
        strides: Type::Numbers, byte_offset: I64,
    }
    VERSIONED = DLManagedTensorVersioned {
        version: Type::Inline(&VERSION), manager_ctx: POINTER, deleter: POINTER, flags: I64,
        dl_tensor: Type::Inline(&TENSOR),
    }
    LEGACY = DLManagedTensor { dl_tensor: Type::Inline(&TENSOR), manager_ctx: POINTER, deleter: POINTER, }
    CUDA_ARRAY = DevxCudaArray {
        version: I32, read_only: I32, data: POINTER, ndim: I64, shape: Type::Numbers, strides: Type::Numbers,
        typestr: POINTER, descr: POINTER, mask: Type::To(&CUDA_ARRAY), stream: I64, release: POINTER,
        private_data: POINTER,
    }
}
