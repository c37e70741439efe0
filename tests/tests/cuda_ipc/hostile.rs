//! A descriptor of device memory with every byte altered: refused, or memory that can be read.

use devexchange_core::dlpack::Copying;
use devexchange_core::{Owner, ipc};
use devexchange_tests::peer::{part, say};
use devexchange_tests::sim::{self, Session};

use super::{N, filled, plain, start};

/// Where the handle of the event is, after the head, the place and the kind of order.
const EVENT: std::ops::Range<usize> = 50..114;

/// Writes the checksum that the bytes have: FNV-1a, itself as 0.
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
        return altered(&std::env::var("DEVX_DESCRIPTOR").expect("a descriptor"));
    }
    if sim::skipped("a real driver may not survive a handle that is none") {
        return;
    }
    let stream = sim::stream();
    let tensor = filled(plain(), 7, stream);
    let exported = ipc::export_tensor(&tensor, Copying::Never).expect("exported");
    sim::synchronize(stream);
    let hex: String = exported.descriptor().iter().map(|byte| format!("{byte:02x}")).collect();
    let mut peer = start(NAME, "importer", &[("DEVX_DESCRIPTOR", &hex)]);
    peer.expect("survived");
    peer.end();
    drop((tensor, exported));
    sim::settle();
    sim::destroy(stream);
}

fn altered(hex: &str) {
    let digits = hex.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).expect("hex"));
    let original: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).expect("hex")).collect();
    let stream = sim::stream();
    let (mut taken, mut refused) = (0, 0);
    for at in 0..original.len() {
        for mask in [0, 0x01, 0x80, 0xff] {
            let mut bytes = original.clone();
            bytes[at] ^= mask;
            seal(&mut bytes);
            match unsafe { ipc::import_tensor(&bytes, Vec::new(), ipc::Peer { id: 1, keep: Owner::none() }) } {
                Ok(tensor) => {
                    taken += 1;
                    // An event that is another one may never come.
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
    say("survived");
}
