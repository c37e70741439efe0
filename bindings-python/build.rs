//! Passes on whether the interpreter has a GIL (`Py_GIL_DISABLED`), as found by PyO3.
fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
