//! Imports trees of `ArrowSchema` and `ArrowArray`, both together or the array with a schema that is imported first, each plain
//! and as device arrays; reads, exports and releases them. Every struct of the producer must be released once, and an import
//! that fails must change nothing.

#![no_main]

use arbitrary::{Arbitrary, Result, Unstructured};
use devexchange_core::abi::arrow_data::ArrowArray;
use devexchange_core::abi::arrow_device::ArrowDeviceArray;
use devexchange_core::{Batch, Schema};
use devexchange_fuzz::array::Array;
use devexchange_fuzz::consumer::{HOST, Held, on, play};
use devexchange_fuzz::field::Field;
use devexchange_fuzz::{balanced, chance, init, oracle, producer};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: init(), |input: &[u8]| {
    // An input that is used up is no failure.
    let _ = balanced(|| run(&mut Unstructured::new(input)));
});

fn run(u: &mut Unstructured<'_>) -> Result<()> {
    let field = Field::arbitrary(u)?;
    // A few arrays are made for another field than that of the schema.
    let other = chance(u, 1, 16)?.then(|| Field::arbitrary(u)).transpose()?;
    let array = Array::of(other.as_ref().unwrap_or(&field), 0, u)?;
    let way = u.int_in_range(0..=3)?;
    let mut schema = producer::schema(&field);
    let mut given = producer::array(&array);
    let before = (schema.bytes(), given.bytes());
    let mut held = Vec::new();
    let batch = match way {
        // SAFETY: the structs are valid and ours.
        0 => unsafe { Batch::import_pair(&raw mut *given.root, &raw mut *schema.root) },
        3 => import_device(&mut given.root, u, |array| {
            // SAFETY: as above.
            unsafe { Batch::import_pair_device(array, &raw mut *schema.root) }
        })?,
        // SAFETY: as above.
        _ => match unsafe { Schema::import(&raw mut *schema.root) } {
            Err(error) => Err(error),
            Ok(agreed) => {
                assert!(!field.is_wrong(), "this schema was taken: {field:?}");
                assert_eq!(agreed.nodes(), field.nodes(), "{field:?}");
                held.push(Held::Schema(agreed.clone()));
                match way {
                    // SAFETY: as above.
                    1 => unsafe { Batch::import(&raw mut *given.root, &agreed) },
                    _ => import_device(&mut given.root, u, |array| {
                        // SAFETY: as above.
                        unsafe { Batch::import_device(array, &agreed) }
                    })?,
                }
            }
        },
    };
    match batch {
        Ok(batch) => {
            assert!(!array.is_wrong() && !field.is_wrong(), "this was taken: {field:?} {array:?}");
            assert!(given.root.release.is_none() && schema.root.release.is_none(), "taken, but still the producer's");
            let may_be = oracle::is_readable(batch.schema().root(), &array);
            held.push(Held::Batch(batch));
            play(held, may_be, u)?;
        }
        Err(error) => {
            assert!(!error.message().is_empty());
            assert_eq!(given.bytes(), before.1, "refused, but not untouched: {error}");
            if held.is_empty() {
                assert_eq!(schema.bytes(), before.0, "refused, but not untouched: {error}");
            }
            play(held, false, u)?;
        }
    }
    given.finish();
    schema.finish();
    Ok(())
}

/// Imports the array as a device array, on the host or on an arbitrary device.
fn import_device(
    root: &mut ArrowArray,
    u: &mut Unstructured<'_>,
    import: impl FnOnce(*mut ArrowDeviceArray) -> devexchange_core::Result<Batch>,
) -> Result<devexchange_core::Result<Batch>> {
    let device = if chance(u, 7, 8)? { *u.choose(&HOST)? } else { (i32::arbitrary(u)?, i64::arbitrary(u)?) };
    let mut device_array = on(*root, device);
    let batch = import(&raw mut device_array);
    // The device array has a copy of the producer's struct: if the import took the copy, it took the struct.
    root.release = device_array.array.release;
    Ok(batch)
}
