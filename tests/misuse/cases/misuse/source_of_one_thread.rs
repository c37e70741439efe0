//! A batch stream may be read on any thread, so its source must be `Send`.

use std::rc::Rc;

use devexchange_core::{BatchStream, DeviceType, Schema};

fn stream(schema: &Schema, kept: Rc<()>) {
    let source = move || {
        let _ = &kept;
        Ok(None)
    };
    let _ = BatchStream::new(schema, DeviceType::CPU, source);
}

fn main() {
    let _ = stream;
}
