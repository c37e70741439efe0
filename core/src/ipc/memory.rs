//! Host memory that processes can share: memory files, each mapped once in a process and found again by address.
//!
//! A file is sealed, so that nobody can truncate it under a reader. Memory that was handed over stays valid when the process
//! that made it ends: the system keeps a file as long as anyone maps it.

use core::ffi::c_void;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{self, FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::{Errno, retry_on_intr};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::abi::types::DEVX_OUT_OF_MEMORY;
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result, refuse};
use crate::fork::Lock;
use crate::layout;
use crate::manager::Allocated;
use crate::memory::{Counted, Owner, Sorted, Weak, repeated, said};
use crate::order::Ready;
use crate::tensor::{Flags, Tensor, TensorDesc};
use crate::text::OfErrno;
use crate::transfer::Memory;

/// Prevents a file from changing its size while it is mapped.
const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// The type of the file system of files that are made of huge pages (`HUGETLBFS_MAGIC`).
const HUGE_PAGES: fs::FsWord = 0x9584_58f6;

/// Identifies a file, and says whether it can be written.
type Key = (u64, u64, bool);

/// Where a file to be mapped comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// Made just now: no mapped file is the same, even if it has the same number. On some systems the numbers of memory files
    /// have 32 bits and repeat.
    New,
    /// From another process: the same file may have come before.
    Peer,
}

/// A memory file in the address space of this process.
#[derive(Debug)]
pub(super) struct Mapping {
    address: usize,
    bytes: usize,
    fd: Counted<OwnedFd>,
    /// A descriptor of the same file for reading only, as long as anyone has it.
    for_reading: Lock<Option<Weak<OwnedFd>>>,
    key: Key,
}

/// The mappings of this process.
struct Books {
    by_address: Sorted<usize, Weak<Mapping>>,
    by_file: Sorted<Key, Weak<Mapping>>,
}

static BOOKS: Lock<Books> = Lock::new(Books { by_address: Sorted::new(), by_file: Sorted::new() });

impl Mapping {
    /// Makes a new file of `bytes` bytes. All of its memory is reserved: running out of memory is an error now, not a signal
    /// later.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_SYSTEM`.
    fn new(bytes: usize) -> Result<Counted<Self>> {
        let fd = file("devexchange", bytes)?;
        seal(&fd)?;
        Self::map(fd, bytes, true, Origin::New)
    }

    /// Makes a new file that only this process can ever write, whoever gets its descriptor.
    ///
    /// # Errors
    /// Those of [`Mapping::new`]; `DEVX_SYSTEM` on a system that cannot guarantee this (Linux before 5.1).
    pub(super) fn written_here_only(bytes: usize) -> Result<Counted<Self>> {
        // Sealed after it is mapped, because an existing mapping can still be written.
        let mapping = Self::map(file("devexchange-changes", bytes)?, bytes, true, Origin::New)?;
        fs::fcntl_add_seals(&*mapping.fd, SEALS | SealFlags::FUTURE_WRITE | SealFlags::SEAL)
            .map_err(|errno| Error::system("fcntl", errno))?;
        Ok(mapping)
    }

    /// Opens a file of another process. It is mapped once, however often it comes.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for a file that is not a sealed memory file, or has another size; `DEVX_OUT_OF_MEMORY`,
    /// `DEVX_SYSTEM`.
    pub(super) fn open(fd: OwnedFd, bytes: u64, writable: bool) -> Result<Counted<Self>> {
        let (found, seals) = sealed_bytes(fd.as_fd(), "the file descriptor of a region")?;
        if found != bytes {
            return refuse!(
                DEVX_INVALID_ARGUMENT,
                "region.bytes is {bytes}, but the file has {found}: it is not the one that is meant"
            );
        }
        // Checked here because the file may be mapped already, for an importer that may write it.
        let mode = fs::fcntl_getfl(&fd).map_err(|errno| Error::system("fcntl", errno))? & OFlags::ACCMODE;
        if writable && (mode != OFlags::RDWR || seals.intersects(SealFlags::WRITE | SealFlags::FUTURE_WRITE)) {
            return refuse!(DEVX_INVALID_ARGUMENT, "region.writable is 1, but the file cannot be written");
        }
        Self::map(fd, bytes as usize, writable, Origin::Peer)
    }

