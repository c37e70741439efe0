//! When memory may be touched: streams that programs name, and streams that are made here.

pub(crate) mod device_stream;
pub(crate) mod raw_stream;
pub(crate) mod stream;
