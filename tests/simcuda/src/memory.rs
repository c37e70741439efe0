//! The one module with `unsafe`: address space, shared memory, and moving bytes.
//!
//! Device addresses come from a reservation that nobody may touch; their bytes lie in a memfd that is mapped
//! elsewhere. Host addresses given out by the driver are real memory while allocated and trap before and after.

use std::fs::{File, OpenOptions};
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) const PAGE: u64 = 4096;

pub(crate) fn round_up(n: u64) -> Option<u64> {
    n.max(1).checked_next_multiple_of(PAGE)
}

fn size(n: u64) -> io::Result<usize> {
    usize::try_from(n).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
}

/// An address that a caller gave. How it was made decides whether the driver may touch memory there that the driver did
/// not allocate itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addr {
    raw: u64,
    host: bool,
}

impl Addr {
    /// An address that is only looked up among the driver's own allocations and registrations.
    #[must_use]
    pub fn known(raw: u64) -> Self {
        Self { raw, host: false }
    }

    /// Any address, ordinary host memory included.
    ///
    /// # Safety
    /// If it is not one of the driver's, it must point to memory that is valid for the accesses of the call that
    /// it is given to, until that call returns, and for a registration until it is removed.
    #[must_use]
    pub unsafe fn any(raw: u64) -> Self {
        Self { raw, host: true }
    }

    /// The memory of a slice, for a call that does not keep it: pageable memory is copied before a call returns, and
    /// registered memory is kept valid by the code that registered it.
    pub(crate) fn of(slice: &[u8]) -> Self {
        Self { raw: slice.as_ptr() as u64, host: true }
    }

    /// The memory of a slice that a call fills before it returns.
    pub(crate) fn of_mut(slice: &mut [u8]) -> Self {
        Self { raw: slice.as_mut_ptr() as u64, host: true }
    }

    /// The number.
    #[must_use]
    pub fn raw(self) -> u64 {
        self.raw
    }

    /// The host memory there, if the caller vouched for it.
    pub(crate) fn host(self) -> Option<HostAddr> {
        (self.host && self.raw != 0).then_some(HostAddr(self.raw))
    }
}

impl From<u64> for Addr {
    fn from(raw: u64) -> Self {
        Self::known(raw)
    }
}

/// Host memory that a caller of [`Addr::any`] vouched for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostAddr(u64);

impl HostAddr {
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    pub(crate) fn span(&self, offset: u64, n: u64) -> Option<Span<'_>> {
        let at = self.0.checked_add(offset)?;
        NonNull::new(at as *mut u8).map(|at| Span { at, n: usize::try_from(n).unwrap_or(0), life: PhantomData })
    }
}

/// A range of mapped bytes, valid as long as the object that it was borrowed from.
pub(crate) struct Span<'a> {
    at: NonNull<u8>,
    n: usize,
    life: PhantomData<&'a ()>,
}

impl Span<'_> {
    pub(crate) fn copy_from(&self, source: &Span<'_>) {
        // SAFETY: both spans are valid for their length, and the shorter one is used; `copy` allows overlap.
        unsafe { std::ptr::copy(source.at.as_ptr(), self.at.as_ptr(), self.n.min(source.n)) }
    }

    pub(crate) fn put(&self, data: &[u8]) {
        // SAFETY: the span is valid for its length, the slice for its own, and the shorter one is used.
        unsafe { std::ptr::copy(data.as_ptr(), self.at.as_ptr(), self.n.min(data.len())) }
    }

    pub(crate) fn fill(&self, byte: u8) {
        // SAFETY: the span is valid for its length.
        unsafe { std::ptr::write_bytes(self.at.as_ptr(), byte, self.n) }
    }

    pub(crate) fn to_vec(&self) -> Vec<u8> {
        let mut out = vec![0; self.n];
        // SAFETY: the span is valid for its length, which is the length of the new vector.
        unsafe { std::ptr::copy_nonoverlapping(self.at.as_ptr(), out.as_mut_ptr(), self.n) }
        out
    }
}

