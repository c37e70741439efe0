//! Bitmaps: a bit for each row, the lowest bit of a byte first (Arrow columnar format, "Validity bitmaps").

/// The number of zeros among `n` bits, from bit `first` of the first byte on. `bytes` are the bytes that hold these
/// bits; other bits in the first and last byte do not count.
pub(super) fn zeros(bytes: &[u8], first: usize, n: usize) -> usize {
    let (words, rest) = bytes.as_chunks();
    let ones = words.iter().map(|word| u64::from_ne_bytes(*word).count_ones()).map(|ones| ones as usize).sum::<usize>()
        + rest.iter().map(|byte| byte.count_ones() as usize).sum::<usize>();
    let before = bytes.first().map_or(0, |byte| byte & !(u8::MAX << first));
    let after = match (first + n) % 8 {
        0 => 0,
        end => bytes.last().map_or(0, |byte| byte >> end),
    };
    n + before.count_ones() as usize + after.count_ones() as usize - ones
}

/// Moves all bits towards the front by `shift` places. The bits that become free at the end are 0.
pub(super) fn move_to_front(bytes: &mut [u8], shift: u32) {
    let mut above = 0_u8;
    for byte in bytes.iter_mut().rev() {
        let moved = u16::from_be_bytes([above, *byte]) >> shift;
        above = *byte;
        *byte = moved as u8;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_moved_one_by_one() {
        let before = [0b1010_0110, 0xff, 0x00, 0b0001_1101];
        let bit = |bytes: &[u8], bit: u32| bytes.get(bit as usize / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
        for shift in 0..8 {
            let mut after = before;
            move_to_front(&mut after, shift);
            assert!((0..32).all(|to| bit(&after, to) == bit(&before, to + shift)), "{after:x?} after {shift}");
        }
        move_to_front(&mut [], 3);
    }

    #[test]
    fn each_part_of_a_bitmap_is_counted_bit_by_bit() {
        let bytes = [0b1010_0110, 0xff, 0x00, 0b0001_1101].repeat(3);
        let is_zero = |bit: &usize| bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 0);
        for start in 0..96 {
            for end in start..=96 {
                let held = bytes.get(start / 8..usize::div_ceil(end, 8)).unwrap_or_default();
                let expected = (start..end).filter(is_zero).count();
                assert_eq!(zeros(held, start % 8, end - start), expected, "bits {start} to {end}");
            }
        }
    }
}
