//! A pointer that each thread has of its own: NULL at first, without a destructor, so that it can be asked at any time.
//!
//! In a shared library for x86-64, `thread_local!` is a call of `__tls_get_addr`, four of which are a fifth of what an
//! exchange takes. With the feature `static-tls` it is a load: the linker is asked for a place in the memory that every
//! thread has from the start, the "initial exec" model (Drepper, "ELF Handling For Thread-Local Storage", section 4.4.6).
//! glibc keeps some of that memory for libraries that are loaded later, to be shared by all of them; a library that finds
//! none left is not loaded. Elsewhere the usual model is as fast, or is the only one that can be relied on.

pub(super) use imp::{get, set};

std::cfg_select! {
    all(
        feature = "static-tls",
        target_arch = "x86_64",
        target_pointer_width = "64",
        target_os = "linux",
        target_env = "gnu",
        not(miri)
    ) => {
        mod imp {
            use core::arch::{asm, global_asm};
            use core::ffi::c_void;

            /// With the version: another one of this crate in the same program has a place of its own.
            macro_rules! symbol {
                () => {
                    concat!("devexchange_slot_", env!("CARGO_PKG_VERSION"))
                };
            }

            global_asm!(
                ".pushsection .tbss.devexchange_slot, \"awT\", @nobits",
                concat!(".globl ", symbol!()),
                concat!(".hidden ", symbol!()),
                concat!(".type ", symbol!(), ", @object"),
                concat!(".size ", symbol!(), ", 8"),
                ".p2align 3",
                concat!(symbol!(), ":"),
                ".zero 8",
                ".popsection",
            );

            #[inline(always)]
            pub(in super::super) fn get() -> *const c_void {
                let value;
                // SAFETY: the linker fills the first word with where the slot is, from where the thread's own memory begins; the second
                // is this thread's, and nobody else reads or writes it.
                unsafe {
                    asm!(
                        concat!("mov {value}, qword ptr [rip + ", symbol!(), "@gottpoff]"),
                        "mov {value}, qword ptr fs:[{value}]",
                        value = lateout(reg) value,
                        options(pure, readonly, nostack, preserves_flags),
                    );
                }
                value
            }

            pub(in super::super) fn set(value: *const c_void) {
                // SAFETY: as above.
                unsafe {
                    asm!(
                        concat!("mov {slot}, qword ptr [rip + ", symbol!(), "@gottpoff]"),
                        "mov qword ptr fs:[{slot}], {value}",
                        slot = out(reg) _,
                        value = in(reg) value,
                        options(nostack, preserves_flags),
                    );
                }
            }
        }
    }
    _ => {
        mod imp {
            use core::ffi::c_void;
            use std::cell::Cell;
            use std::ptr;

            thread_local!(static SLOT: Cell<*const c_void> = const { Cell::new(ptr::null()) });

            #[inline]
            pub(in super::super) fn get() -> *const c_void {
                SLOT.get()
            }

            pub(in super::super) fn set(value: *const c_void) {
                SLOT.set(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn each_thread_has_its_own() {
        // Of threads that have nothing here, which it would be taken for.
        let own = |value: usize| {
            let fresh = get().is_null();
            set(ptr::without_provenance(value));
            std::thread::yield_now();
            let kept = get().addr() == value;
            set(ptr::null());
            fresh && kept
        };
        let threads: Vec<_> = (1..50).map(|value| std::thread::spawn(move || own(value))).collect();
        assert!(threads.into_iter().all(|thread| thread.join().expect("a thread")));
    }
}
