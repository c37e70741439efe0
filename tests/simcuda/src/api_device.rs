//! The devices and their properties.

use crate::call::{Need, Sim};
use crate::code::{Code, CuResult};

/// Highest device attribute that a 13.0 driver knows.
const LAST_ATTRIBUTE: i32 = 145;

impl Sim {
    /// `cuDriverGetVersion`: the version profile.
    #[track_caller]
    pub fn driver_version(&self) -> CuResult<i32> {
        self.call("cuDriverGetVersion", Need::Nothing, |c| Ok(i32::try_from(c.st.cfg.version).unwrap_or(0)))
    }

    /// `cuDeviceGetCount`.
    #[track_caller]
    pub fn device_count(&self) -> CuResult<i32> {
        self.call("cuDeviceGetCount", Need::Init, |c| Ok(i32::try_from(c.st.cfg.devices).unwrap_or(0)))
    }

    /// `cuDeviceGet`.
    #[track_caller]
    pub fn device_get(&self, ordinal: i32) -> CuResult<i32> {
        self.call("cuDeviceGet", Need::Init, |c| c.device(ordinal).map(|_| ordinal))
    }

    /// `cuDeviceGetName`. The name says that the device is simulated, so that no report can pass it off as a GPU.
    #[track_caller]
    pub fn device_name(&self, device: i32) -> CuResult<String> {
        self.call("cuDeviceGetName", Need::Init, |c| c.device(device).map(|d| format!("Simulated CUDA device {d}")))
    }

    /// `cuDeviceGetUuid_v2`.
    #[track_caller]
    pub fn device_uuid(&self, device: i32) -> CuResult<[u8; 16]> {
        self.call("cuDeviceGetUuid_v2", Need::Init, |c| {
            let [.., d] = c.device(device)?.to_be_bytes();
            let [a, b, e, f, g, h, i] = *b"SIMCUDA";
            Ok([a, b, e, f, g, h, i, 0, 0, 0, 0, 0, 0, 0, 0, d.wrapping_add(1)])
        })
    }

    /// `cuDeviceTotalMem_v2`.
    #[track_caller]
    pub fn device_total_mem(&self, device: i32) -> CuResult<u64> {
        self.call("cuDeviceTotalMem_v2", Need::Init, |c| c.device(device).map(|_| c.st.cfg.memory))
    }

    /// `cuDeviceGetAttribute`.
    #[track_caller]
    pub fn device_attribute(&self, attribute: i32, device: i32) -> CuResult<i32> {
        self.call("cuDeviceGetAttribute", Need::Init, |c| {
            let device = c.device(device)?;
            if !(1..=LAST_ATTRIBUTE).contains(&attribute) {
                return Err(Code::INVALID_VALUE);
            }
            let on = 1;
            Ok(match attribute {
                1..=3 => 1024,                                // threads per block, block x and y
                4 => 64,                                      // block z
                5 => i32::MAX,                                // grid x
                6 | 7 => 65535,                               // grid y and z
                8 => 48 << 10,                                // shared memory per block
                9 => 64 << 10,                                // constant memory
                10 => 32,                                     // warp size
                11 => i32::MAX,                               // pitch
                12 => 65536,                                  // registers per block
                13 => 1_980_000,                              // clock, kHz
                14 => 512,                                    // texture alignment
                15 => on,                                     // copies overlap kernels
                16 => 132,                                    // multiprocessors
                19 | 31 | 41 => on,                           // host mapping, concurrent kernels, unified addresses
                34 => i32::try_from(device).unwrap_or(0) + 1, // PCI device
                36 => 2_619_000,                              // memory clock, kHz
                37 => 6144,                                   // bus width
                38 => 50 << 20,                               // L2
                39 => 2048,                                   // threads per multiprocessor
                40 => 3,                                      // copy engines
                75 => 9,                                      // compute capability
                76 => 0,
                78..=80 => on,   // stream priorities, cached globals and locals
                81 => 228 << 10, // shared memory per multiprocessor
                82 => 65536,     // registers per multiprocessor
                83 => on,        // managed memory
                91 => on,        // registered memory usable at its host address
                95 => on,        // cooperative launch
                97 => 227 << 10, // opt-in shared memory
                99 => on,        // host registration
                115 => on,       // memory pools
                119 => 1,        // pool handle types: file descriptors
                _ => 0,
            })
        })
    }

    /// `cuDeviceCanAccessPeer`.
    #[track_caller]
    pub fn device_can_access_peer(&self, device: i32, peer: i32) -> CuResult<bool> {
        self.call("cuDeviceCanAccessPeer", Need::Init, |c| Ok(c.device(device)? != c.device(peer)? && c.st.cfg.peers))
    }

    /// `cuMemGetInfo_v2`: free and total bytes of the current device.
    #[track_caller]
    pub fn mem_get_info(&self) -> CuResult<(u64, u64)> {
        self.call("cuMemGetInfo_v2", Need::Init, |c| {
            let (_, device) = c.here()?;
            c.unsafe_call()?;
            let total = c.st.cfg.memory;
            c.device_mut(device).map(|d| (total - d.used.min(total), total))
        })
    }
}
