//! A field is a view of its schema, so it cannot outlive it.

use devexchange_core::Schema;

fn main() {
    let field = {
        let schema = Schema::new(&[]).unwrap();
        schema.root()
    };
    println!("{:?}", field.name());
}
