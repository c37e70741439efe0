//! A release comes at any later time, so it can use nothing that is only borrowed.

use devexchange_core::Owner;

fn main() {
    let mut released = 0;
    let owner = Owner::on_release(|| released += 1);
    drop(owner);
}
