//! Reading structures out of memory that may be torn.

use std::io;

use super::{KcoreError, Layouts, Member, variables::Variables};

/// More than any list of the kernel's that is read here has.
const MAX_NODES: usize = 1 << 16;

/// Memory of a kernel, by virtual address.
pub trait Memory {
    /// Fills `into` from `address` on.
    ///
    /// # Errors
    ///
    /// `EFAULT` where there is no memory, and else what reading can come to.
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()>;
}

/// Reads `len` bytes of `what`. Callers keep `len` within reason.
pub(super) fn bytes(
    memory: &impl Memory,
    what: &'static str,
    address: u64,
    len: usize,
) -> Result<Vec<u8>, KcoreError> {
    let mut bytes = vec![0; len];
    fill(memory, what, address, &mut bytes)?;
    Ok(bytes)
}

/// Fills `into` with `what`.
pub(super) fn fill(
    memory: &impl Memory,
    what: &'static str,
    address: u64,
    into: &mut [u8],
) -> Result<(), KcoreError> {
    memory
        .read(address, into)
        .map_err(|source| KcoreError::Read {
            what,
            address,
            len: into.len(),
            source,
        })
}

/// Reads a `u32`.
pub(super) fn u32_at(
    memory: &impl Memory,
    what: &'static str,
    address: u64,
) -> Result<u32, KcoreError> {
    let mut word = [0; 4];
    fill(memory, what, address, &mut word)?;
    Ok(u32::from_ne_bytes(word))
}

/// Reads a `u64`, or a pointer.
pub(super) fn u64_at(
    memory: &impl Memory,
    what: &'static str,
    address: u64,
) -> Result<u64, KcoreError> {
    let mut word = [0; 8];
    fill(memory, what, address, &mut word)?;
    Ok(u64::from_ne_bytes(word))
}

/// The integer of `N` bytes at `offset`; `None` past the end.
pub(super) fn field<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

/// Whether this is an address of the kernel's: its half is the upper one.
pub(super) const fn is_kernel(address: u64) -> bool {
    address.cast_signed() < 0
}

/// The text up to a NUL, which must be there, read from `address`.
pub(super) fn text(bytes: &[u8], address: u64) -> Result<&str, KcoreError> {
    let wrong = |what| KcoreError::Implausible {
        what,
        address,
        value: bytes.first().copied().unwrap_or_default().into(),
    };
    let len = bytes
        .iter()
        .position(|&byte| byte == 0)
        .ok_or_else(|| wrong("a text without end"))?;
    str::from_utf8(&bytes[..len]).map_err(|_| wrong("a text that is not UTF-8"))
}

/// Of variables that share a name, the one that is the head of a list; the
/// first if none is.
pub(super) fn list_head(memory: &impl Memory, variables: &Variables, name: &str) -> Option<u64> {
    let is_one = |&head: &u64| {
        u64_at(memory, "a list", head)
            .and_then(|next| u64_at(memory, "a list", next.wrapping_add(8)))
            .is_ok_and(|back| back == head)
    };
    variables
        .all(name)
        .find(is_one)
        .or_else(|| variables.get(name))
}

/// The nodes of a `struct list_head`, next and previous, without its head.
pub(super) fn list(
    memory: &impl Memory,
    what: &'static str,
    head: u64,
) -> Result<Vec<u64>, KcoreError> {
    let mut nodes = Vec::new();
    let (mut before, mut at) = (head, u64_at(memory, what, head)?);
    while at != head {
        if nodes.len() == MAX_NODES {
            return Err(KcoreError::Implausible {
                what: "a list without end",
                address: head,
                value: at,
            });
        }
        let mut node = [0; 16];
        fill(memory, what, at, &mut node)?;
        let [next, back] =
            [0, 8].map(|offset| u64::from_ne_bytes(field(&node, offset).unwrap_or_default()));
        // What was taken off the list meanwhile has a poison there.
        if back != before {
            return Err(KcoreError::Implausible {
                what: "a list torn in the middle",
                address: at,
                value: back,
            });
        }
        nodes.push(at);
        (before, at) = (at, next);
    }
    Ok(nodes)
}

