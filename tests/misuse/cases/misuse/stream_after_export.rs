//! An exported stream belongs to the consumer: the producer cannot read from it any more.

use devexchange_core::BatchStream;
use devexchange_core::abi::arrow_stream::ArrowArrayStream;

fn hand_over(stream: BatchStream, out: &mut ArrowArrayStream) {
    // SAFETY: the caller's struct, which holds nothing.
    unsafe { stream.export(out) }.unwrap();
    let _ = stream.next();
}

fn main() {
    let _ = hand_over;
}
