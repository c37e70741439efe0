//! Offsets of texts and lists: what those of some elements refer to, and offsets that are made to begin at 0.

use super::batch::Batch;
use super::format::Buffer;
use super::taken::Taken;
use crate::error::{Result, refuse};
use crate::stream::Stream;

/// What the offsets of some elements refer to: bytes of data, or elements of a child.
#[derive(Clone, Copy)]
pub(super) struct Referred {
    pub(super) first: i64,
    pub(super) end: i64,
}

impl Referred {
    const NOTHING: Self = Self { first: 0, end: 0 };

    /// What the taken elements of a node refer to; if their copy has the same offsets (`from_first` is false), all up to
    /// the end of that. `None` for elements without offsets, and for lists whose offsets the host would have to wait for,
    /// if their copy can do without: one that has the same offsets, or all lists.
    ///
    /// Nor does the host wait for the first offset of all. It is nearly always 0; if not, what is in front stays in the copy.
    ///
    /// # Errors
    /// `DEVX_INVALID_BUFFERS` for offsets beyond what they refer to, `DEVX_DRIVER`, `DEVX_OUT_OF_MEMORY`.
    pub(super) fn of(
        batch: &Batch,
        node: usize,
        taken: Taken,
        from_first: bool,
        stream: Option<Stream>,
    ) -> Result<Option<Self>> {
        let Some(Buffer::Offsets(width)) = batch.kind_of_buffer(node, 1) else { return Ok(None) };
        let (child, data) = (batch.schema().links(node).child(0), batch.buffers(node).get(2));
        if taken.first == taken.end || data.is_some_and(|data| data.is_null()) {
            return Ok(Some(Self::NOTHING));
        }
        let (array, at_once) = (batch.array(node), batch.is_readable_at_once(stream));
        let whole = array.offset + array.length;
        let is_part = taken.first > 0 || taken.end < whole;
        if child.is_some() && !at_once && !(from_first && is_part) {
            return Ok(None);
        }
        let at = |index| offset_at(batch, node, width, index, stream);
        let first = if from_first && (at_once || taken.first > 0) { at(taken.first)? } else { 0 };
        let end = at(taken.end)?;
        if end < 0 {
            return refuse!(DEVX_INVALID_BUFFERS, "the last offset is {end}: it must not be negative");
        }
        if first < 0 || first > end {
            return refuse!(
                DEVX_INVALID_BUFFERS,
                "the first offset is {first} and the last one is {end}: they must ascend from 0"
            );
        }
        if let Some(child) = child {
            let length = batch.array(child).length;
            if end > length {
                return refuse!(DEVX_INVALID_BUFFERS, "the last offset is {end}: the child has length {length}");
            }
        } else {
            // Only the last offset of all says how many bytes there are.
            let bytes = if taken.end < whole { at(whole)? } else { end };
            if end > bytes {
                return refuse!(
                    DEVX_INVALID_BUFFERS,
                    "the offset at {} is {end}, the last one of the array is {bytes}: they must ascend",
                    taken.end
                );
            }
        }
        Ok(Some(Self { first, end }))
    }
}

/// Reads one offset. Without a stream, the host must be able to read it; with one, the host waits for it.
fn offset_at(batch: &Batch, node: usize, width: u32, index: i64, stream: Option<Stream>) -> Result<i64> {
    let (offsets, width) = (batch.buffers(node).get(1).copied().unwrap_or(std::ptr::null()), width as usize);
    let place = offsets.cast::<u8>().wrapping_add(index as usize * width);
    let mut bytes = [0_u8; 8];
    // SAFETY: the producer of the array promises one more offset than elements. A caller without a stream has checked
    // that the host can read them.
    unsafe { batch.read(bytes.as_mut_ptr(), place, width, stream) }?;
    Ok(match (width, bytes) {
        (4, [a, b, c, d, ..]) => i32::from_ne_bytes([a, b, c, d]).into(),
        _ => i64::from_ne_bytes(bytes),
    })
}

/// Subtracts the first offset from all. `bytes` are offsets of `width` bytes. Whether all of them ascend is not known,
/// so those that do not wrap: wherever a row is read, its offsets are checked.
pub(super) fn begin_at_0(bytes: &mut [u8], width: u32, first: i64) {
    if width == 4 {
        for offset in bytes.as_chunks_mut().0 {
            *offset = i32::from_ne_bytes(*offset).wrapping_sub(first as i32).to_ne_bytes();
        }
    } else {
        for offset in bytes.as_chunks_mut().0 {
            *offset = i64::from_ne_bytes(*offset).wrapping_sub(first).to_ne_bytes();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_of_either_width_begin_at_0() {
        let mut narrow = [3_i32, 5, i32::MIN, i32::MAX, 9].map(i32::to_ne_bytes);
        begin_at_0(narrow.as_flattened_mut(), 4, 3);
        assert_eq!(narrow.map(i32::from_ne_bytes), [0, 2, i32::MAX - 2, i32::MAX - 3, 6]);
        let mut wide = [1_i64 << 40, i64::MIN, (1 << 40) + 7].map(i64::to_ne_bytes);
        begin_at_0(wide.as_flattened_mut(), 8, 1 << 40);
        assert_eq!(wide.map(i64::from_ne_bytes), [0, i64::MAX - (1 << 40) + 1, 7]);
        begin_at_0(&mut [], 4, 3);
    }
}
