//! Random arrays of every layout, nested in each other, with offsets and nulls at every level: whatever makes another
//! batch of them (a part, a copy, an export that is imported again) keeps the values of all rows.
#![expect(clippy::unwrap_used, reason = "what a helper of a test needs must be there")]

use core::ffi::c_void;
use std::ptr::null;

use devexchange_core::abi::arrow_data::{ArrowArray, ArrowSchema};
use devexchange_core::arrow::format::{Buffer, Buffers};
use devexchange_core::arrow::{ArrayBuilder, Column, Type};
use devexchange_core::{Batch, Device, Owner};

/// Random numbers (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.below(256) as u8).collect()
    }

    fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        *all.get(self.below(all.len() as u64) as usize).unwrap()
    }
}

/// An array that is being described, with its memory.
struct Made {
    array: ArrayBuilder,
    memory: Vec<Vec<u8>>,
}

impl Made {
    fn new(name: &str, format: &str, length: i64, offset: i64) -> Self {
        Self { array: ArrayBuilder::new(name, format, length).offset(offset), memory: Vec::new() }
    }

    fn buffer(mut self, bytes: Vec<u8>) -> Self {
        let address: *const c_void = bytes.as_ptr().cast();
        self.array = self.array.sized_buffer(address, bytes.len());
        self.memory.push(bytes);
        self
    }

    fn missing(mut self) -> Self {
        self.array = self.array.buffer(null());
        self
    }

    /// Adds a validity buffer for elements up to `end`, or none.
    fn validity(self, end: i64, random: &mut Random) -> Self {
        if random.one_in(3) {
            return self.missing();
        }
        let mut bits = random.bytes((end as usize).div_ceil(8));
        if random.one_in(4) {
            bits.fill(0xff);
        }
        self.buffer(bits)
    }

    fn child(mut self, child: Self) -> Self {
        self.array = self.array.child(child.done());
        self
    }

    fn dictionary(mut self, values: Self) -> Self {
        self.array = self.array.dictionary(values.done());
        self
    }

    fn done(self) -> ArrayBuilder {
        self.array.owner(Owner::new(self.memory))
    }
}

fn raw<const N: usize, T>(values: impl IntoIterator<Item = T>, bytes: impl Fn(T) -> [u8; N]) -> Vec<u8> {
    values.into_iter().flat_map(bytes).collect()
}

fn ascending(n: usize, most: u64, random: &mut Random) -> Vec<i64> {
    let mut all: Vec<i64> = (0..n).map(|_| random.below(most + 1) as i64).collect();
    all.sort_unstable();
    all
}

fn offsets(all: &[i64], width: usize) -> Vec<u8> {
    if width == 4 { raw(all, |o| (*o as i32).to_ne_bytes()) } else { raw(all, |o| o.to_ne_bytes()) }
}

const FIXED: [(&str, usize); 12] = [
    ("c", 1),
    ("S", 2),
    ("i", 4),
    ("l", 8),
    ("f", 4),
    ("g", 8),
    ("tdD", 4),
    ("tin", 16),
    ("d:9,2,32", 4),
    ("d:38,4", 16),
    ("w:3", 3),
    ("w:0", 0),
];

/// An array of at least `least` elements, nested at most `depth` levels.
fn any(name: &str, least: i64, depth: u32, random: &mut Random) -> Made {
    let offset = if random.one_in(2) { 0 } else { random.below(19) as i64 };
    let length = least + random.below(12) as i64;
    exactly(name, length, offset, depth, random)
}

