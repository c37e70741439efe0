//! Makes descriptions of schemas, with occasional errors.

use arbitrary::{Arbitrary, Result, Unstructured};
use devexchange_core::arrow::{MAX_NODES, metadata};

use crate::chance;

/// An error in the links from a node to its children.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quirk {
    /// A child is released already.
    ChildReleased(usize),
    /// The address of a child is NULL.
    ChildNull(usize),
    /// The table has the first child twice.
    ChildTwice,
    /// The first child is the root of the tree.
    ChildIsRoot,
    /// The address of the table is NULL.
    NoTable,
    /// A wrong number of children: one less than in the table, negative, or far too large.
    Count(i64),
}

impl Quirk {
    /// Picks an error for a node with `children` children; for most nodes none.
    pub fn pick(u: &mut Unstructured<'_>, children: usize) -> Result<Option<Self>> {
        if !chance(u, 1, 24)? {
            return Ok(None);
        }
        let child = if children == 0 { 0 } else { u.choose_index(children)? };
        let impossible = [-1, i64::MIN, i64::MAX, 1 << 21, children as i64 - 1];
        Ok(match u.int_in_range(0..=5)? {
            _ if children == 0 => Some(Self::Count(*u.choose(&impossible[..4])?)),
            0 => Some(Self::ChildReleased(child)),
            1 => Some(Self::ChildNull(child)),
            2 => (children > 1).then_some(Self::ChildTwice),
            3 => Some(Self::ChildIsRoot),
            4 => Some(Self::NoTable),
            _ => Some(Self::Count(*u.choose(&impossible)?)),
        })
    }

    /// The children that a consumer can reach.
    pub fn reachable<T>(this: Option<Self>, children: &[T]) -> &[T] {
        match this {
            Some(Self::Count(said)) => &children[..usize::try_from(said).unwrap_or(0).min(children.len())],
            _ => children,
        }
    }

    /// Whether every consumer must refuse a tree with this error. Too few children can be a valid tree.
    pub fn is_fatal(self) -> bool {
        match self {
            Self::Count(said) => usize::try_from(said).map_or(true, |said| said > MAX_NODES),
            _ => true,
        }
    }
}

/// One field, with its children and its dictionary.
#[derive(Clone, Debug)]
pub struct Field {
    /// The format string, without its NUL; `None` for NULL.
    pub format: Option<Vec<u8>>,
    /// The name, in the same form.
    pub name: Option<Vec<u8>>,
    /// A block of metadata, whose length is the one that the block says.
    pub metadata: Option<Vec<u8>>,
    /// `ARROW_FLAG_…` and unknown flags.
    pub flags: i64,
    /// Children.
    pub children: Vec<Field>,
    /// The field of a dictionary's values.
    pub dictionary: Option<Box<Field>>,
    /// An error in the links to the children.
    pub quirk: Option<Quirk>,
}

const FLAT: &[&str] = &[
    "n",
    "b",
    "c",
    "C",
    "s",
    "S",
    "i",
    "I",
    "l",
    "L",
    "e",
    "f",
    "g",
    "z",
    "Z",
    "u",
    "U",
    "vz",
    "vu",
    "d:9,2",
    "d:38,-3",
    "d:5,2,32",
    "d:12,2,64",
    "d:76,10,256",
    "d:3,-2147483648",
    "d:3,2147483647",
    "w:3",
    "w:0",
    "w:2147483647",
    "tdD",
    "tdm",
    "tts",
    "ttm",
    "ttu",
    "ttn",
    "tss:",
    "tsn:Europe/Zurich",
    "tDs",
    "tiM",
    "tiD",
    "tin",
];
const NESTED: &[&str] = &["+s", "+l", "+L", "+vl", "+vL", "+m", "+r", "+w:", "+us:", "+ud:"];
const MOST_NODES: usize = 24;

impl Field {
    fn plain(format: &str) -> Self {
        Self {
            format: Some(format.into()),
            name: Some(b"x".into()),
            metadata: None,
            flags: 2,
            children: Vec::new(),
            dictionary: None,
            quirk: None,
        }
    }

