//! One pointer for each thread: NULL at first, and without a destructor, so that it can be read at any time.
//!
//! In a shared library for x86-64, each access to a `thread_local!` is a call of `__tls_get_addr`; four such calls are a fifth
//! of the time of an exchange. With the feature `static-tls`, an access is a load: the linker is asked for a place in the
//! memory that every thread has from the start, the "initial exec" model (Drepper, "ELF Handling For Thread-Local Storage",
//! section 4.4.6). glibc reserves a little of that memory for all libraries that are loaded later; if none is left, the
//! library cannot be loaded. On other platforms the usual model is as fast, or is the only reliable one.

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

            /// The name includes the version, so that another version of this crate in the same program has its own slot.
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
                // SAFETY: the linker fills the first word with the offset of the slot in the thread's own memory. The second
                // word is the slot of this thread, which nobody else reads or writes.
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
        // In new threads, because this thread's value would be taken for a `Local`.
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
