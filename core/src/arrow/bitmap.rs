//! Bitmaps: a bit for each row, the lowest bit of a byte first (Arrow columnar format, "Validity bitmaps").

use std::mem::MaybeUninit;

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

/// Writes a bit for each byte: whether the byte is not 0. `bits` has room for exactly these; the rest of its last byte is 0.
pub(crate) fn pack(bytes: &[u8], bits: &mut [u8]) {
    let (words, rest) = bytes.as_chunks();
    let mut last = [0; 8];
    last.iter_mut().zip(rest).for_each(|(last, byte)| *last = *byte);
    for (bits, word) in bits.iter_mut().zip(words.iter().chain(std::iter::once(&last))) {
        // Byte n of the word is moved to bit 56 + n. Nothing else reaches these bits.
        *bits = (ones_of(u64::from_le_bytes(*word)).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
    }
}

/// Writes a byte for each bit, 0 or 1, from bit `first` of the first byte on, until `bytes` is full. Bits that are missing at
/// the end count as 0.
pub(crate) fn unpack(bits: &[u8], first: usize, bytes: &mut [MaybeUninit<u8>]) {
    let mut bits = bits.iter();
    let mut next = || bits.next().copied().unwrap_or(0);
    let write = |bytes: &mut [MaybeUninit<u8>], bits| {
        bytes.iter_mut().zip(spread(bits)).for_each(|(byte, bit)| *byte = bit);
    };
    let (front, bytes) = bytes.split_at_mut(if first == 0 { 0 } else { (8 - first).min(bytes.len()) });
    if !front.is_empty() {
        write(front, next() >> first);
    }
    let (words, rest) = bytes.as_chunks_mut();
    words.iter_mut().for_each(|word| *word = spread(next()));
    write(rest, next());
}

/// A byte for each bit, 0 or 1.
#[expect(clippy::indexing_slicing, reason = "there is an entry for each byte")]
fn spread(bits: u8) -> [MaybeUninit<u8>; 8] {
    /// Takes less time than arithmetic (`make bench ONLY=convert/bools`).
    static BYTES: [[u8; 8]; 256] = {
        let mut all = [[0; 8]; 256];
        let mut place = 0;
        while place < 256 * 8 {
            all[place / 8][place % 8] = ((place / 8) >> (place % 8) & 1) as u8;
            place += 1;
        }
        all
    };
    BYTES[usize::from(bits)].map(MaybeUninit::new)
}

/// 1 in each byte that is not 0.
fn ones_of(word: u64) -> u64 {
    let below = 0x7f7f_7f7f_7f7f_7f7f;
    // The sum sets the highest bit if a lower one is set, and carries nothing into the next byte.
    ((((word & below) + below) | word) & !below) >> 7
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

    fn unpacked(bits: &[u8], first: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![MaybeUninit::new(0xee); length];
        unpack(bits, first, &mut bytes);
        // SAFETY: each byte was initialised at the beginning.
        bytes.iter().map(|byte| unsafe { byte.assume_init() }).collect()
    }

    #[test]
    fn missing_bits_are_0() {
        assert_eq!(unpacked(&[0xff], 3, 16), [[1; 5].as_slice(), &[0; 11]].concat());
        assert_eq!(unpacked(&[], 1, 12), [0; 12]);
    }

    #[test]
    fn bytes_become_bits_and_bits_bytes() {
        let values = [0, 1, 0x80, 0xff, 0, 0x7f, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 1, 1, 1, 1, 1, 1, 1, 1];
        for length in 0..=values.len() {
            let bytes = &values[..length];
            let mut bits = vec![0xee; length.div_ceil(8)];
            pack(bytes, &mut bits);
            let is_one = |bits: &[u8], place: usize| bits[place / 8] >> (place % 8) & 1 == 1;
            assert!((0..length).all(|place| is_one(&bits, place) == (bytes[place] != 0)), "{bits:x?} of {bytes:x?}");
            assert!((length..bits.len() * 8).all(|place| !is_one(&bits, place)), "{bits:x?} of {bytes:x?}");
            for first in 0..length.min(8) {
                let expected: Vec<u8> = bytes[first..].iter().map(|byte| u8::from(*byte != 0)).collect();
                assert_eq!(unpacked(&bits, first, length - first), expected, "{length} bits from {first} on");
            }
        }
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
