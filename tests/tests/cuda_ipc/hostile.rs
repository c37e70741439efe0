//! A descriptor of device memory with each byte altered: it is refused, or describes memory that can be read.

use devexchange_core::dlpack::Copying;
use devexchange_core::{Owner, ipc};
use devexchange_tests::peer::{part, say};
use devexchange_tests::sim::{self, Session};

use super::{N, batch, filled, plain, start};

/// The place of the event's handle, after the head, the place and the kind of order.
const EVENT: std::ops::Range<usize> = 50..114;
/// The place of the bytes of the first region, after the number of regions and the region's kind.
const BYTES: std::ops::Range<usize> = 119..127;

/// Writes the checksum of the bytes: FNV-1a, with the checksum itself taken as 0.
fn seal(bytes: &mut [u8]) {
    bytes[24..32].fill(0);
    let sum = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    bytes[24..32].copy_from_slice(&sum.to_le_bytes());
}

#[test]
fn altered_descriptors_are_refused_or_readable() {
    const NAME: &str = "hostile::altered_descriptors_are_refused_or_readable";
    let session = Session::new();
    if part().is_some() {
        session.begin(sim::schedules(1)[0]);
        altered(&given("DEVX_TENSOR"));
        with_a_byte_more(given("DEVX_TENSOR"));
        with_a_row(given("DEVX_BATCH"));
        return say("survived");
    }
    if sim::skipped("a real driver may not survive a handle that is none") {
        return;
    }
    let stream = sim::stream();
    let (tensor, batch) = (filled(plain(), 7, stream), batch(8, stream));
    let exported = ipc::export_tensor(&tensor, Copying::Never).expect("exported");
    let exported_batch = ipc::export_batch(&batch, Copying::Never).expect("exported");
    sim::synchronize(stream);
    let [of_tensor, of_batch] = [&exported, &exported_batch]
        .map(|one| one.descriptor().iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    let mut peer = start(NAME, "importer", &[("DEVX_TENSOR", &of_tensor), ("DEVX_BATCH", &of_batch)]);
    peer.expect("survived");
    peer.end();
    drop((tensor, batch, exported, exported_batch));
    sim::settle();
    sim::destroy(stream);
}

/// The bytes in an environment variable.
fn given(name: &str) -> Vec<u8> {
    let hex = std::env::var(name).expect("a descriptor");
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("hex"));
    digits.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect()
}

/// Texts without offsets that claim to have a row do not get the offset of texts without rows.
fn with_a_row(mut bytes: Vec<u8>) {
    let import =
        |bytes: &[u8]| unsafe { ipc::import_batch(bytes, Vec::new(), ipc::Peer { id: 1, keep: Owner::none() }) };
    drop(import(&bytes).expect("as it was"));
    // The length of the last array, before the null count, the offset and three buffers.
    let length = bytes.len() - 3 * 20 - 4 - 3 * 8;
    bytes[length] = 1;
    seal(&mut bytes);
    let error = import(&bytes).expect_err("no offsets");
    assert!(error.message().contains("buffers[1] is NULL with length 1"), "{error}");
}

/// A region cannot claim to be larger than the allocation that is opened for it.
fn with_a_byte_more(mut bytes: Vec<u8>) {
    assert_eq!(bytes[BYTES], N.to_le_bytes());
    bytes[BYTES].copy_from_slice(&(N + 1).to_le_bytes());
    seal(&mut bytes);
    let peer = ipc::Peer { id: 1, keep: Owner::none() };
    let error = unsafe { ipc::import_tensor(&bytes, Vec::new(), peer) }.expect_err("a byte too many");
    assert!(error.message().contains(&format!("needs {} bytes", N + 1)), "{error}");
}

fn altered(original: &[u8]) {
    let stream = sim::stream();
    let (mut taken, mut refused) = (0, 0);
    for at in 0..original.len() {
        for mask in [0, 0x01, 0x80, 0xff] {
            let mut bytes = original.to_vec();
            bytes[at] ^= mask;
            seal(&mut bytes);
            match unsafe { ipc::import_tensor(&bytes, Vec::new(), ipc::Peer { id: 1, keep: Owner::none() }) } {
                Ok(tensor) => {
                    taken += 1;
                    // A different event may never come.
                    if mask == 0 || !EVENT.contains(&at) {
                        tensor.wait(sim::on(stream)).expect("waits");
                        let bytes = tensor.layout().bytes.min(N as usize);
                        let seen = sim::download(tensor.data() as u64, bytes as u64, stream);
                        assert!(mask != 0 || seen == vec![7; N as usize]);
                        tensor.used_on(sim::on(stream)).expect("used");
                    }
                }
                Err(error) => {
                    assert!(mask != 0 && !error.message().is_empty(), "{error}");
                    refused += 1;
                }
            }
        }
    }
    assert!(taken > original.len() && refused > original.len(), "{taken} taken, {refused} refused");
    sim::settle();
    sim::destroy(stream);
}