fn exactly(name: &str, length: i64, offset: i64, depth: u32, random: &mut Random) -> Made {
    let end = offset + length;
    let n = end as usize;
    let new = |format: &str| Made::new(name, format, length, offset);
    match random.below(if depth == 0 { 9 } else { 18 }) {
        0 | 1 => {
            let (format, width) = random.pick(&FIXED);
            let values = random.bytes(n * width);
            new(format).validity(end, random).buffer(values)
        }
        2 => {
            let bits = random.bytes(n.div_ceil(8));
            new("b").validity(end, random).buffer(bits)
        }
        3 => new("n"),
        4 | 5 => {
            let (format, width) = random.pick(&[("u", 4), ("z", 4), ("U", 8), ("Z", 8)]);
            let all = ascending(n + 1, 40, random);
            let data: Vec<u8> = (0..40).map(|_| b'a' + random.below(26) as u8).collect();
            new(format).validity(end, random).buffer(offsets(&all, width)).buffer(data)
        }
        6 | 7 => {
            let format = random.pick(&["vu", "vz"]);
            let count = random.below(3) as usize;
            let mut views = Vec::new();
            for _ in 0..n {
                let length = random.below(if count == 0 { 13 } else { 20 }) as usize;
                views.extend((length as i32).to_ne_bytes());
                if length <= 12 {
                    views.extend(b"abcdefghijkl");
                } else {
                    views.extend(b"abcd");
                    views.extend((random.below(count as u64) as i32).to_ne_bytes());
                    views.extend((random.below(10) as i32).to_ne_bytes());
                }
            }
            let mut made = new(format).validity(end, random).buffer(views);
            for _ in 0..count {
                made = made.buffer((0..30).map(|_| b'a' + random.below(26) as u8).collect());
            }
            made.buffer(raw(std::iter::repeat_n(30_i64, count), |size| size.to_ne_bytes()))
        }
        8 => {
            let values = any("", 5, 0, random);
            let (format, width) = random.pick(&[("c", 1), ("s", 2), ("i", 4), ("L", 8)]);
            let index = |index: u64| index.to_ne_bytes().into_iter().take(width);
            let indices = (0..n).flat_map(|_| index(random.below(5))).collect();
            new(format).validity(end, random).buffer(indices).dictionary(values)
        }
        9 | 10 => {
            let mut made = new("+s").validity(end, random);
            for k in 0..random.below(4) {
                made = made.child(any(&format!("m{k}"), end, depth - 1, random));
            }
            made
        }
        11 => {
            let size = random.below(4) as i64;
            new(&format!("+w:{size}")).validity(end, random).child(any("item", end * size, depth - 1, random))
        }
        12 => {
            let (format, width) = random.pick(&[("+l", 4), ("+L", 8)]);
            let most = random.below(20);
            let all = ascending(n + 1, most, random);
            new(format).validity(end, random).buffer(offsets(&all, width)).child(any(
                "item",
                most as i64,
                depth - 1,
                random,
            ))
        }
        13 => {
            let (format, width) = random.pick(&[("+vl", 4), ("+vL", 8)]);
            let starts: Vec<i64> = (0..n).map(|_| random.below(8) as i64).collect();
            let sizes: Vec<i64> = (0..n).map(|_| random.below(4) as i64).collect();
            let made = new(format).validity(end, random).buffer(offsets(&starts, width)).buffer(offsets(&sizes, width));
            made.child(any("item", 12, depth - 1, random))
        }
        14 => {
            let most = random.below(12);
            let all = ascending(n + 1, most, random);
            let skipped = random.below(3) as i64;
            let entries = Made::new("entries", "+s", most as i64, skipped).missing();
            let entries = entries.child(any("key", most as i64 + skipped, depth - 1, random));
            let entries = entries.child(any("value", most as i64 + skipped, depth - 1, random));
            new("+m").validity(end, random).buffer(offsets(&all, 4)).child(entries)
        }
        15 => {
            let ids = (0..n).map(|_| random.pick(&[3_u8, 9])).collect();
            let made = new("+us:9,3").buffer(ids).child(any("a", end, depth - 1, random));
            made.child(any("b", end, depth - 1, random))
        }
        16 => {
            let ids = (0..n).map(|_| random.pick(&[3_u8, 9])).collect();
            let places: Vec<i64> = (0..n).map(|_| random.below(5) as i64).collect();
            let made = new("+ud:9,3").buffer(ids).buffer(offsets(&places, 4)).child(any("a", 5, depth - 1, random));
            made.child(any("b", 5, depth - 1, random))
        }
        _ => {
            let runs = random.below(5) as i64 + 1;
            let skipped = random.below(3) as i64;
            let mut ends = ascending(runs as usize + skipped as usize, end as u64, random);
            *ends.last_mut().unwrap() = end;
            let ends = Made::new("run_ends", "i", runs, skipped).missing().buffer(offsets(&ends, 4));
            new("+r").child(ends).child(any("values", runs, depth - 1, random))
        }
    }
}

