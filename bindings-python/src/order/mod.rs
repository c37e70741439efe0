//! When memory may be touched: streams, those that programs name and those that are made here.

pub(crate) mod device_stream;
pub(crate) mod raw_stream;
pub(crate) mod stream;
