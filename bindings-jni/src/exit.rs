//! When the JVM is about to end.

use crate::error::Result;
use crate::native::plain;
use crate::{allocator, batch_stream};

plain! { answers_close() }
/// Ends every wait for Java, and those to come.
fn answers_close() -> Result<()> {
    batch_stream::close();
    allocator::close();
    Ok(())
}
