//! Everything that deals with the interpreter and with no protocol: errors and exceptions, arguments, calls of foreign Python
//! code, capsules, handles to objects of the core, and the release of Python objects.

pub(crate) mod address;
pub(crate) mod argument;
pub(crate) mod aside;
pub(crate) mod ask;
pub(crate) mod call;
pub(crate) mod capsule;
pub(crate) mod class;
pub(crate) mod error;
pub(crate) mod handle;
pub(crate) mod in_order;
pub(crate) mod interpreter;
pub(crate) mod objects;
pub(crate) mod queue;
pub(crate) mod quick;
pub(crate) mod raised;
pub(crate) mod waiting;
