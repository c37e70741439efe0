//! What clients call on the way to kernels. Nothing is compiled or run here, and each of these says so with an
//! error instead of a result that would be wrong.

#![allow(non_snake_case, reason = "the names of the CUDA driver API")]

use crate::glue::entry_points;
use simcuda::Code;

entry_points! { TABLE, sim;
    fn cuModuleLoadData(_module: u64, _image: u64) { sim.ctx_device()?; Err(Code::INVALID_IMAGE) }
    fn cuModuleLoadDataEx(_module: u64, _image: u64, _n: u32, _options: u64, _values: u64) {
        sim.ctx_device()?;
        Err(Code::INVALID_IMAGE)
    }
    fn cuModuleUnload(_module: u64) { let _ = sim; Err(Code::INVALID_HANDLE) }
    fn cuLibraryUnload(_library: u64) { let _ = sim; Err(Code::INVALID_HANDLE) }
    fn cuGetExportTable(_table: u64, _id: u64) {
        sim.log_missing("cuGetExportTable (the runtime library's private interface)");
        Err(Code::NOT_FOUND)
    }
}