fn build(made: Made) -> Batch {
    // SAFETY: the owners keep the buffers, which are as large as the arrays need.
    unsafe { made.done().build(Device::CPU) }.map_err(|refused| refused.error).unwrap()
}

fn shown(column: Column<'_>) -> Vec<String> {
    (0..column.length()).map(|row| column.value(row).unwrap().to_string()).collect()
}

fn round_trip(batch: &Batch) -> Batch {
    let (mut schema, mut array) = (ArrowSchema::RELEASED, ArrowArray::RELEASED);
    // SAFETY: there is room for both.
    unsafe { batch.schema().export(&mut schema) }.unwrap();
    // SAFETY: as above.
    unsafe { batch.clone().export(&mut array) }.unwrap();
    // SAFETY: valid structs, which nobody else has.
    unsafe { Batch::import_pair(&mut array, &mut schema) }.unwrap()
}

/// Compares the rows of a batch, and the number of its nulls with what the rows say.
fn check(what: &str, seed: u64, made: &Batch, expected: &[String]) {
    let root = made.root();
    let nulls = (0..root.length()).filter(|&row| !root.is_valid(row).unwrap()).count();
    assert_eq!(root.null_count().unwrap(), nulls as i64, "{what} of {seed}: {}", root.field().type_name());
    assert_eq!(shown(root), expected, "{what} of {seed}: {:?}", made.schema());
}

/// A copy has rows alone: no offset but that of run-end encoded arrays, nothing in front of or behind what offsets refer
/// to, and null counts that are those of the rows.
fn check_copy(seed: u64, column: Column<'_>) {
    let what = || format!("{seed}: {} in {:?}", column.field().type_name(), column.batch().schema());
    if column.ty() != Type::RunEndEncoded {
        assert_eq!(column.offset(), 0, "{}", what());
    }
    let nulls = (0..column.length()).filter(|&row| !column.is_valid(row).unwrap()).count();
    assert_eq!(column.null_count().unwrap(), nulls as i64, "{}", what());
    if let Buffers::Two(Buffer::Offsets(width)) | Buffers::Three(width) = column.ty().buffers() {
        let (first, last) = (offset_of(column, 0, width), offset_of(column, column.length(), width));
        let length = column.child(0).map_or(last, Column::length);
        assert_eq!((first, last), (0, length), "{}", what());
    }
    for child in column.children().chain(column.dictionary()) {
        check_copy(seed, child);
    }
}

fn offset_of(column: Column<'_>, row: i64, width: u32) -> i64 {
    let place = column.buffers().get(1).unwrap().wrapping_byte_add(row as usize * width as usize);
    match width {
        // SAFETY: a copy has one more offset than rows.
        4 => unsafe { place.cast::<i32>().read() }.into(),
        // SAFETY: as above.
        _ => unsafe { place.cast::<i64>().read() },
    }
}

#[test]
fn the_rows_stay_the_same() {
    for seed in 1..=2000_u64 {
        let random = &mut Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let batch = build(any("root", 0, 3, random));
        let all = shown(batch.root());
        check("an export", seed, &round_trip(&batch), &all);
        check("a copy", seed, &batch.copy().unwrap(), &all);
        let offset = random.below(all.len() as u64 + 1) as usize;
        let length = random.below((all.len() - offset) as u64 + 1) as usize;
        let rows = all.get(offset..offset + length).unwrap();
        let part = batch.slice(offset as i64, length as i64).unwrap();
        check("a part", seed, &part, rows);
        let copy = part.copy().unwrap();
        check("a copied part", seed, &copy, rows);
        check_copy(seed, copy.root());
        check("an exported part", seed, &round_trip(&part), rows);
        check("a copy of an exported part", seed, &round_trip(&part).copy().unwrap(), rows);
        let pair = Batch::of_columns(&[("a", &part), ("b", &part)], None).unwrap();
        check("a column", seed, &pair.column(1).unwrap().share().unwrap(), rows);
        check("a column of a copy", seed, &pair.copy().unwrap().column(1).unwrap().share().unwrap(), rows);
        for child in part.root().children().chain(part.root().dictionary()) {
            let values = shown(child);
            check("a child", seed, &child.share().unwrap(), &values);
            check("a copied child", seed, &child.share().unwrap().copy().unwrap(), &values);
        }
    }
}