    /// # Errors
    /// Same as [`Mapping::open`].
    pub(super) fn map(fd: OwnedFd, bytes: usize, writable: bool, origin: Origin) -> Result<Counted<Self>> {
        let found = fs::fstat(&fd).map_err(|errno| Error::system("fstat", errno))?;
        let key = (found.st_dev, found.st_ino, writable);
        // Held during the system call, so that two threads do not map a file at once.
        let mut books = BOOKS.lock();
        if origin == Origin::Peer
            && let Some(known) = books.by_file.get(&key).and_then(Weak::upgrade)
        {
            // If this has become the last reference, dropping it needs the lock.
            drop(books);
            if known.bytes == bytes {
                return Ok(known);
            }
            return refuse!(
                DEVX_INVALID_ARGUMENT,
                "region.bytes is {bytes}, but of the file {} {} bytes are mapped here: the system has given its number twice",
                found.st_ino,
                known.bytes
            );
        }
        // Room is made first, because a mapped file must get into the books.
        let Books { by_address, by_file } = &mut *books;
        let (by_address, by_file) = (by_address.room()?, by_file.room()?);
        let (room, room_for_fd) = (Counted::room()?, Counted::room()?);
        let access = if writable { ProtFlags::READ | ProtFlags::WRITE } else { ProtFlags::READ };
        // SAFETY: a new mapping at an address that the system chooses.
        let address = unsafe { mmap(std::ptr::null_mut(), bytes, access, MapFlags::SHARED, &fd, 0) };
        let address = address.map_err(|errno| match errno {
            // The process has no addresses left, or is not allowed more (RLIMIT_AS).
            Errno::NOMEM => no_memory(bytes, format_args!("mmap: {}", OfErrno(errno.raw_os_error()))),
            _ => Error::system("mmap", errno),
        });
        let address = address?.expose_provenance();
        let mapping = room.fill(Self { address, bytes, fd: room_for_fd.fill(fd), for_reading: Lock::new(None), key });
        by_address.insert(address, mapping.downgrade());
        by_file.insert(key, mapping.downgrade());
        Ok(mapping)
    }

    /// Finds the mapping that contains a whole range, and the offset of the range in it.
    pub(super) fn find(address: usize, bytes: usize) -> Option<(Counted<Self>, usize)> {
        let books = BOOKS.lock();
        let mapping = books.by_address.up_to(&address)?.upgrade()?;
        // If this has become the last reference, dropping it needs the lock.
        drop(books);
        let offset = address - mapping.address;
        (offset.checked_add(bytes)? <= mapping.bytes).then_some((mapping, offset))
    }

