//! What happens when the JVM is about to exit.

use crate::error::Result;
use crate::native::plain;
use crate::{allocator, batch_stream};

plain! { answers_close() }
/// Ends every wait for Java, present and future.
fn answers_close() -> Result<()> {
    batch_stream::close();
    allocator::close();
    Ok(())
}
