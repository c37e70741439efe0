//! The requests and answers of managers as records of the C API.

use super::{HostFlags, IpcHandle, MemoryInfo, PoolOptions, Request, Statistics};
use crate::abi::types::{DevxIpcHandle, DevxManagerStatistics, DevxMemoryInfo, DevxMemoryRequest};
use crate::device::{Device, DeviceType};
use crate::error::{Result, refuse};
use crate::order::NO_SYNC;
use crate::stream::{RawStream, Stream};

impl Request {
    /// Reads the C record.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for a negative number of bytes, for flags that do not exist, and if `reserved` is not zero;
    /// `DEVX_DEVICE` for a number of the CPU that is neither 0 nor −1; `DEVX_INVALID_STREAM`.
    ///
    /// # Safety
    /// Same as [`RawStream::new`], for the stream of the record.
    pub unsafe fn from_raw(raw: &DevxMemoryRequest) -> Result<Self> {
        let Ok(bytes) = usize::try_from(raw.bytes) else {
            return refuse!(DEVX_INVALID_ARGUMENT, "bytes is {}: it must not be negative", raw.bytes);
        };
        if raw.reserved != 0 {
            return refuse!(DEVX_INVALID_ARGUMENT, "reserved is {}: it must be 0", raw.reserved);
        }
        let request = Self::named(DeviceType(raw.device_type), raw.device_id, bytes)?;
        let device = Device { kind: DeviceType::CUDA, id: request.ordinal };
        // What a record has that was filled with zeros.
        if raw.stream == 0 {
            return refuse!(
                DEVX_INVALID_STREAM,
                "stream is 0: -1 is no stream, 1 the legacy default stream, 2 the per-thread one, others are handles"
            );
        }
        // SAFETY: the caller's contract.
        let stream = unsafe { RawStream::new(raw.stream) };
        let stream = (stream != RawStream::NO_SYNC).then(|| device.stream_with(device, stream)).transpose()?;
        let host = HostFlags::from_bits(raw.host_flags)?;
        Ok(Self { stream, host, ..request })
    }

    /// Writes the C record.
    pub fn to_raw(&self) -> DevxMemoryRequest {
        DevxMemoryRequest {
            device_type: self.kind.0,
            device_id: self.ordinal,
            bytes: self.bytes as i64,
            stream: self.stream.map_or(NO_SYNC, Stream::value),
            host_flags: self.host.bits(),
            reserved: 0,
        }
    }
}

impl PoolOptions {
    /// Reads the numbers of the C API, where −1 means no limit.
    ///
    /// # Errors
    /// `DEVX_INVALID_ARGUMENT` for other negative numbers.
    pub fn from_raw(limit: i64, keep: i64) -> Result<Self> {
        Ok(Self { limit: bytes_from_raw("limit", limit)?, keep: bytes_from_raw("keep", keep)? as u64 })
    }
}

/// Reads a limit of the C API, where −1 means no limit.
///
/// # Errors
/// `DEVX_INVALID_ARGUMENT` for other negative numbers.
pub fn limit_from_raw(limit: i64) -> Result<usize> {
    bytes_from_raw("limit", limit)
}

fn bytes_from_raw(name: &str, bytes: i64) -> Result<usize> {
    match usize::try_from(bytes) {
        Ok(bytes) => Ok(bytes),
        Err(_) if bytes == -1 => Ok(usize::MAX),
        Err(_) => refuse!(DEVX_INVALID_ARGUMENT, "{name} is {bytes}: neither a number of bytes nor -1"),
    }
}

impl MemoryInfo {
    /// Reads the answer of a manager that a program implements.
    ///
    /// # Errors
    /// `DEVX_CALLBACK` for negative numbers.
    pub fn from_raw(raw: DevxMemoryInfo) -> Result<Self> {
        let DevxMemoryInfo { free_bytes, total_bytes } = raw;
        match (usize::try_from(free_bytes), usize::try_from(total_bytes)) {
            (Ok(free), Ok(total)) => Ok(Self { free, total }),
            _ => refuse!(DEVX_CALLBACK, "the manager says free_bytes is {free_bytes} and total_bytes is {total_bytes}"),
        }
    }

    /// Writes the C record.
    pub fn to_raw(self) -> DevxMemoryInfo {
        DevxMemoryInfo { free_bytes: self.free as i64, total_bytes: self.total as i64 }
    }
}

impl IpcHandle {
    /// Reads the answer of a manager that a program implements.
    ///
    /// # Errors
    /// `DEVX_CALLBACK` for an address that does not lie in the allocation.
    pub fn from_raw(raw: &DevxIpcHandle) -> Result<Self> {
        let DevxIpcHandle { handle, offset, bytes, device_id: ordinal, .. } = *raw;
        match (usize::try_from(offset), usize::try_from(bytes)) {
            (Ok(offset), Ok(bytes)) if offset <= bytes => Ok(Self { handle, ordinal, offset, bytes }),
            _ => refuse!(DEVX_CALLBACK, "the manager says offset {offset} of {bytes} bytes"),
        }
    }

    /// Writes the C record.
    pub fn to_raw(self) -> DevxIpcHandle {
        DevxIpcHandle {
            handle: self.handle,
            offset: self.offset as i64,
            bytes: self.bytes as i64,
            device_id: self.ordinal,
            reserved: 0,
        }
    }
}

impl Statistics {
    /// Writes the C record. A number that it has no room for becomes the largest.
    pub fn to_raw(self) -> DevxManagerStatistics {
        fn most(number: impl TryInto<i64>) -> i64 {
            number.try_into().unwrap_or(i64::MAX)
        }
        DevxManagerStatistics {
            bytes: most(self.bytes),
            peak_bytes: most(self.peak_bytes),
            allocations: most(self.allocations),
            total_allocations: most(self.total_allocations),
            total_bytes: most(self.total_bytes),
            refused: most(self.refused),
        }
    }
}
