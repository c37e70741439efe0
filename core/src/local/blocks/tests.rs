//! Which blocks are kept where, and how many.

use std::process::Command;

use super::*;
use crate::fork::tests::with_children;

#[test]
fn bins_hold_what_they_are_for() {
    let (mut last, mut bytes) = (None, 0);
    while bytes <= LARGE {
        let size = Size::of(bytes).expect("small enough");
        let bin = size.bin();
        assert!(size.bytes() >= bytes && size.bytes() <= bytes * 5 / 4 + STEP, "{size:?} for {bytes}");
        assert_eq!(Size::of_bin(bin), size, "{bytes}");
        assert_eq!(Size::of(size.bytes()), Some(size));
        assert!(last == Some(bin) || last.map_or(0, |last| last + 1) == bin, "{bin} after {last:?}");
        last = Some(bin);
        bytes += if bytes < 5000 { 1 } else { 997 };
    }
    assert_eq!(Size::of(LARGE).map(Size::bin), Some(BINS - 1));
    assert_eq!(Size::of(LARGE + 1).map(Size::bytes), Some(LARGE + STEP));
    assert_eq!(Size::of(usize::MAX), None);
}

/// A block that no thread has kept yet.
fn block(size: Size) -> NonNull<u8> {
    fresh(size).expect("memory")
}

fn size(bytes: usize) -> Size {
    Size::of(bytes).expect("can be addressed")
}

/// Blocks that keep at most `most` bytes.
fn room(most: usize) -> Blocks {
    Blocks { most, ..Blocks::new() }
}

#[test]
fn as_much_is_kept_as_there_is_room_for() {
    let (blocks, size) = (room(3 * STEP), size(STEP));
    for kept in 1..=3 {
        // SAFETY: a new block of this size.
        assert!(unsafe { blocks.give(size, block(size)) });
        assert_eq!(blocks.bytes.get(), kept * STEP);
    }
    let one_more = block(size);
    // SAFETY: as above.
    assert!(!unsafe { blocks.give(size, one_more) });
    assert_eq!(blocks.bytes.get(), 3 * STEP);
    let taken = blocks.take(size).expect("one of three");
    assert_eq!(blocks.bytes.get(), 2 * STEP);
    for block in [one_more, taken] {
        // SAFETY: taken, or not given.
        unsafe { release(block, size) };
    }
    blocks.free();
    assert_eq!((blocks.bytes.get(), blocks.take(size)), (0, None));
}

#[test]
fn as_much_returns_as_there_is_room_for() {
    let (returned, size) = (Returned { most: 2 * STEP, ..Returned::new() }, size(STEP));
    let blocks = [block(size), block(size), block(size)];
    // SAFETY: new blocks of this size.
    let given = blocks.map(|block| unsafe { returned.give(size, block) });
    assert_eq!((given, returned.bytes.load(Relaxed)), ([true, true, false], 2 * STEP));
    let [first, second, third] = blocks;
    let mut taken = Vec::new();
    returned.take(|block, size| taken.push((block, size)));
    assert_eq!(taken, [(second, size), (first, size)]);
    assert_eq!(returned.bytes.load(Relaxed), 0);
    returned.take(|_, _| panic!("taken already"));
    for block in [first, second, third] {
        // SAFETY: taken, or not given.
        unsafe { release(block, size) };
    }
}

#[test]
fn the_environment_turns_it_off() {
    /// Set for the child processes of this test.
    const MOST_EXPECTED: &str = "DEVX_TEST_MOST_KEPT";
    if let Some(most) = std::env::var_os(MOST_EXPECTED) {
        assert_eq!(Some(Blocks::new().most.to_string().as_str()), most.to_str());
        return;
    }
    let _children = with_children();
    for (value, most) in [("0", 0), ("1", MOST), ("", MOST)] {
        let output = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "local::blocks::tests::the_environment_turns_it_off"])
            .env("DEVEXCHANGE_KEEP_BLOCKS", value)
            .env(MOST_EXPECTED, most.to_string())
            .output()
            .expect("this program runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "{value:?}: {text}");
    }
}