    pub(super) fn address(&self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_writable(&self) -> bool {
        self.key.2
    }

    /// Returns a descriptor for another process, with which it can write only if `writable` is set and the memory is writable.
    /// Everything that shares this memory uses the same two descriptors, because a process may have few.
    ///
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`, `DEVX_SYSTEM`.
    pub(super) fn descriptor(&self, writable: bool) -> Result<Counted<OwnedFd>> {
        if writable || !self.is_writable() {
            return Ok(self.fd.clone());
        }
        let mut for_reading = self.for_reading.lock();
        if let Some(known) = for_reading.as_ref().and_then(Weak::upgrade) {
            return Ok(known);
        }
        let room = Counted::room()?;
        // Not `self`: that is the first thread, which may have ended.
        let path = said(format_args!("/proc/thread-self/fd/{}", self.fd.as_raw_fd()))?;
        let fd = fs::open(&*path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| Error::system("open", errno))?;
        let fd = room.fill(fd);
        *for_reading = Some(fd.downgrade());
        Ok(fd)
    }
}

impl AsFd for Mapping {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let mut books = BOOKS.lock();
        books.by_address.remove(&self.address);
        // Another thread may have mapped the file again.
        if books.by_file.get(&self.key).is_some_and(Weak::is_gone) {
            books.by_file.remove(&self.key);
        }
        // SAFETY: mapped by this value, whose users hold references to it.
        let _ = unsafe { munmap(self.address(), self.bytes) };
    }
}

/// Makes a memory file of `bytes` bytes, not sealed yet.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`, `DEVX_SYSTEM`.
pub(super) fn file(name: &str, bytes: usize) -> Result<OwnedFd> {
    let refused = |why: fmt::Arguments<'_>| Err(no_memory(bytes, why));
    // A file that grows beyond this limit ends the process with a signal.
    if let Some(limit) = largest_file().filter(|limit| bytes > *limit) {
        return refused(format_args!("the files of this process have at most {limit} (RLIMIT_FSIZE)"));
    }
    if bytes >= LARGE
        && let Some(available) = available().filter(|available| bytes as u64 > *available)
    {
        return refused(format_args!("the system has {available}"));
    }
    let fd = fs::memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(|errno| Error::system("memfd_create", errno))?;
    // A process that gets a descriptor for reading cannot open the file again for writing.
    let for_reading = Mode::RUSR | Mode::RGRP | Mode::ROTH;
    fs::fchmod(&fd, for_reading).map_err(|errno| Error::system("fchmod", errno))?;
    match reserve(&fd, bytes as u64) {
        Ok(()) => Ok(fd),
        Err(errno) => refused(format_args!("{}", OfErrno(errno.raw_os_error()))),
    }
}

/// Returns the most bytes that a file of this process may have (`RLIMIT_FSIZE`); `None` if the system does not say, as in a
/// sandbox that refuses the question. (rustix takes for granted that there is an answer, and would read none as one.)
fn largest_file() -> Option<usize> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the answer.
    let code = unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    // No limit is the largest number.
    if code == 0 { usize::try_from(limit.rlim_cur).ok() } else { None }
}

/// Reserves a file's memory, in pieces: some systems give back everything if a signal interrupts the call, so a timer that is
/// faster than the whole call would keep it from ever finishing.
fn reserve(fd: &OwnedFd, bytes: u64) -> rustix::io::Result<()> {
    const PIECE: u64 = 16 << 20;
    (0..bytes).step_by(PIECE as usize).try_for_each(|from| {
        retry_on_intr(|| fs::fallocate(fd, FallocateFlags::empty(), from, PIECE.min(bytes - from)))
    })
}

fn no_memory(bytes: usize, why: fmt::Arguments<'_>) -> Error {
    Error::new(DEVX_OUT_OF_MEMORY, format_args!("{bytes} bytes of shared memory could not be allocated: {why}"))
}

/// From this size on, the system is asked first whether it has the memory. It would not refuse, but use up all memory and end
/// other programs to get more.
const LARGE: usize = 64 << 20;

/// Returns the bytes that the system says it can provide, including swap.
fn available() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let kilobytes = |name| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim().strip_suffix(" kB")?.parse::<u64>().ok()
    };
    kilobytes("MemAvailable:")?.checked_add(kilobytes("SwapFree:").unwrap_or(0))?.checked_mul(1024)
}

/// # Errors
/// `DEVX_SYSTEM`.
pub(super) fn seal(fd: &OwnedFd) -> Result<()> {
    fs::fcntl_add_seals(fd, SEALS | SealFlags::SEAL).map_err(|errno| Error::system("fcntl", errno))
}

pub(super) fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

