//! Reading structures out of memory that may be torn.

use std::io;

use super::KcoreError;

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
