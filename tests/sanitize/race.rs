//! Two threads write the same variable: the thread sanitizer must report it. With the argument `locked`, threads synchronize
//! by a mutex, a channel and an atomic of std, and the run must succeed: a report would mean that the sanitizer does not see
//! these.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, Mutex, mpsc};

struct Place(UnsafeCell<u64>);

// SAFETY: none without the argument; the tool must report this. With it, the accesses are ordered.
unsafe impl Sync for Place {}

static PLACE: Place = Place(UnsafeCell::new(0));
static TURN: Mutex<()> = Mutex::new(());
static TURNS: AtomicUsize = AtomicUsize::new(0);

fn add() {
    // SAFETY: as above.
    unsafe { *PLACE.0.get() += 1 };
}

fn main() {
    if std::env::args().nth(1).as_deref() != Some("locked") {
        let threads = [(); 2].map(|()| std::thread::spawn(add));
        for thread in threads {
            let _ = thread.join();
        }
        return;
    }
    let shared = Arc::new([7_u64; 4]);
    let (sender, receiver) = mpsc::channel();
    let threads = [(); 4].map(|()| {
        let (shared, sender) = (Arc::clone(&shared), sender.clone());
        std::thread::spawn(move || {
            if let Ok(_turn) = TURN.lock() {
                add();
            }
            TURNS.fetch_add(1, Release);
            let _ = sender.send(vec![shared[0]]);
        })
    });
    drop((shared, sender));
    let sum: u64 = receiver.iter().flatten().sum();
    while TURNS.load(Relaxed) < 4 {}
    TURNS.load(Acquire);
    add();
    for thread in threads {
        let _ = thread.join();
    }
    println!("{sum}");
}