/// Returns the size and all seals of a peer's file that nobody can truncate. Only memory files can be sealed, so reading the
/// file does not make the reader wait. Huge pages are refused, because the system has a limited number of them: reading where
/// the file has a hole, when none is left, would end the reader with a signal.
///
/// # Errors
/// `DEVX_INVALID_ARGUMENT` for any other file; `DEVX_SYSTEM`.
fn sealed_bytes(fd: BorrowedFd<'_>, what: &str) -> Result<(u64, SealFlags)> {
    let Ok(seals) = fs::fcntl_get_seals(fd) else {
        return refuse!(DEVX_INVALID_ARGUMENT, "{what} is no memory file: it has no seals");
    };
    if !seals.contains(SEALS) {
        return refuse!(
            DEVX_INVALID_ARGUMENT,
            "{what} has the seals {:#x}: its memory could be cut off under a reader",
            seals.bits()
        );
    }
    if fs::fstatfs(fd).map_err(|errno| Error::system("fstatfs", errno))?.f_type == HUGE_PAGES {
        return refuse!(DEVX_INVALID_ARGUMENT, "{what} is of huge pages, of which there may be none left for a reader");
    }
    let found = fs::fstat(fd).map_err(|errno| Error::system("fstat", errno))?;
    Ok((u64::try_from(found.st_size).unwrap_or(0), seals))
}

/// Reads a small file from a peer completely, if it has at most `most` bytes.
///
/// # Errors
/// `DEVX_INVALID_ARGUMENT`, `DEVX_SYSTEM`.
pub(super) fn read_all(fd: BorrowedFd<'_>, most: usize) -> Result<Vec<u8>> {
    let (bytes, _) = sealed_bytes(fd, "the file of the descriptor")?;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    if bytes > most {
        return refuse!(DEVX_INVALID_ARGUMENT, "the descriptor has {bytes} bytes: more than {most}");
    }
    let mut all = repeated(0_u8, bytes)?;
    let mut filled = 0;
    while let Some(rest) = all.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pread(fd, rest, filled as u64) {
            Ok(0) => return refuse!(DEVX_INVALID_ARGUMENT, "the descriptor ends after {filled} of {bytes} bytes"),
            Ok(read) => filled += read,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("pread", errno)),
        }
    }
    Ok(all)
}

/// Makes a sealed memory file with these bytes.
///
/// # Errors
/// Same as [`file()`].
pub(super) fn file_of(bytes: &[u8]) -> Result<OwnedFd> {
    let fd = file("devexchange-descriptor", bytes.len())?;
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        match rustix::io::pwrite(fd.as_fd(), rest, written as u64) {
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Error::system("pwrite", errno)),
        }
    }
    seal(&fd)?;
    Ok(fd)
}

/// Allocates host memory that can be shared with other processes without a copy. It is zeroed, and every importer can write it.
///
/// # Errors
/// `DEVX_OUT_OF_MEMORY`, `DEVX_SYSTEM`.
pub fn allocate(bytes: usize) -> Result<Allocated> {
    let Memory { address, owner, ready } = block(bytes)?;
    Ok(Allocated { address, device: Device::CPU, bytes, owner, ready })
}

pub(super) fn block(bytes: usize) -> Result<Memory> {
    if bytes == 0 {
        return Ok(Memory { address: std::ptr::null_mut(), owner: Owner::none(), ready: Ready::Now });
    }
    let mapping = Mapping::new(bytes)?;
    Ok(Memory { address: mapping.address(), owner: Owner::try_new(mapping)?, ready: Ready::Now })
}

/// Creates a host tensor over memory of [`allocate`], compact and row-major. A program that offers it agrees with the importers
/// on who writes it and when: nobody may while anyone, here or there, holds a slice of it ([`Tensor::as_slice`]).
///
/// # Errors
/// `DEVX_INVALID_SHAPE`, and those of [`allocate`].
pub fn allocate_tensor(dtype: DType, shape: &[i64]) -> Result<Tensor> {
    let bytes = layout::check(dtype, false, shape, None)?.bytes;
    let Memory { address: data, owner, .. } = block(bytes)?;
    let (device, flags) = (Device::CPU, Flags::default());
    let desc = TensorDesc { data, device, dtype, shape, strides: None, byte_offset: 0, flags };
    // SAFETY: the memory has the bytes of the shape, and lives in the owner.
    Ok(unsafe { Tensor::from_raw_parts(&desc, owner) }?)
}
