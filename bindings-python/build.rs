//! Says whether the interpreter has a GIL (`Py_GIL_DISABLED`), as PyO3 has found out.
fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