/// Address space that is handed out once and never again.
#[derive(Debug)]
pub(crate) struct Arena {
    base: NonNull<u8>,
    size: u64,
    next: u64,
}

// SAFETY: an arena owns a range of address space; the pointer in it is not tied to a thread.
unsafe impl Send for Arena {}

impl Arena {
    pub(crate) fn reserve(bytes: u64) -> io::Result<Self> {
        let bytes = round_up(bytes).unwrap_or(PAGE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new anonymous mapping at an address of the kernel's choice touches no existing memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), size(bytes)?, libc::PROT_NONE, flags, -1, 0) };
        let base = mapped(at)?;
        Ok(Self { base, size: bytes, next: PAGE })
    }

    fn start(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    pub(crate) fn contains(&self, address: u64) -> bool {
        address.checked_sub(self.start()).is_some_and(|off| off < self.size)
    }

    /// A new range with a guard page behind it.
    pub(crate) fn take(&mut self, n: u64) -> Option<u64> {
        let end = self.next.checked_add(round_up(n)?)?.checked_add(PAGE)?;
        if end > self.size {
            return None;
        }
        let at = self.start() + self.next;
        self.next = end;
        Some(at)
    }

    /// Makes a taken range usable by the host.
    pub(crate) fn open(&self, at: u64, n: u64) -> io::Result<()> {
        self.protect(at, n, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// Makes a range trap for good and gives its pages back.
    pub(crate) fn close(&self, at: u64, n: u64) {
        let (Ok(len), true) = (size(round_up(n).unwrap_or(0)), self.contains(at)) else { return };
        // SAFETY: the range was taken from this arena and its allocation is over, so dropping its pages loses
        // nothing that anybody may still read.
        unsafe { libc::madvise(at as *mut libc::c_void, len, libc::MADV_DONTNEED) };
        let _ = self.protect(at, n, libc::PROT_NONE);
    }

    fn protect(&self, at: u64, n: u64, protection: libc::c_int) -> io::Result<()> {
        let len = round_up(n).unwrap_or(0);
        if !self.contains(at) || !self.contains(at.saturating_add(len)) {
            return Err(io::Error::from(io::ErrorKind::InvalidInput));
        }
        // SAFETY: the range lies inside this arena, whose pages nothing else relies on.
        match unsafe { libc::mprotect(at as *mut libc::c_void, size(len)?, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Bytes of an open range.
    pub(crate) fn span(&self, at: u64, n: u64) -> Option<Span<'_>> {
        let inside = self.contains(at) && self.contains(at.checked_add(n)?);
        let at = NonNull::new(at as *mut u8).filter(|_| inside)?;
        Some(Span { at, n: usize::try_from(n).ok()?, life: PhantomData })
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `reserve` with this size and is owned by this value.
        unsafe { libc::munmap(self.base.as_ptr().cast(), usize::try_from(self.size).unwrap_or(0)) };
    }
}

fn mapped(at: *mut libc::c_void) -> io::Result<NonNull<u8>> {
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(at.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

/// Bytes in a memfd, which another process can open too.
#[derive(Debug)]
pub(crate) struct Backing {
    at: NonNull<u8>,
    len: usize,
    file: File,
}

// SAFETY: a backing owns its mapping; the pointer in it is not tied to a thread.
unsafe impl Send for Backing {}
// SAFETY: the bytes are reached only while the simulator's lock is held, or atomically (`Shared`).
unsafe impl Sync for Backing {}

impl Backing {
    pub(crate) fn new(n: u64) -> io::Result<Self> {
        let len = round_up(n).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the name is a C string; the call makes a descriptor and touches no memory of ours.
        let fd = unsafe { libc::memfd_create(c"simcuda".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nothing else owns it.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(len)?;
        Self::map(file, len)
    }

    /// The memory that another process, or another simulator here, exported.
    pub(crate) fn open(pid: u32, fd: u32, n: u64) -> io::Result<Self> {
        let len = round_up(n).ok_or(io::ErrorKind::OutOfMemory)?;
        let file = OpenOptions::new().read(true).write(true).open(format!("/proc/{pid}/fd/{fd}"))?;
        if file.metadata()?.len() < len {
            return Err(io::Error::from(io::ErrorKind::InvalidData));
        }
        Self::map(file, len)
    }

    fn map(file: File, len: u64) -> io::Result<Self> {
        let len = size(len)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice, of a file that is at least `len` long.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        Ok(Self { at: mapped(at)?, len, file })
    }

    pub(crate) fn fd(&self) -> u32 {
        u32::try_from(self.file.as_raw_fd()).unwrap_or(0)
    }

    pub(crate) fn span(&self, offset: u64, n: u64) -> Option<Span<'_>> {
        let (offset, n) = (usize::try_from(offset).ok()?, usize::try_from(n).ok()?);
        if offset.checked_add(n)? > self.len {
            return None;
        }
        // SAFETY: `offset` is within the mapping, checked above.
        let at = unsafe { self.at.add(offset) };
        Some(Span { at, n, life: PhantomData })
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `map` with this length and is owned by this value.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.len) };
    }
}

/// Two counters in shared memory: how often an interprocess event was recorded, and up to which it is done.
#[derive(Debug)]
pub(crate) struct Shared(Backing);

impl Shared {
    pub(crate) fn new() -> io::Result<Self> {
        Backing::new(16).map(Self)
    }

    pub(crate) fn open(pid: u32, fd: u32) -> io::Result<Self> {
        Backing::open(pid, fd, 16).map(Self)
    }

    pub(crate) fn fd(&self) -> u32 {
        self.0.fd()
    }

    fn cell(&self, index: usize) -> &AtomicU64 {
        let at = self.0.at.cast::<AtomicU64>();
        // SAFETY: the mapping is page aligned and at least a page long; `index` is 0 or 1.
        let at = unsafe { at.add(index & 1) };
        // SAFETY: the mapping lives as long as `self`, and every process uses these bytes atomically.
        unsafe { at.as_ref() }
    }

    /// Announces one more record and returns its number.
    pub(crate) fn record(&self) -> u64 {
        self.cell(0).fetch_add(1, Ordering::AcqRel) + 1
    }

    pub(crate) fn recorded(&self) -> u64 {
        self.cell(0).load(Ordering::Acquire)
    }

    pub(crate) fn complete(&self, number: u64) {
        self.cell(1).fetch_max(number, Ordering::AcqRel);
    }

    pub(crate) fn completed(&self) -> u64 {
        self.cell(1).load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arena_never_gives_the_same_address_twice_and_leaves_gaps() {
        let mut arena = Arena::reserve(1 << 20).unwrap();
        let (a, b) = (arena.take(10).unwrap(), arena.take(PAGE).unwrap());
        assert_eq!(b - a, 2 * PAGE);
        assert!(arena.take(1 << 20).is_none());
        assert!(arena.take(u64::MAX).is_none());
        arena.open(a, 10).unwrap();
        arena.span(a, 10).unwrap().fill(7);
        assert_eq!(arena.span(a, 10).unwrap().to_vec(), [7; 10]);
        arena.close(a, 10);
        assert!(!arena.contains(b + (1 << 20)));
    }

    #[test]
    fn a_backing_is_seen_by_whoever_opens_it() {
        let a = Backing::new(100).unwrap();
        a.span(0, 5).unwrap().put(b"hello");
        let b = Backing::open(std::process::id(), a.fd(), 100).unwrap();
        assert_eq!(b.span(0, 5).unwrap().to_vec(), b"hello");
        assert!(a.span(PAGE - 1, 2).is_none());
        assert!(Backing::open(std::process::id(), a.fd(), 2 * PAGE).is_err());
    }

    #[test]
    fn shared_counters() {
        let a = Shared::new().unwrap();
        let b = Shared::open(std::process::id(), a.fd()).unwrap();
        assert_eq!((a.record(), a.record(), b.recorded()), (1, 2, 2));
        b.complete(2);
        b.complete(1);
        assert_eq!(a.completed(), 2);
    }
}
