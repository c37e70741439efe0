//! `Alone` gives its value to one caller at a time, and to the next caller when that call is over.

use std::sync::Arc;

use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread;

use crate::parts::Alone;
use crate::{in_every_order, meet};

#[test]
fn one_caller_at_a_time_has_the_value() {
    in_every_order(|| {
        let value = Arc::new((Alone::new(0_u32), AtomicU32::new(0)));
        let add = |(value, point): &(Alone<u32>, AtomicU32)| {
            let added = value.with(|count| {
                let seen = *count;
                meet(point);
                *count = seen + 1;
            });
            u32::from(added.is_some())
        };
        let other = {
            let value = Arc::clone(&value);
            thread::spawn(move || add(&value))
        };
        let added = add(&value) + other.join().expect("a thread");
        assert!(added >= 1, "nobody had the value");
        assert_eq!(value.1.load(Relaxed), added);
        assert_eq!(value.0.with(|count| *count), Some(added), "both had the value at once, or nobody gave it back");
    });
}

#[test]
fn a_nested_call_is_refused() {
    loom::model(|| {
        let value = Alone::new(());
        assert_eq!(value.with(|()| value.with(|()| ())), Some(None));
        assert_eq!(value.with(|()| ()), Some(()));
    });
}
