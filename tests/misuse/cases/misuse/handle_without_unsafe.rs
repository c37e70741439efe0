//! A handle of a stream is believed, so only who vouches for it may name one.

use devexchange_core::dlpack::Request;
use devexchange_core::RawStream;

fn main() {
    let _ = Request { stream: RawStream::new(0x5eed), ..Request::default() };
}
