//! Notes of uses: the thread that makes the first note makes the list for all, and the thread with the last reference
//! finds every note.

use std::sync::{Arc as Plain, Mutex as PlainMutex};

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::in_every_order;
use crate::parts::Lazy;

/// Like the notes of a tensor. Only the thread that makes them writes the cell; all read it without a lock.
struct Notes {
    whose: UnsafeCell<u32>,
    streams: Mutex<Vec<u32>>,
}

// SAFETY: loom reports a write of the cell during a read.
unsafe impl Sync for Notes {}

fn notes() -> Notes {
    let notes = Notes { whose: UnsafeCell::new(0), streams: Mutex::default() };
    // SAFETY: as above.
    notes.whose.with_mut(|whose| unsafe { *whose = 7 });
    notes
}

/// Like a tensor, whose release reads the notes; the last holder runs it, once.
struct Data {
    uses: Lazy<Notes>,
    released: Plain<PlainMutex<Vec<Vec<u32>>>>,
}

impl Data {
    fn use_on(&self, stream: u32) {
        let notes = self.uses.get(notes).expect("memory");
        // SAFETY: as above.
        assert_eq!(notes.whose.with(|whose| unsafe { *whose }), 7);
        notes.streams.lock().expect("a lock").push(stream);
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        let mut streams = self.uses.take().map_or_else(Vec::new, |notes| notes.streams.into_inner().expect("a lock"));
        streams.sort_unstable();
        self.released.lock().expect("a lock").push(streams);
    }
}

/// Each thread notes a stream, if it has one, and gives up its reference; the first thread is the one that shared it.
fn in_threads(streams: &'static [Option<u32>], noted: &'static [u32]) {
    in_every_order(move || {
        let released = Plain::new(PlainMutex::default());
        let data = Arc::new(Data { uses: Lazy::default(), released: Plain::clone(&released) });
        let threads: Vec<_> = (streams[1..].iter())
            .map(|stream| {
                let data = Arc::clone(&data);
                thread::spawn(move || stream.iter().for_each(|stream| data.use_on(*stream)))
            })
            .collect();
        streams[0].iter().for_each(|stream| data.use_on(*stream));
        drop(data);
        threads.into_iter().for_each(|thread| thread.join().expect("a thread"));
        assert_eq!(*released.lock().expect("a lock"), [noted]);
    });
}

#[test]
fn the_first_uses_may_be_noted_at_once() {
    in_threads(&[Some(1), Some(2)], &[1, 2]);
}

#[test]
fn who_releases_finds_what_others_noted() {
    in_threads(&[None, Some(2), Some(3)], &[2, 3]);
}
