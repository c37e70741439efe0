//! The native half of the Java binding of devexchange: the methods that the class `dev.devexchange.Native` declares.
//!
//! Conventions, without exceptions:
//! * A function converts its arguments, guards them and delegates to the core. An error is thrown as a
//!   `DevExchangeException`, and so is a panic (status 255); see [`error`].
//! * A function that needs nothing of the JVM is declared with [`plain!`](native::plain), and Java can call it without
//!   JNI; see [`foreign`].
//! * Handles are `long`s ([`handle`]) that Java gives up through one function, [`release`]. Java makes sure that a handle
//!   is not given up while a call uses it (`Handle.java`).
//! * Results of several values are written to an address that Java gives, as records of `devexchange/types.h`, whose
//!   offsets are in `Records.java`.
//! * No foreign thread and no release path calls Java: it queues a token, which a Java thread fetches; see [`queue`]. A
//!   thread that needs an answer waits for it; see [`answers`].

mod allocator;
mod answers;
mod async_reader;
mod async_writer;
mod batch;
mod batch_stream;
mod boxed;
mod column;
mod convert;
mod cstruct;
mod cuda_array;
mod device;
mod dlpack;
mod error;
mod exit;
mod foreign;
mod handle;
mod ipc;
mod ledger;
mod library;
mod linger;
mod load;
mod manager;
mod memory;
mod native;
mod order;
mod queue;
mod release;
mod schema;
mod stream;
mod sync;
mod tensor;
