//! Arrow C data interface (source of `arrow/c/data.h`): a type, and an array of that type.

use core::ffi::{CStr, c_char, c_void};

/// Flag of a schema: the order of the dictionary's values has a meaning.
pub const ARROW_FLAG_DICTIONARY_ORDERED: i64 = 1;
/// Flag of a schema: values may be null.
pub const ARROW_FLAG_NULLABLE: i64 = 2;
/// Flag of a schema: the keys within each map are sorted.
pub const ARROW_FLAG_MAP_KEYS_SORTED: i64 = 4;

/// Type, name and metadata of an array.
///
/// The struct lies in main memory. Its holder calls `release` once; a NULL `release` marks a struct
/// that was released or moved from. To move a struct, copy its bytes and set `release` of the source
/// to NULL.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowSchema {
    /// Type as an Arrow format string, for example `"g"` for float64.
    pub format: *const c_char,
    /// Name of the field, or NULL.
    pub name: *const c_char,
    /// Key/value pairs as a counted binary block, or NULL.
    pub metadata: *const c_char,
    /// `ARROW_FLAG_…` bits.
    pub flags: i64,
    /// Number of children.
    pub n_children: i64,
    /// The children; may be NULL if there are none.
    pub children: *mut *mut ArrowSchema,
    /// Type of the dictionary's values, or NULL if not dictionary-encoded.
    pub dictionary: *mut ArrowSchema,
    /// Releases the struct and everything below it, and sets its own `release` to NULL.
    pub release: Option<unsafe extern "C" fn(schema: *mut ArrowSchema)>,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

/// The data of an array.
///
/// Owned, released and moved like `ArrowSchema`. A child that was moved out stays valid when its
/// former parent is released.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct ArrowArray {
    /// Number of elements.
    pub length: i64,
    /// Number of nulls, or -1 if not counted.
    pub null_count: i64,
    /// Elements to skip in each buffer.
    pub offset: i64,
    /// Number of buffers; the type determines it.
    pub n_buffers: i64,
    /// Number of children; the type determines it.
    pub n_children: i64,
    /// Addresses of the buffers in the order of the Arrow columnar format. A NULL validity buffer
    /// means that there are no nulls.
    pub buffers: *mut *const c_void,
    /// The children; may be NULL if there are none.
    pub children: *mut *mut ArrowArray,
    /// The dictionary's values, or NULL if not dictionary-encoded.
    pub dictionary: *mut ArrowArray,
    /// Releases the struct and everything below it, and sets its own `release` to NULL.
    pub release: Option<unsafe extern "C" fn(array: *mut ArrowArray)>,
    /// For the producer's own use.
    pub private_data: *mut c_void,
}

/// Statistics key: mean bytes of a value.
pub const ARROW_STATISTICS_KEY_AVERAGE_BYTE_WIDTH_EXACT: &CStr = c"ARROW:average_byte_width:exact";
/// Statistics key: mean bytes of a value, an estimate.
pub const ARROW_STATISTICS_KEY_AVERAGE_BYTE_WIDTH_APPROXIMATE: &CStr = c"ARROW:average_byte_width:approximate";
/// Statistics key: number of distinct values.
pub const ARROW_STATISTICS_KEY_DISTINCT_COUNT_EXACT: &CStr = c"ARROW:distinct_count:exact";
/// Statistics key: number of distinct values, an estimate.
pub const ARROW_STATISTICS_KEY_DISTINCT_COUNT_APPROXIMATE: &CStr = c"ARROW:distinct_count:approximate";
/// Statistics key: bytes of the longest value.
pub const ARROW_STATISTICS_KEY_MAX_BYTE_WIDTH_EXACT: &CStr = c"ARROW:max_byte_width:exact";
/// Statistics key: bytes of the longest value, an estimate.
pub const ARROW_STATISTICS_KEY_MAX_BYTE_WIDTH_APPROXIMATE: &CStr = c"ARROW:max_byte_width:approximate";
/// Statistics key: largest value.
pub const ARROW_STATISTICS_KEY_MAX_VALUE_EXACT: &CStr = c"ARROW:max_value:exact";
/// Statistics key: largest value, an estimate.
pub const ARROW_STATISTICS_KEY_MAX_VALUE_APPROXIMATE: &CStr = c"ARROW:max_value:approximate";
/// Statistics key: smallest value.
pub const ARROW_STATISTICS_KEY_MIN_VALUE_EXACT: &CStr = c"ARROW:min_value:exact";
/// Statistics key: smallest value, an estimate.
pub const ARROW_STATISTICS_KEY_MIN_VALUE_APPROXIMATE: &CStr = c"ARROW:min_value:approximate";
/// Statistics key: number of nulls.
pub const ARROW_STATISTICS_KEY_NULL_COUNT_EXACT: &CStr = c"ARROW:null_count:exact";
/// Statistics key: number of nulls, an estimate.
pub const ARROW_STATISTICS_KEY_NULL_COUNT_APPROXIMATE: &CStr = c"ARROW:null_count:approximate";
/// Statistics key: number of rows.
pub const ARROW_STATISTICS_KEY_ROW_COUNT_EXACT: &CStr = c"ARROW:row_count:exact";
/// Statistics key: number of rows, an estimate.
pub const ARROW_STATISTICS_KEY_ROW_COUNT_APPROXIMATE: &CStr = c"ARROW:row_count:approximate";

#[cfg(target_pointer_width = "64")]
const _: () = {
    assert!(size_of::<ArrowSchema>() == 72);
    assert!(size_of::<ArrowArray>() == 80);
};
