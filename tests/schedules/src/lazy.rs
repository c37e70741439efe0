//! Notes of the streams that use a tensor: the thread with the first note makes the list for all, and the thread with the last
//! reference finds every note.

use std::sync::{Arc as Plain, Mutex as PlainMutex};

use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::in_every_order;
use crate::parts::Lazy;

/// Like the notes of a tensor. The thread that makes them writes the cell, and all threads read it without a lock.
struct Notes {
    whose: UnsafeCell<u32>,
    streams: Mutex<Vec<u32>>,
}

// SAFETY: the cell is written before the notes are shared, and loom reports a read that is not ordered after the write.
unsafe impl Sync for Notes {}

fn notes() -> Notes {
    let notes = Notes { whose: UnsafeCell::new(0), streams: Mutex::default() };
    // SAFETY: no other thread has these notes yet.
    notes.whose.with_mut(|whose| unsafe { *whose = 7 });
    notes
}

/// Like a tensor: the thread that drops the last reference runs the release, which reads the notes.
struct Data {
    uses: Lazy<Notes>,
    released: Plain<PlainMutex<Vec<Vec<u32>>>>,
}

impl Data {
    fn use_on(&self, stream: u32) {
        let notes = self.uses.get(notes).expect("memory");
        // SAFETY: loom reports a read that is not ordered after the write.
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

/// Each thread notes its stream, if it has one, and drops its reference. The first stream is that of the sharing thread.
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
fn the_release_finds_the_notes_of_all_threads() {
    in_threads(&[None, Some(2), Some(3)], &[2, 3]);
}
