//! An owner may be released at any later time, so its release function cannot borrow a local variable.

use devexchange_core::Owner;

fn main() {
    let mut released = 0;
    let owner = Owner::on_release(|| released += 1);
    drop(owner);
}
