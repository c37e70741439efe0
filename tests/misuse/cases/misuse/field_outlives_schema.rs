//! A field is a view of its schema.

use devexchange_core::Schema;

fn main() {
    let field = {
        let schema = Schema::new(&[]).unwrap();
        schema.root()
    };
    println!("{:?}", field.name());
}