    fn below(u: &mut Unstructured<'_>, depth: usize, nodes: &mut usize) -> Result<Self> {
        *nodes += 1;
        let leaf = depth > 6 || *nodes > MOST_NODES || u.is_empty();
        let mut field = if leaf || (depth > 0 && chance(u, 3, 5)?) {
            Self::plain(u.choose(FLAT)?)
        } else {
            // Most roots are record batches.
            let format = if depth == 0 && chance(u, 3, 4)? { "+s" } else { u.choose(NESTED)? };
            Self::nested(format, u, depth, nodes)?
        };
        let is_integer =
            field.format.as_deref().is_some_and(|format| matches!(format, [letter] if b"cCsSiIlL".contains(letter)));
        if chance(u, 1, if is_integer { 6 } else { 96 })? && *nodes <= MOST_NODES {
            field.dictionary = Some(Box::new(Self::below(u, depth + 1, nodes)?));
        }
        field.spoil(u)?;
        Ok(field)
    }

    fn nested(format: &str, u: &mut Unstructured<'_>, depth: usize, nodes: &mut usize) -> Result<Self> {
        let mut field = Self::plain(format);
        let mut child = |u: &mut Unstructured<'_>| Self::below(u, depth + 1, nodes);
        match format {
            "+s" | "+us:" | "+ud:" => {
                for _ in 0..u.int_in_range(0..=4)? {
                    field.children.push(child(u)?);
                }
                if format != "+s" {
                    let ids: Vec<String> = (0..field.children.len()).map(|id| (id * 5 % 7).to_string()).collect();
                    field.format = Some(format!("{format}{}", ids.join(",")).into());
                }
            }
            "+m" => {
                let mut entries = Self::plain("+s");
                entries.children = vec![child(u)?, child(u)?];
                field.children.push(entries);
            }
            "+r" => field.children = vec![Self::plain(u.choose(&["s", "i", "l"])?), child(u)?],
            "+w:" => {
                let size = if chance(u, 1, 16)? { i32::arbitrary(u)? } else { u.int_in_range(0..=4)? };
                field.format = Some(format!("+w:{size}").into());
                field.children.push(child(u)?);
            }
            _ => field.children.push(child(u)?),
        }
        Ok(field)
    }

    /// Adds metadata to some fields, and errors and rare values to a few.
    fn spoil(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        if chance(u, 1, 4)? {
            let pairs: Vec<(Vec<u8>, Vec<u8>)> =
                (0..u.int_in_range(0..=2)?).map(|_| Ok((short(u)?, short(u)?))).collect::<Result<_>>()?;
            let pairs: Vec<(&[u8], &[u8])> = pairs.iter().map(|(key, value)| (&**key, &**value)).collect();
            self.metadata = metadata::encode(&pairs).ok();
        }
        match u.int_in_range(0..=63)? {
            0 => self.format = None,
            1 => self.format = Some(text(u)?),
            2..=5 => self.name = None,
            6..=9 => self.name = Some(text(u)?),
            10 => self.name = Some(vec![b'a'; u.int_in_range(60..=70)?]),
            11..=13 => self.flags = i64::arbitrary(u)?,
            14 => drop(self.children.pop()),
            15 => self.children.push(Self::plain("i")),
            16 => self.metadata = Some(vec![0xff; 4]),
            _ => {}
        }
        self.quirk = Quirk::pick(u, self.children.len())?;
        Ok(())
    }

    /// The number of fields that a consumer can reach.
    pub fn nodes(&self) -> usize {
        1 + Quirk::reachable(self.quirk, &self.children)
            .iter()
            .chain(self.dictionary.as_deref())
            .map(Self::nodes)
            .sum::<usize>()
    }

    /// Whether every consumer must refuse this schema.
    pub fn is_wrong(&self) -> bool {
        let below = Quirk::reachable(self.quirk, &self.children).iter().chain(self.dictionary.as_deref());
        self.format.is_none() || self.quirk.is_some_and(Quirk::is_fatal) || below.into_iter().any(Self::is_wrong)
    }
}

impl<'a> Arbitrary<'a> for Field {
    fn arbitrary(u: &mut Unstructured<'a>) -> Result<Self> {
        let mut field = Self::below(u, 0, &mut 0)?;
        // A few trees have about the greatest allowed depth.
        if chance(u, 1, 64)? {
            for _ in 0..u.int_in_range(50..=70)? {
                let mut list = Self::plain("+l");
                list.children.push(field);
                field = list;
            }
        }
        Ok(field)
    }
}

fn short(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let length = u.int_in_range(0..=12)?.min(u.len());
    Ok(u.bytes(length)?.to_vec())
}

/// Takes a text without NUL, as in C, from the input.
fn text(u: &mut Unstructured<'_>) -> Result<Vec<u8>> {
    let mut text = short(u)?;
    text.retain(|byte| *byte != 0);
    Ok(text)
}
