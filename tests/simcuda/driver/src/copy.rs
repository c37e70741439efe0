//! Copies and fills. The `_ptds` and `_ptsz` forms use the per-thread default stream.

#![allow(non_snake_case, reason = "the names of the CUDA driver API")]

use crate::glue::{addr, entry_points};
use crate::stream::pts;
use simcuda::{LEGACY, PER_THREAD};

entry_points! { TABLE, sim;
    fn cuMemcpy(to: u64, from: u64, n: u64) { sim.memcpy(addr(to), addr(from), n, LEGACY) }
    fn cuMemcpy_ptds(to: u64, from: u64, n: u64) { sim.memcpy(addr(to), addr(from), n, PER_THREAD) }
    fn cuMemcpyAsync(to: u64, from: u64, n: u64, stream: u64) { sim.memcpy_async(addr(to), addr(from), n, stream) }
    fn cuMemcpyAsync_ptsz(to: u64, from: u64, n: u64, stream: u64) {
        sim.memcpy_async(addr(to), addr(from), n, pts(stream))
    }
    fn cuMemcpyHtoD_v2(to: u64, from: u64, n: u64) { sim.memcpy_htod(to, addr(from), n, LEGACY) }
    fn cuMemcpyHtoD_v2_ptds(to: u64, from: u64, n: u64) { sim.memcpy_htod(to, addr(from), n, PER_THREAD) }
    fn cuMemcpyDtoH_v2(to: u64, from: u64, n: u64) { sim.memcpy_dtoh(addr(to), from, n, LEGACY) }
    fn cuMemcpyDtoH_v2_ptds(to: u64, from: u64, n: u64) { sim.memcpy_dtoh(addr(to), from, n, PER_THREAD) }
    fn cuMemcpyDtoD_v2(to: u64, from: u64, n: u64) { sim.memcpy_dtod(to, from, n, LEGACY) }
    fn cuMemcpyDtoD_v2_ptds(to: u64, from: u64, n: u64) { sim.memcpy_dtod(to, from, n, PER_THREAD) }
    fn cuMemcpyHtoDAsync_v2(to: u64, from: u64, n: u64, stream: u64) {
        sim.memcpy_htod_async(to, addr(from), n, stream)
    }
    fn cuMemcpyHtoDAsync_v2_ptsz(to: u64, from: u64, n: u64, stream: u64) {
        sim.memcpy_htod_async(to, addr(from), n, pts(stream))
    }
    fn cuMemcpyDtoHAsync_v2(to: u64, from: u64, n: u64, stream: u64) {
        sim.memcpy_dtoh_async(addr(to), from, n, stream)
    }
    fn cuMemcpyDtoHAsync_v2_ptsz(to: u64, from: u64, n: u64, stream: u64) {
        sim.memcpy_dtoh_async(addr(to), from, n, pts(stream))
    }
    fn cuMemcpyDtoDAsync_v2(to: u64, from: u64, n: u64, stream: u64) { sim.memcpy_dtod_async(to, from, n, stream) }
    fn cuMemcpyDtoDAsync_v2_ptsz(to: u64, from: u64, n: u64, stream: u64) {
        sim.memcpy_dtod_async(to, from, n, pts(stream))
    }
    fn cuMemcpyPeer(to: u64, to_ctx: u64, from: u64, from_ctx: u64, n: u64) {
        sim.memcpy_peer(to, to_ctx, from, from_ctx, n)
    }
    fn cuMemcpyPeerAsync(to: u64, to_ctx: u64, from: u64, from_ctx: u64, n: u64, stream: u64) {
        sim.memcpy_peer_async(to, to_ctx, from, from_ctx, n, stream)
    }
    fn cuMemcpyPeerAsync_ptsz(to: u64, to_ctx: u64, from: u64, from_ctx: u64, n: u64, stream: u64) {
        sim.memcpy_peer_async(to, to_ctx, from, from_ctx, n, pts(stream))
    }
    fn cuMemsetD8_v2(to: u64, byte: u8, n: u64) { sim.memset_d8(to, byte, n, LEGACY) }
    fn cuMemsetD8_v2_ptds(to: u64, byte: u8, n: u64) { sim.memset_d8(to, byte, n, PER_THREAD) }
    fn cuMemsetD8Async(to: u64, byte: u8, n: u64, stream: u64) { sim.memset_d8_async(to, byte, n, stream) }
    fn cuMemsetD8Async_ptsz(to: u64, byte: u8, n: u64, stream: u64) {
        sim.memset_d8_async(to, byte, n, pts(stream))
    }
    fn cuMemsetD32_v2(to: u64, value: u32, n: u64) { sim.memset_d32(to, value, n, LEGACY) }
    fn cuMemsetD32Async(to: u64, value: u32, n: u64, stream: u64) { sim.memset_d32_async(to, value, n, stream) }
    fn cuMemsetD32Async_ptsz(to: u64, value: u32, n: u64, stream: u64) {
        sim.memset_d32_async(to, value, n, pts(stream))
    }
}
