//! How bindings hold a counted reference: as an address.

/// Implements `into_raw`, `from_raw` and `borrow_raw` for a type that is just a reference to a slab. The noun is for the
/// documentation; so is `produced_on`, for a type that a borrow can change.
macro_rules! held_by_bindings {
    ($Name:ident, $noun:literal, produced_on) => {
        $crate::memory::held_by_bindings!(
            $Name,
            $noun,
            "While `produced_on` is called of the result, no other borrow of `raw` is used, and nothing that one has lent \
             (its [`Ready`])."
        );
    };
    ($Name:ident, $noun:literal $(, $also:literal)?) => {
        impl $Name {
            #[doc = concat!("The address of the ", $noun, ", which keeps this reference: how a binding holds one.")]
            #[inline]
            pub fn into_raw(self) -> *mut core::ffi::c_void {
                // If the type has its own `drop`, that runs only when the reference is given up.
                core::mem::ManuallyDrop::new(self).0.as_raw()
            }

            /// Takes a reference back.
            ///
            /// # Safety
            /// `raw` is from `into_raw` of this type and is taken back once.
            #[inline]
            pub unsafe fn from_raw(raw: *mut core::ffi::c_void) -> Self {
                // SAFETY: the caller's contract.
                Self(unsafe { $crate::memory::Slab::from_raw(raw) })
            }

            #[doc = concat!("Looks at a ", $noun, " that a binding holds.")]
            ///
            /// # Safety
            /// `raw` is from `into_raw` of this type and not taken back as long as the result is used.
            $(#[doc = $also])?
            #[inline]
            pub unsafe fn borrow_raw<'a>(raw: *mut core::ffi::c_void) -> $crate::memory::Borrowed<'a, Self> {
                // SAFETY: the reference is not dropped, so it stays the holder's.
                $crate::memory::Borrowed::new(unsafe { Self::from_raw(raw) })
            }
        }
    };
}
pub(crate) use held_by_bindings;
