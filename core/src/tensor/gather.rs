//! Copies of strided elements into row-major order, by the host.

use crate::layout::MAX_NDIM;

/// One of the nested loops of a copy: how often it turns, and how far each turn moves, in bytes.
#[derive(Clone, Copy)]
struct Loop {
    turns: usize,
    from: isize,
    to: isize,
}

/// Copies so many bytes in each turn of a loop.
type Copier = unsafe fn(Loop, usize, *const u8, *mut u8);

/// How many turns of each of two loops are made together, so that what one of them leaves in the cache serves the other.
const TILE: usize = 64;

/// Copies elements of `width` bytes to `to`, in row-major order without gaps. Strides are in elements.
///
/// # Safety
/// Shape and strides lead from `from` to elements that can be read. `to` has room for all of them, apart from those.
pub(super) unsafe fn gather(from: *const u8, shape: &[i64], strides: &[i64], width: usize, to: *mut u8) {
    let mut loops = [Loop { turns: 0, from: 0, to: 0 }; MAX_NDIM + 1];
    let Some((bytes, loops)) = nested(shape, strides, width, &mut loops).split_first_mut() else { return };
    let bytes = bytes.turns;
    let copy = copier(bytes);
    // Elements that are neighbours in the source, but not in the target.
    if let Some(place) = loops.iter().position(|each| each.from == bytes as isize).filter(|&place| place > 0)
        && let Some(inner) = loops.get_mut(..=place)
    {
        // It comes right after the innermost loop.
        inner.get_mut(1..).unwrap_or_default().rotate_right(1);
        let (two, outer) = loops.split_at(2);
        let [inner, across] = *two else { return };
        // SAFETY: the caller's contract.
        turn(outer, from, to, |from, to| unsafe { copy_tiles([inner, across], bytes, copy, from, to) });
        return;
    }
    let once = Loop { turns: 1, from: 0, to: 0 };
    let (inner, outer) = loops.split_first().unwrap_or((&once, &[]));
    // SAFETY: the caller's contract.
    turn(outer, from, to, |from, to| unsafe { copy(*inner, bytes, from, to) });
}

/// The loops of a copy, the innermost first, which copies byte by byte. A dimension that continues the one within it is no
/// loop of its own; nor is one of extent 1, whose stride can have any value. Without elements there is no loop.
fn nested<'a>(shape: &[i64], strides: &[i64], width: usize, all: &'a mut [Loop; MAX_NDIM + 1]) -> &'a mut [Loop] {
    if shape.contains(&0) {
        return &mut [];
    }
    let mut count = 0;
    let mut to = 1;
    let bytes = (width, 1);
    let dimensions = shape.iter().zip(strides).rev().filter(|(extent, _)| **extent != 1);
    let dimensions =
        dimensions.map(|(&extent, &stride)| (extent as usize, (stride as isize).wrapping_mul(width as isize)));
    for (turns, from) in std::iter::once(bytes).chain(dimensions) {
        match all.get_mut(..count).and_then(<[Loop]>::last_mut) {
            Some(inner) if inner.from.checked_mul(inner.turns as isize) == Some(from) => inner.turns *= turns,
            _ => {
                if let Some(next) = all.get_mut(count) {
                    *next = Loop { turns, from, to };
                }
                count += 1;
            }
        }
        to *= turns as isize;
    }
    all.get_mut(..count).unwrap_or_default()
}

/// Calls `act` for each turn of the loops, of which the first is the innermost.
fn turn(loops: &[Loop], mut from: *const u8, mut to: *mut u8, mut act: impl FnMut(*const u8, *mut u8)) {
    let mut turned = [0_usize; MAX_NDIM + 1];
    loop {
        act(from, to);
        let mut is_over = true;
        for (each, turned) in loops.iter().zip(&mut turned) {
            *turned += 1;
            (from, to) = (from.wrapping_offset(each.from), to.wrapping_offset(each.to));
            if *turned < each.turns {
                is_over = false;
                break;
            }
            let back = (*turned as isize).wrapping_neg();
            from = from.wrapping_offset(each.from.wrapping_mul(back));
            to = to.wrapping_offset(each.to.wrapping_mul(back));
            *turned = 0;
        }
        if is_over {
            return;
        }
    }
}

/// Makes all turns of two loops, tile by tile.
///
/// # Safety
/// Same as [`gather`], for the elements that the loops lead to.
unsafe fn copy_tiles([one, other]: [Loop; 2], bytes: usize, copy: Copier, from: *const u8, to: *mut u8) {
    // The loop with more turns is the inner one of a tile.
    let (outer, inner) = if one.turns < other.turns { (one, other) } else { (other, one) };
    for i in (0..outer.turns).step_by(TILE) {
        for j in (0..inner.turns).step_by(TILE) {
            let tile = Loop { turns: TILE.min(inner.turns - j), ..inner };
            for i in i..outer.turns.min(i + TILE) {
                let (i, j) = (i as isize, j as isize);
                let from = from.wrapping_offset(outer.from.wrapping_mul(i)).wrapping_offset(inner.from.wrapping_mul(j));
                let to = to.wrapping_offset(outer.to.wrapping_mul(i)).wrapping_offset(inner.to.wrapping_mul(j));
                // SAFETY: the caller's contract.
                unsafe { copy(tile, bytes, from, to) };
            }
        }
    }
}

