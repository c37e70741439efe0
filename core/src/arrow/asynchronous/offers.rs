//! The arrays that our tasks hold, by number. A task carries the number and no pointer, so nothing dangles, whatever a
//! consumer does with a task that was extracted or withdrawn already.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::abi::arrow_device::ArrowDeviceArray;
use crate::error::{Error, Result};

const SHELF_BITS: u32 = 4;
const PLACE_BITS: u32 = 24;

/// How many numbers a place has in turn: all that fit beside place and shelf in what a task can carry.
const COUNTS: usize = usize::MAX >> (SHELF_BITS + PLACE_BITS);

/// The most places that are kept when all are empty.
const KEPT: usize = 256;

/// A part of the table, under its own lock: streams in different parts do not contend.
#[repr(align(64))]
struct Shelf(Mutex<Offers>);

static SHELVES: [Shelf; 1 << SHELF_BITS] = [const { Shelf(Mutex::new(Offers::NONE)) }; 1 << SHELF_BITS];

struct Offers {
    places: Vec<Place>,
    /// The free places. It has capacity for all places.
    free: Vec<usize>,
    /// The number of offers so far; after [`COUNTS`] it starts again at 1, so numbers repeat only that late.
    count: usize,
}

struct Place {
    /// 0 if it is free.
    number: usize,
    array: ArrowDeviceArray,
}

// SAFETY: the Arrow C data interface lets an array be released on any thread; nothing else is done with it here.
unsafe impl Send for Place {}

/// Chooses the part of the table that a new stream uses.
pub(super) fn shelf() -> usize {
    static STREAMS: AtomicUsize = AtomicUsize::new(0);
    STREAMS.fetch_add(1, Relaxed) % SHELVES.len()
}

/// Moves an array into a part of the table; returns its number, which is not 0.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`; then the array stays with the caller.
pub(super) fn put(shelf: usize, array: &ArrowDeviceArray) -> Result<usize> {
    match offers(shelf).put(array) {
        Some(number) => Ok(number << SHELF_BITS | shelf),
        None => Err(Error::no_memory(size_of::<Place>())),
    }
}

/// Moves an array out. Returns `false` if that was done before.
pub(super) fn take(number: usize, out: &mut MaybeUninit<ArrowDeviceArray>) -> bool {
    offers(number).take(number >> SHELF_BITS, out)
}

fn offers(number: usize) -> MutexGuard<'static, Offers> {
    let [first, ..] = &SHELVES;
    let Shelf(shelf) = SHELVES.get(number % SHELVES.len()).unwrap_or(first);
    shelf.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Offers {
    const NONE: Self = Self { places: Vec::new(), free: Vec::new(), count: 0 };

    fn put(&mut self, array: &ArrowDeviceArray) -> Option<usize> {
        let index = self.free.pop().or_else(|| self.grow())?;
        self.count = self.count % COUNTS + 1;
        let number = self.count << PLACE_BITS | index;
        *self.places.get_mut(index)? = Place { number, array: *array };
        Some(number)
    }

    /// Adds a place; `None` if there is no memory for it.
    #[cold]
    fn grow(&mut self) -> Option<usize> {
        let index = self.places.len();
        self.places.try_reserve(1).ok()?;
        self.free.try_reserve(self.places.capacity()).ok()?;
        (index >> PLACE_BITS == 0).then(|| self.places.push(Place { number: 0, array: ArrowDeviceArray::RELEASED }))?;
        Some(index)
    }

    fn take(&mut self, number: usize, out: &mut MaybeUninit<ArrowDeviceArray>) -> bool {
        let index = number % (1 << PLACE_BITS);
        let Some(place) = self.places.get_mut(index).filter(|place| number != 0 && place.number == number) else {
            return false;
        };
        place.number = 0;
        out.write(place.array);
        self.free.push(index);
        // Memory for many offers at once is given back when all of them were taken.
        if self.free.len() == self.places.len() && self.places.len() > KEPT {
            *self = Self { count: self.count, ..Self::NONE };
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Offers {
        /// Puts an array that its device id identifies.
        fn put_marked(&mut self, mark: i64) -> usize {
            self.put(&ArrowDeviceArray { device_id: mark, ..ArrowDeviceArray::RELEASED }).unwrap()
        }

        fn take_mark(&mut self, number: usize) -> Option<i64> {
            let mut array = MaybeUninit::new(ArrowDeviceArray::RELEASED);
            let taken = self.take(number, &mut array);
            // SAFETY: written above.
            taken.then(|| unsafe { array.assume_init() }.device_id)
        }
    }

    #[test]
    fn what_was_put_is_taken_once_in_any_order() {
        let mut offers = Offers::NONE;
        let mut seen = std::collections::HashSet::new();
        for round in 1..4 {
            let numbers: Vec<_> = (0..50).map(|mark| (offers.put_marked(mark), mark)).collect();
            let (even, odd): (Vec<_>, Vec<_>) = numbers.into_iter().partition(|(_, mark)| mark % 2 == 0);
            for (number, mark) in odd.into_iter().chain(even.into_iter().rev()) {
                assert!(number != 0 && seen.insert(number), "{number} was given twice");
                assert_eq!(offers.take_mark(number), Some(mark));
                assert_eq!(offers.take_mark(number), None);
                // Even when something else is in its place.
                let other = offers.put_marked(-1);
                assert_eq!(offers.take_mark(number), None);
                assert!(seen.insert(other) && offers.take_mark(other) == Some(-1));
            }
            assert_eq!((offers.places.len(), offers.free.len()), (50, 50), "in round {round}");
        }
        for never in [0, 1, usize::MAX] {
            assert_eq!(offers.take_mark(never), None);
        }
    }

    #[test]
    fn a_crowd_leaves_no_memory_behind() {
        let mut offers = Offers::NONE;
        let numbers: Vec<_> = (0..=KEPT as i64).map(|mark| offers.put_marked(mark)).collect();
        for (mark, number) in numbers.iter().enumerate() {
            assert_eq!(offers.take_mark(*number), Some(mark as i64));
        }
        assert_eq!((offers.places.capacity(), offers.free.capacity()), (0, 0));
        let number = offers.put_marked(7);
        assert!(!numbers.contains(&number));
        assert_eq!(offers.take_mark(number), Some(7));
    }

    #[test]
    fn numbers_begin_again_when_all_were_given() {
        let mut offers = Offers { count: COUNTS - 2, ..Offers::NONE };
        let mut seen = std::collections::HashSet::new();
        for mark in 0..5 {
            let number = offers.put_marked(mark);
            assert!(number != 0 && seen.insert(number), "{number} was given twice");
            // In the form in which `put` and `take` pass it.
            assert_eq!(offers.take_mark((number << SHELF_BITS | 3) >> SHELF_BITS), Some(mark));
        }
    }
}