/// A kind of structure.
#[derive(Clone, Copy)]
pub(super) struct Structure<'l> {
    layouts: &'l Layouts,
    name: &'static str,
    size: usize,
}

impl<'l> Structure<'l> {
    /// More than any structure that is read here has.
    const MAX_BYTES: usize = 64 << 10;

    pub(super) fn new(layouts: &'l Layouts, name: &'static str) -> Result<Self, KcoreError> {
        let size = layouts.size(name)?;
        if size == 0 || size > Self::MAX_BYTES {
            return Err(KcoreError::Layout {
                name,
                member: "size that can be",
            });
        }
        Ok(Self {
            layouts,
            name,
            size,
        })
    }

    pub(super) const fn size(self) -> usize {
        self.size
    }

    pub(super) fn member(self, member: &'static str) -> Result<Member, KcoreError> {
        self.layouts.member(self.name, member)
    }

    /// Reads the one at `address`.
    pub(super) fn read(self, memory: &impl Memory, address: u64) -> Result<Read<'l>, KcoreError> {
        Ok(Read {
            structure: self,
            address,
            bytes: bytes(memory, self.name, address, self.size)?,
        })
    }
}

/// A structure that was read.
pub(super) struct Read<'l> {
    structure: Structure<'l>,
    pub(super) address: u64,
    bytes: Vec<u8>,
}

impl Read<'_> {
    /// The address of a member.
    pub(super) fn address_of(&self, member: &'static str) -> Result<u64, KcoreError> {
        let offset = self.structure.member(member)?.offset;
        Ok(self.address.wrapping_add(offset as u64))
    }

    /// The bytes of a member.
    pub(super) fn member(&self, member: &'static str) -> Result<&[u8], KcoreError> {
        let Member { offset, size } = self.structure.member(member)?;
        // Layouts has no member that ends outside.
        Ok(self.bytes.get(offset..offset + size).unwrap_or_default())
    }

    /// The text in a member.
    pub(super) fn text(&self, member: &'static str) -> Result<&str, KcoreError> {
        text(self.member(member)?, self.address_of(member)?)
    }

    /// An unsigned integer of up to 8 bytes.
    pub(super) fn int(&self, member: &'static str) -> Result<u64, KcoreError> {
        let bytes = self.member(member)?;
        match *bytes {
            [_, _, _, _] => Ok(field(bytes, 0).map_or(0, u32::from_ne_bytes).into()),
            [_, _, _, _, _, _, _, _] => Ok(field(bytes, 0).map_or(0, u64::from_ne_bytes)),
            _ => Err(KcoreError::Layout {
                name: self.structure.name,
                member,
            }),
        }
    }

    /// How many of something there are, at most `limit`.
    pub(super) fn count(&self, member: &'static str, limit: usize) -> Result<usize, KcoreError> {
        let value = self.int(member)?;
        match usize::try_from(value) {
            Ok(count) if count <= limit => Ok(count),
            _ => Err(KcoreError::Implausible {
                what: "a number of entries that cannot be",
                address: self.address_of(member)?,
                value,
            }),
        }
    }

    /// The address of something that is there.
    pub(super) fn pointer(&self, member: &'static str) -> Result<u64, KcoreError> {
        let value = self.int(member)?;
        if is_kernel(value) {
            Ok(value)
        } else {
            Err(KcoreError::Implausible {
                what: "a pointer to nothing of the kernel's",
                address: self.address_of(member)?,
                value,
            })
        }
    }
}

/// Memory made of a few regions, for tests.
#[cfg(test)]
#[derive(Clone, Default)]
pub(super) struct Fake(pub(super) Vec<(u64, Vec<u8>)>);

#[cfg(test)]
impl Memory for Fake {
    fn read(&self, address: u64, into: &mut [u8]) -> io::Result<()> {
        self.0
            .iter()
            .find_map(|(start, bytes)| {
                let offset = usize::try_from(address.checked_sub(*start)?).ok()?;
                bytes.get(offset..)?.get(..into.len())
            })
            .map(|found| into.copy_from_slice(found))
            .ok_or_else(|| rustix::io::Errno::FAULT.into())
    }
}
