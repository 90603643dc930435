//! Reading the counters: straight from the memory that the programs write.

use std::{os::fd::AsFd as _, sync::atomic::Ordering};

use aya::maps::MapData;
use ksyms_ebpf::Rows;

use super::sys::{self, MappedArray, SyscallError};

/// The counters of all functions on all CPUs. Reading them is no system call.
#[derive(Debug)]
pub(crate) struct Counters {
    rows: Rows,
    slots: usize,
    mapped: MappedArray,
    counting: MapData,
}

/// What the counters said at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counts {
    /// Hits of each slot, summed over the CPUs.
    pub hits: Vec<u64>,
    /// Hits that belong to no slot: 0, or something is wrong.
    pub stray: u64,
}

impl Counters {
    /// `counting` is the map that says whether hits are counted: not yet.
    pub(crate) fn new(
        map: &MapData,
        counting: MapData,
        slots: u32,
        cpus: u32,
    ) -> Result<Self, SyscallError> {
        let rows = Rows::new(slots);
        let elements = rows.stride() as usize * cpus as usize;
        Ok(Self {
            rows,
            slots: slots as usize,
            mapped: MappedArray::new(map.fd().as_fd(), elements)?,
            counting,
        })
    }

    /// Starts counting, or stops it.
    pub(crate) fn set_counting(&self, counting: bool) -> Result<(), SyscallError> {
        sys::map_write_data(
            self.counting.fd().as_fd(),
            &u32::from(counting).to_ne_bytes(),
        )
    }

    pub(crate) fn read(&self) -> Counts {
        let mut hits = vec![0; self.slots];
        let mut stray = 0;
        for row in self
            .mapped
            .as_slice()
            .chunks_exact(self.rows.stride() as usize)
        {
            for (sum, counter) in hits.iter_mut().zip(row) {
                *sum += counter.load(Ordering::Relaxed);
            }
            stray += row[self.rows.stray() as usize].load(Ordering::Relaxed);
        }
        Counts { hits, stray }
    }
}
