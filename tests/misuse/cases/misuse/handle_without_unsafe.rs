//! The core trusts the handle of a stream, so making a `RawStream` from a number needs `unsafe`.

use devexchange_core::dlpack::Request;
use devexchange_core::RawStream;

fn main() {
    let _ = Request { stream: RawStream::new(0x5eed), ..Request::default() };
}
