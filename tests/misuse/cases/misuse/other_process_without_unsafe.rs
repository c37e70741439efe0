//! Imports trust what another process shares, and `fds` gives away writable memory, so both need `unsafe`.

use devexchange_core::ipc::{self, Client, Exported, Peer};

fn by_name(client: &Client) {
    let _ = client.import_tensor("tensor");
    let _ = client.import_batch("batch");
}

fn by_hand(exported: &Exported, first: Peer, second: Peer) {
    let _ = exported.fds();
    let _ = ipc::import_tensor(exported.descriptor(), Vec::new(), first);
    let _ = ipc::import_batch(exported.descriptor(), Vec::new(), second);
}

fn main() {
    let _ = (by_name, by_hand);
}
