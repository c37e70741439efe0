//! The native half of the Python binding: the module `devexchange._native`. Programs use the package `devexchange`
//! (`python/devexchange`), which re-exports the names defined here.
//!
//! Each file has one noun and each folder one subject, with the names of the core. From the bottom up:
//!
//! * [`python`] has everything that deals with the interpreter.
//! * [`device`], [`dtype`], [`shape`] and [`order`] read what programs name in arguments.
//! * [`dlpack`], [`copy`] and [`convert`] know only the core's types.
//! * [`tensor`], [`arrow`], [`manager`] and [`ipc`] have the objects that programs use. Methods turn a tensor and a batch into
//!   each other; the methods of a tensor are above both.
//!
//! A method converts, guards and delegates. A Python object holds a counted reference to an object of the core. Python
//! objects that the core holds are given up through [`python::queue`].

mod arrow;
mod convert;
mod copy;
mod device;
mod dlpack;
mod dtype;
mod ipc;
mod ledger;
mod manager;
mod order;
mod python;
mod shape;
mod tensor;

use pyo3::prelude::*;

// Without a GIL, a lock (`handle`, `queue`) or a critical section (`capsule`) makes steps atomic where necessary.
#[pymodule(gil_used = false)]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use crate::arrow::asynchronous::bell::Bell;
    #[pymodule_export]
    use crate::arrow::asynchronous::reader::AsyncReader;
    #[pymodule_export]
    use crate::arrow::asynchronous::writer::AsyncWriter;
    #[pymodule_export]
    use crate::arrow::batch::RecordBatch;
    #[pymodule_export]
    use crate::arrow::batch_stream::BatchStream;
    #[pymodule_export]
    use crate::arrow::column::Column;
    #[pymodule_export]
    use crate::arrow::field::Field;
    #[pymodule_export]
    use crate::arrow::from_arrow::from_arrow;
    #[pymodule_export]
    use crate::arrow::schema::Schema;
    #[pymodule_export]
    use crate::device::{device_count, device_info, device_name};
    #[pymodule_export]
    use crate::ipc::{Client, Server, empty_shared, plan_offer};
    #[pymodule_export]
    use crate::ledger::{ledger, outstanding, releases_lost, releases_waiting};
    #[pymodule_export]
    use crate::manager::MemoryManager;
    #[pymodule_export]
    use crate::manager::empty::empty;
    #[pymodule_export]
    use crate::manager::memory::Memory;
    #[pymodule_export]
    use crate::manager::torch::give_torch;
    #[pymodule_export]
    use crate::order::device_stream::DeviceStream;
    #[pymodule_export]
    use crate::python::error::status_name;
    #[pymodule_export]
    use crate::tensor::buffer::from_buffer;
    #[pymodule_export]
    use crate::tensor::cuda_array::from_cuda_array_interface;
    #[pymodule_export]
    use crate::tensor::from_dlpack::from_dlpack;
    #[pymodule_export]
    use crate::tensor::methods::close_after;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        crate::python::interpreter::require_main(module.py())?;
        crate::python::error::add_classes(module)?;
        module.add("Tensor", crate::tensor::type_object::init(module.py())?)?;
        crate::tensor::from_dlpack::add_quick(module)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))?;
        crate::python::queue::at_exit(module.py())
    }
}
