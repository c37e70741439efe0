//! Placing the library where clients look, as a driver of a given version.
//!
//! Clients that probe with `dlsym` behave according to which names exist: a newer form of a function, which a driver of
//! that version does not have, would change their behaviour. So the placed copy has those names altered in its string
//! table, where a look-up by the right name then finds nothing.

use crate::proc::too_new_for;
use std::fs;
use std::io;
use std::path::Path;

/// The place of the version in a placed copy: these digits are replaced.
#[used]
static VERSION: [u8; 25] = *b"simcuda version:    12090";

const MARK: &[u8] = b"simcuda version:    ";

/// The version that this copy of the library was placed as.
pub(crate) fn version() -> String {
    // A volatile-like read: the compiler must not assume that the digits in the source are those in the file.
    let bytes = std::hint::black_box(&VERSION);
    String::from_utf8_lossy(bytes.get(MARK.len()..).unwrap_or_default()).trim().to_owned()
}

/// Copies the library `built` to `libcuda.so.1` and `libcuda.so` in a directory, as a driver of `version`
/// (such as 12090).
///
/// # Errors
/// If files cannot be read or written, or `built` is not this library.
pub fn place(built: &Path, directory: &Path, version: i32) -> io::Result<()> {
    let not_ours = || io::Error::new(io::ErrorKind::InvalidData, "not the simulated driver");
    let mut file = fs::read(built)?;
    let digits = format!("{version:>5}");
    let at = find(&file, MARK).ok_or_else(not_ours)? + MARK.len();
    let slot = file.get_mut(at..at + 5).filter(|_| digits.len() == 5).ok_or_else(not_ours)?;
    slot.copy_from_slice(digits.as_bytes());
    let (start, end) = dynamic_strings(&file).ok_or_else(not_ours)?;
    let names = file.get_mut(start..end).ok_or_else(not_ours)?;
    for name in too_new_for(version) {
        for suffix in ["", "_ptsz", "_ptds"] {
            let entry = format!("\0{name}{suffix}\0");
            if let Some(at) = find(names, entry.as_bytes())
                && let Some(last) = names.get_mut(at + entry.len() - 2)
            {
                *last = b'!';
            }
        }
    }
    fs::create_dir_all(directory)?;
    let library = directory.join("libcuda.so.1");
    // A new file, because a copy that is in use must keep its file.
    let fresh = directory.join(format!("libcuda.so.1.{}", std::process::id()));
    fs::write(&fresh, file)?;
    fs::set_permissions(&fresh, fs::metadata(built)?.permissions())?;
    fs::rename(&fresh, &library)?;
    // The link is also made elsewhere first: another process may place the library here at the same time.
    std::os::unix::fs::symlink("libcuda.so.1", &fresh)?;
    fs::rename(&fresh, directory.join("libcuda.so"))
}

fn find(hay: &[u8], needle: &[u8]) -> Option<usize> {
    hay.windows(needle.len()).position(|w| w == needle)
}

/// A little-endian number of `n` bytes in the file.
fn number(file: &[u8], at: usize, n: usize) -> Option<usize> {
    let bytes = file.get(at..at.checked_add(n)?)?;
    let value = bytes.iter().rev().fold(0u64, |v, b| v << 8 | u64::from(*b));
    usize::try_from(value).ok()
}

/// The string table of the dynamic symbols of an ELF64 file.
fn dynamic_strings(file: &[u8]) -> Option<(usize, usize)> {
    const DYNAMIC_SYMBOLS: usize = 11;
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (number(file, 0x28, 8)?, number(file, 0x3a, 2)?, number(file, 0x3c, 2)?);
    let header = |index: usize| table.checked_add(index.checked_mul(size)?);
    let symbols = (0..count).filter_map(header).find(|h| number(file, h + 4, 4) == Some(DYNAMIC_SYMBOLS))?;
    let strings = header(number(file, symbols + 0x28, 4)?)?;
    let (start, len) = (number(file, strings + 0x18, 8)?, number(file, strings + 0x20, 8)?);
    Some((start, start.checked_add(len)?))
}
