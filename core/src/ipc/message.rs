//! The messages between importer and exporter. One packet of the socket is one message.
//!
//! ```text
//! magic u32, type u32, and
//! 1 hello:    protocol u32, exporter u64            exporter, at once; with a file that has the number of changes, if it
//!                                                   has one
//! 2 get:      request u64, name [rest]              importer
//! 3 release:  requests u64 [rest]                   importer
//! 4 given:    request u64, in file u8, descriptor [rest, or the file that goes first]
//! 5 refused:  request u64, status i32, text [rest]
//! ```
//!
//! The importer numbers its requests, upwards. What it is given for a request is a *lease*, with the request's number. It can
//! give up a lease before it knows of it: the exporter then takes it back, or does not answer any more.

#![forbid(unsafe_code)]

use super::wire::{Reader, Writer};
use crate::error::{Error, Result, refuse};
use crate::text::Lossy;

const MAGIC: u32 = 0x4950_5844;
/// The version of the messages.
pub(super) const PROTOCOL: u32 = 1;
/// Most bytes of a message. Longer descriptors are sent as files.
pub(super) const MAX_MESSAGE: usize = 32 << 10;
/// Most bytes of a name.
pub const MAX_NAME: usize = 255;
/// Most leases that one message gives up.
pub(super) const MAX_RELEASES: usize = 256;
/// Most bytes of the text of a refusal.
const MAX_TEXT: usize = 1024;

/// The beginning of a release message; the leases follow. It is a constant so that a release needs no memory.
pub(super) const RELEASE: [u8; 8] = {
    let ([a, b, c, d], [e, f, g, h]) = (MAGIC.to_le_bytes(), 3_u32.to_le_bytes());
    [a, b, c, d, e, f, g, h]
};

/// The numbers in a release stay in the form in which they are sent, little-endian.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Message<'a> {
    Hello { protocol: u32, exporter: u64 },
    Get { request: u64, name: &'a str },
    Release { leases: &'a [[u8; 8]] },
    Given { request: u64, descriptor: Option<&'a [u8]> },
    Refused { request: u64, status: i32, text: &'a str },
}

impl<'a> Message<'a> {
    /// # Errors
    /// `DEVX_OUT_OF_MEMORY`.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        let mut out = Writer::default();
        self.write(&mut out);
        out.into_bytes()
    }

    /// Appends the message to `out`.
    pub(super) fn write(&self, out: &mut Writer) {
        out.u32(MAGIC);
        match self {
            Self::Hello { protocol, exporter } => {
                out.u32(1);
                out.u32(*protocol);
                out.u64(*exporter);
            }
            Self::Get { request, name } => {
                out.u32(2);
                out.u64(*request);
                out.raw(name.as_bytes());
            }
            Self::Release { leases } => {
                out.u32(3);
                out.raw(leases.as_flattened());
            }
            Self::Given { request, descriptor } => {
                out.u32(4);
                out.u64(*request);
                out.u8(u8::from(descriptor.is_none()));
                out.raw(descriptor.unwrap_or_default());
            }
            Self::Refused { request, status, text } => {
                out.u32(5);
                out.u64(*request);
                out.i32(*status);
                out.raw(text.get(..text.floor_char_boundary(MAX_TEXT)).unwrap_or_default().as_bytes());
            }
        }
    }

    /// # Errors
    /// `DEVX_INVALID_ARGUMENT`, `DEVX_INVALID_TEXT`.
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut from = Reader::new(bytes);
        let magic = from.u32("message.magic")?;
        if magic != MAGIC {
            return refuse!(
                DEVX_INVALID_ARGUMENT,
                "message.magic is {magic:#x}: the peer does not speak the protocol of devexchange"
            );
        }
        Ok(match from.u32("message.type")? {
            1 => match from.u32("protocol")? {
                PROTOCOL => {
                    let exporter = from.u64("exporter")?;
                    from.end()?;
                    Self::Hello { protocol: PROTOCOL, exporter }
                }
                // What follows in another version is known only to that version.
                protocol => Self::Hello { protocol, exporter: 0 },
            },
            2 => Self::Get { request: from.u64("request")?, name: text("name", from.rest(), MAX_NAME)? },
            3 => {
                let (leases, rest) = from.rest().as_chunks::<8>();
                if !rest.is_empty() || leases.len() > MAX_RELEASES {
                    return refuse!(
                        DEVX_INVALID_ARGUMENT,
                        "leases has {} numbers and {} bytes: at most {MAX_RELEASES} whole ones",
                        leases.len(),
                        rest.len()
                    );
                }
                Self::Release { leases }
            }
            4 => {
                let request = from.u64("request")?;
                match (from.u8("in file")?, from.rest()) {
                    (0, descriptor) => Self::Given { request, descriptor: Some(descriptor) },
                    (1, []) => Self::Given { request, descriptor: None },
                    (flag, rest) => {
                        return refuse!(DEVX_INVALID_ARGUMENT, "in file is {flag} with {} bytes after it", rest.len());
                    }
                }
            }
            5 => Self::Refused {
                request: from.u64("request")?,
                status: from.i32("status")?,
                text: text("text", from.rest(), MAX_TEXT)?,
            },
            other => return refuse!(DEVX_INVALID_ARGUMENT, "message.type is {other}: it must be between 1 and 5"),
        })
    }
}

fn text<'a>(what: &str, bytes: &'a [u8], most: usize) -> Result<&'a str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= most => Ok(text),
        Ok(text) => refuse!(DEVX_INVALID_ARGUMENT, "{what} has {} bytes: more than {most}", text.len()),
        Err(_) => {
            let shown = Lossy(bytes.get(..most).unwrap_or(bytes));
            refuse!(DEVX_INVALID_TEXT, "{what} is not valid UTF-8: {shown:?}")
        }
    }
}

/// Checks a name under which something is offered.
///
/// # Errors
/// `DEVX_INVALID_ARGUMENT`; `DEVX_INVALID_TEXT` for a name that C cannot write.
pub(super) fn check_name(name: &str) -> Result<()> {
    if name.is_empty() || name.len() > MAX_NAME {
        return refuse!(DEVX_INVALID_ARGUMENT, "name has {} bytes: between 1 and {MAX_NAME} are allowed", name.len());
    }
    if let Some(at) = name.find('\0') {
        return refuse!(DEVX_INVALID_TEXT, "name is {name:?}: there is a NUL byte at {at}");
    }
    Ok(())
}

/// Turns a refusal into an error of the importing side.
pub(super) fn refused(status: i32, text: &str) -> Error {
    let known = crate::error::STATUSES.iter().find(|known| known.0 == status && known.0 != 0);
    let status = known.copied().unwrap_or(crate::abi::types::DEVX_INVALID_ARGUMENT);
    Error::new(status, format_args!("the exporter refused: {text}"))
}
