//! DLPack both ways, as capsules (array API) and by the function tables of types (DLPack 1.3): what a producer is asked, what a
//! consumer is handed. Nothing here knows our own type.

pub(crate) mod address;
pub(crate) mod capsule;
pub(crate) mod consumer;
mod exchange;
pub(crate) mod export;
pub(crate) mod import;
mod offer;
mod request;
pub(crate) mod version;
pub(crate) mod wanted;
