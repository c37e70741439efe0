//! Failing allocations of one loaded library, and of no other code.
//!
//! A loaded library calls malloc through its own table, which holds the address of each foreign function. [`install`]
//! writes functions of this file into that table, which fail when they are told to; all other allocations continue as
//! before. So a test can let each allocation of our library fail once while a runtime that allocates all the time runs
//! around it.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

thread_local! {
    /// How many allocations of this thread still succeed before one fails; negative if none is to fail.
    static LEFT: Cell<i64> = const { Cell::new(-1) };
    static FROM_THEN_ON: Cell<bool> = const { Cell::new(false) };
    static FAILED: Cell<i64> = const { Cell::new(0) };
}

/// Makes the `nth` allocation of this thread from now on fail (1: the next one), and all after it if `from_then_on`.
pub fn arm(nth: i64, from_then_on: bool) {
    FAILED.set(0);
    FROM_THEN_ON.set(from_then_on);
    LEFT.set(nth - 1);
}

/// Lets no more allocations fail. Returns how many have failed since [`arm`].
pub fn disarm() -> i64 {
    LEFT.set(-1);
    FAILED.take()
}

fn fails() -> bool {
    let left = LEFT.get();
    if left > 0 || (left == 0 && !FROM_THEN_ON.get()) {
        LEFT.set(left - 1);
    }
    if left == 0 {
        FAILED.set(FAILED.get() + 1);
    }
    left == 0
}

fn out_of_memory() -> *mut c_void {
    // SAFETY: a query without preconditions.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address of this thread's own number.
    unsafe { *errno = libc::ENOMEM };
    null_mut()
}

unsafe extern "C" fn malloc(bytes: usize) -> *mut c_void {
    // SAFETY: a call without preconditions.
    if fails() { out_of_memory() } else { unsafe { libc::malloc(bytes) } }
}

unsafe extern "C" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    // SAFETY: a call without preconditions.
    if fails() { out_of_memory() } else { unsafe { libc::calloc(count, bytes) } }
}

unsafe extern "C" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    // SAFETY: the contract of realloc's caller.
    if fails() { out_of_memory() } else { unsafe { libc::realloc(block, bytes) } }
}

unsafe extern "C" fn posix_memalign(out: *mut *mut c_void, align: usize, bytes: usize) -> c_int {
    // SAFETY: the contract of posix_memalign's caller.
    if fails() { libc::ENOMEM } else { unsafe { libc::posix_memalign(out, align, bytes) } }
}

fn in_place_of(name: &CStr) -> Option<usize> {
    Some(match name.to_bytes() {
        b"malloc" => malloc as *const () as usize,
        b"calloc" => calloc as *const () as usize,
        b"realloc" => realloc as *const () as usize,
        b"posix_memalign" => posix_memalign as *const () as usize,
        _ => return None,
    })
}

struct Search<'a> {
    name: &'a str,
    replaced: i32,
}

/// Makes the library call the functions of this file; its file's name begins with `name`. Returns the number of changed
/// places: 0 if no library of that name is loaded. It must be called before other threads use the library.
pub fn install(name: &str) -> i32 {
    unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _size: usize, search: *mut c_void) -> c_int {
        // SAFETY: the `Search` that `install` passes.
        let search = unsafe { &mut *search.cast::<Search<'_>>() };
        // SAFETY: the loader's description of a library.
        let info = unsafe { &*info };
        // SAFETY: as above.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) };
        let file = path.to_bytes().rsplit(|byte| *byte == b'/').next();
        if file.is_some_and(|file| file.starts_with(search.name.as_bytes())) {
            // SAFETY: as above.
            search.replaced += unsafe { replace(info) };
        }
        0
    }
    let mut search = Search { name, replaced: 0 };
    // SAFETY: the function follows the loader's contract.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.replaced
}

/// The needed parts of the dynamic section (ELF, "Dynamic Section").
#[derive(Default)]
struct Dynamic {
    strings: usize,
    symbols: usize,
    relocations: [(usize, usize); 2],
}

const DT_NULL: i64 = 0;
const DT_PLTRELSZ: i64 = 2;
const DT_STRTAB: i64 = 5;
const DT_SYMTAB: i64 = 6;
const DT_RELA: i64 = 7;
const DT_RELASZ: i64 = 8;
const DT_JMPREL: i64 = 23;

/// # Safety
/// A library that is loaded.
unsafe fn replace(info: &libc::dl_phdr_info) -> i32 {
    // SAFETY: this many headers exist.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let mut found = Dynamic::default();
    for header in headers.iter().filter(|header| header.p_type == libc::PT_DYNAMIC) {
        let mut entry = (base + header.p_vaddr as usize) as *const (i64, usize);
        // SAFETY: the section ends with an entry of zero.
        while let (tag, value) = unsafe { *entry }
            && tag != DT_NULL
        {
            match tag {
                DT_STRTAB => found.strings = value,
                DT_SYMTAB => found.symbols = value,
                DT_RELA => found.relocations[0].0 = value,
                DT_RELASZ => found.relocations[0].1 = value,
                DT_JMPREL => found.relocations[1].0 = value,
                DT_PLTRELSZ => found.relocations[1].1 = value,
                _ => {}
            }
            entry = entry.wrapping_add(1);
        }
    }
    let mut replaced = 0;
    for (first, bytes) in found.relocations {
        for index in 0..bytes / size_of::<libc::Elf64_Rela>() {
            // SAFETY: the loader read this table.
            let relocation = unsafe { *(first as *const libc::Elf64_Rela).wrapping_add(index) };
            let symbol = (relocation.r_info >> 32) as usize;
            if symbol == 0 {
                continue;
            }
            // SAFETY: as above.
            let symbol = unsafe { *(found.symbols as *const libc::Elf64_Sym).wrapping_add(symbol) };
            let name = (found.strings + symbol.st_name as usize) as *const c_char;
            // SAFETY: a name in the table of names.
            if let Some(function) = in_place_of(unsafe { CStr::from_ptr(name) }) {
                // SAFETY: the place of a function's address.
                unsafe { write((base + relocation.r_offset as usize) as *mut usize, function) };
                replaced += 1;
            }
        }
    }
    replaced
}

/// # Safety
/// The place belongs to the library's table of addresses, which the loader has made read-only.
unsafe fn write(place: *mut usize, function: usize) {
    // SAFETY: a query without preconditions.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let start = place.map_addr(|address| address & !(page - 1));
    // SAFETY: the pages of the table; a place is aligned and so within one page.
    let code = unsafe { libc::mprotect(start.cast(), page, libc::PROT_READ | libc::PROT_WRITE) };
    assert_eq!(code, 0, "the table of a library's functions could not be changed");
    // SAFETY: writable now; callers of the function only read it.
    unsafe { place.write_volatile(function) };
}
