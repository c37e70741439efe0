//! Checks with the driver that the buffers of a batch are where the batch says.

use super::batch::Batch;
use super::check::in_array;
use super::format::Buffer;
use crate::device::Device;
use crate::error::Result;
use crate::runtime::cuda::pointer;

impl Batch {
    /// Checks with the driver that the buffers are in the memory that the batch says, with all bytes that its lengths
    /// and offsets require. No description can prove this. Memory of the CPU is not checked.
    ///
    /// No buffer is read. So the bytes that offsets and views point into are not checked: only the offsets and views
    /// say how many there are, and if there are none, any address is right.
    ///
    /// # Errors
    /// `DEVX_DEVICE` with the array and the buffer, `DEVX_DRIVER`.
    pub fn check_pointers(&self) -> Result<()> {
        if self.device() == Device::CPU {
            return Ok(());
        }
        (0..self.schema().nodes()).try_for_each(|node| self.check_buffers(node))
    }

    fn check_buffers(&self, node: usize) -> Result<()> {
        let array = self.array(node);
        let elements = (array.offset + array.length) as u64; // checked at import
        if elements == 0 {
            return Ok(());
        }
        for (index, &address) in self.buffers(node).iter().enumerate() {
            let bytes = self.kind_of_buffer(node, index).and_then(|kind: Buffer| kind.bytes(elements));
            let Some(bytes) = bytes.filter(|&bytes| bytes > 0 && !address.is_null()) else { continue };
            pointer::require(address, bytes as usize, self.device())
                .map_err(|error| in_array(self.schema(), node, error.within(format_args!("buffers[{index}]: "))))?;
        }
        Ok(())
    }
}