/// Returns the function that copies `bytes` bytes in each turn of a loop.
fn copier(bytes: usize) -> Copier {
    match bytes {
        1 => copy_as::<u8>,
        2 => copy_as::<u16>,
        4 => copy_as::<u32>,
        8 => copy_as::<u64>,
        16 => copy_as::<u128>,
        _ => copy_bytes,
    }
}

/// Copies so many bytes in each turn.
///
/// # Safety
/// Same as [`gather`], for what the loop leads to.
unsafe fn copy_bytes(each: Loop, bytes: usize, from: *const u8, to: *mut u8) {
    // SAFETY: the caller's contract.
    every(each, from, to, |from, to| unsafe { to.copy_from_nonoverlapping(from, bytes) });
}

/// Copies a `T`, at any address, in each turn.
///
/// # Safety
/// Same as [`copy_bytes`].
unsafe fn copy_as<T: Copy>(each: Loop, _bytes: usize, from: *const u8, to: *mut u8) {
    every(each, from, to, |from, to| {
        // SAFETY: the caller's contract.
        let value = unsafe { from.cast::<T>().read_unaligned() };
        // SAFETY: as above.
        unsafe { to.cast::<T>().write_unaligned(value) };
    });
}

#[inline]
fn every(each: Loop, from: *const u8, to: *mut u8, act: impl Fn(*const u8, *mut u8)) {
    for turn in 0..each.turns as isize {
        act(from.wrapping_offset(turn.wrapping_mul(each.from)), to.wrapping_offset(turn.wrapping_mul(each.to)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the elements lie in the source, in row-major order: offsets in elements.
    fn offsets(shape: &[i64], strides: &[i64]) -> Vec<i64> {
        let Some((&extent, inner)) = shape.split_first() else { return vec![0] };
        let below = offsets(inner, &strides[1..]);
        (0..extent).flat_map(|index| below.iter().map(move |offset| index * strides[0] + offset)).collect()
    }

    fn check(shape: &[i64], strides: &[i64]) {
        let offsets = offsets(shape, strides);
        let lowest = offsets.iter().min().copied().unwrap_or(0);
        let highest = offsets.iter().max().copied().unwrap_or(0);
        for width in [1, 2, 3, 4, 8, 12, 16, 24] {
            let source: Vec<u8> =
                (0..(highest - lowest + 1) as usize * width).map(|byte| (byte * 7 + byte / 251) as u8).collect();
            let element = |offset: &i64| &source[(offset - lowest) as usize * width..][..width];
            let expected: Vec<u8> = offsets.iter().flat_map(element).copied().collect();
            // At an odd address, with room behind that nothing may be written to.
            let mut copy = vec![0xee_u8; expected.len() + 2];
            let from = source.as_ptr().wrapping_offset(-lowest as isize * width as isize);
            // SAFETY: the offsets lead to elements of the source, and the copy has room for all of them.
            unsafe { gather(from, shape, strides, width, copy.as_mut_ptr().wrapping_add(1)) };
            assert_eq!(copy[1..=expected.len()], expected, "shape {shape:?}, strides {strides:?}, {width} bytes");
            assert_eq!((copy[0], copy[expected.len() + 1]), (0xee, 0xee), "shape {shape:?}, strides {strides:?}");
        }
    }

    #[test]
    fn all_elements_come_in_row_major_order() {
        // Every order and direction of three dimensions, with and without gaps, of extents below, at and above a tile's.
        for extents in [[2, 3, 4], [1, 5, 2], [70, 3, 65], [65, 1, 129], [3, 130, 2], [64, 64, 1], [0, 3, 2]] {
            for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                for gap in [1, 2] {
                    let mut strides = [0; 3];
                    let mut step = gap;
                    for place in order {
                        strides[place] = step;
                        step *= extents[place].max(1) + gap - 1;
                    }
                    check(&extents, &strides);
                    check(&extents, &[-strides[0], strides[1], -strides[2]]);
                    check(&extents, &[strides[0], 0, strides[2]]);
                }
            }
        }
    }

    #[test]
    fn a_dimension_of_one_row_has_any_stride_and_no_dimension_is_one_element() {
        check(&[], &[]);
        check(&[1, 2, 1], &[i64::MIN, 3, i64::MAX]);
        check(&[4, 1, 3], &[1, i64::MAX, 4]);
        check(&[2; 10], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        check(&[3, 3], &[1, 1]);
    }
}
