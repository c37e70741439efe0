//! The attributes of pointers: `cuPointerGetAttribute(s)`.

use crate::call::{Call, Need, Sim};
use crate::code::{Code, CuResult};
use crate::state::AllocKind;

/// The value of a pointer attribute, in the width that C expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// An `unsigned int` or boolean.
    Unsigned(u32),
    /// An `int`.
    Signed(i32),
    /// A pointer, a size, a handle or a 64-bit number.
    Wide(u64),
}

/// Device ordinal of a pointer that CUDA knows nothing about.
const NO_DEVICE: i32 = -2;

/// How much more, on each side, a pool has reserved than an allocation takes: a client must not take the one for the other.
const RESERVED: u64 = 4096;

impl Sim {
    /// `cuPointerGetAttribute`: an unknown pointer is an error.
    #[track_caller]
    pub fn pointer_attribute(&self, attribute: u32, address: u64) -> CuResult<Attribute> {
        self.call("cuPointerGetAttribute", Need::Init, |c| c.attribute(attribute, address)?.ok_or(Code::INVALID_VALUE))
    }

    /// `cuPointerGetAttributes`: an attribute that does not apply gets a neutral value.
    #[track_caller]
    pub fn pointer_attributes(&self, attributes: &[u32], address: u64) -> CuResult<Vec<Attribute>> {
        self.call("cuPointerGetAttributes", Need::Init, |c| {
            attributes.iter().map(|a| Ok(c.attribute(*a, address)?.unwrap_or(neutral(*a)))).collect()
        })
    }

    /// `cuPointerSetAttribute`: only `SYNC_MEMOPS` (6) can be set.
    #[track_caller]
    pub fn pointer_set_attribute(&self, attribute: u32, value: u32, address: u64) -> CuResult<()> {
        self.call("cuPointerSetAttribute", Need::Init, |c| {
            let base = c.st.live(address).map(|(b, _)| b).ok_or(Code::INVALID_VALUE)?;
            match c.st.allocs.get_mut(&base) {
                Some(a) if attribute == 6 => {
                    a.sync_memops = value != 0;
                    Ok(())
                }
                _ => Err(Code::INVALID_VALUE),
            }
        })
    }
}

fn neutral(attribute: u32) -> Attribute {
    match attribute {
        9 => Attribute::Signed(NO_DEVICE),
        1 | 3 | 4 | 7 | 11 | 12 | 14 | 17 | 18 | 19 | 20 => Attribute::Wide(0),
        _ => Attribute::Unsigned(0),
    }
}

impl Call<'_> {
    /// `None` if the pointer does not have that attribute.
    fn attribute(&mut self, attribute: u32, address: u64) -> CuResult<Option<Attribute>> {
        let Some((base, a)) = self.st.live(address) else {
            return if (1..=20).contains(&attribute) { Ok(None) } else { Err(Code::INVALID_VALUE) };
        };
        let on_device = matches!(a.kind, AllocKind::Device | AllocKind::Imported);
        let managed = a.kind == AllocKind::Managed;
        let flag = |on: bool| Attribute::Unsigned(u32::from(on));
        let pool = a.pool.and_then(|p| self.st.pools.get(&p));
        // "The address of the mappable address range", which for memory of a pool need not be that of the allocation.
        let beyond = if pool.is_some() { RESERVED } else { 0 };
        Ok(Some(match attribute {
            // Pool memory belongs to no context.
            1 => Attribute::Wide(if pool.is_some() { 0 } else { a.ctx }),
            2 => Attribute::Unsigned(if on_device || managed { 2 } else { 1 }),
            3 => Attribute::Wide(address),
            4 if on_device => return Ok(None),
            4 => Attribute::Wide(address),
            6 => flag(a.sync_memops),
            7 => Attribute::Wide(a.id),
            8 => flag(managed),
            9 => Attribute::Signed(crate::api_context::signed(a.device)),
            10 => flag(a.kind == AllocKind::Device && pool.is_none()),
            11 => Attribute::Wide(base - beyond),
            12 => Attribute::Wide(a.len + 2 * beyond),
            13 => flag(true),
            14 => Attribute::Wide(pool.map_or(0, |p| u64::from(p.handle_types))),
            15 => flag(false),
            16 => Attribute::Unsigned(3),
            17 => Attribute::Wide(a.pool.unwrap_or(0)),
            18 => Attribute::Wide(a.len),
            19 => Attribute::Wide(base),
            20 => Attribute::Wide(a.id),
            5 => return Ok(None),
            _ => return Err(Code::INVALID_VALUE),
        }))
    }
}
