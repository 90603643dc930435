//! The names and layouts that the eBPF programs and user space share.
//!
//! This crate's library builds everywhere; its binary holds the eBPF programs
//! and is empty unless built for a bpf target (`ksyms-user/build.rs` does that).
//!
//! # Maps
//!
//! - [`maps::COUNTS`]: one mmap-able array of `u64`, a row for each possible
//!   CPU and in it a counter for each slot, so that a program touches only its
//!   own CPU's cache lines and user space reads all of it without a system
//!   call. [`Rows`] says which element belongs to which CPU and slot.
//! - [`maps::SLOTS`]: hash of function address (`u64`) to slot (`u32`), filled
//!   only where cookies cannot tell functions apart: before 5.15, and for one
//!   trace event of many probes.
//!
//! [`registry`] is the layout of a table from address to slot that user space
//! keeps, fit for maps.
#![no_std]

pub mod registry;

/// Names of the eBPF programs, all of section type `kprobe`.
pub mod programs {
    /// Counts by attach cookie: cookie = slot + 1. Loaded as a kprobe or as a
    /// kprobe.multi program. Kernel 5.15 (`bpf_get_attach_cookie`).
    pub const COUNT_BY_COOKIE: &str = "count_by_cookie";
    /// Counts by the address that the registers show, looked up in
    /// [`maps::SLOTS`](crate::maps::SLOTS). Any kernel.
    pub const COUNT_BY_ADDRESS: &str = "count_by_address";
}

/// Names of the eBPF maps.
pub mod maps {
    /// The counters.
    pub const COUNTS: &str = "COUNTS";
    /// Function address to slot.
    pub const SLOTS: &str = "SLOTS";
    /// The ring buffer of aya-log.
    pub const LOGS: &str = "AYA_LOGS";
    /// The one variable that changes, a `u32`: hits are counted while it is not
    /// 0. Arming and disarming run through functions that may be armed already;
    /// until all are, hits should cost little and count nothing.
    pub const COUNTING: &str = ".bss";
}

/// Names of the read-only globals that user space sets before loading.
pub mod globals {
    /// `u32`: how many slots there are.
    pub const SLOT_COUNT: &str = "SLOT_COUNT";
    /// `u32`: elements from one CPU's row of counters to the next.
    pub const ROW_STRIDE: &str = "ROW_STRIDE";
    /// `u8`: what aya-log lets through; 0 removes the logging code at load.
    pub const LOG_LEVEL: &str = "AYA_LOG_LEVEL";
}

/// How the counters lie in [`maps::COUNTS`].
///
/// ```text
///            slot 0   slot 1  …  slot n-1   stray   (padding to a cache line)
///   CPU 0      .        .           .         .
///   CPU 1      .        .           .         .
/// ```
///
/// The stray column counts hits that belong to no slot: there should be none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rows {
    slots: u32,
}

impl Rows {
    /// `u64` counters in a cache line of 64 bytes.
    const LINE: u32 = 8;

    /// The layout for `slots` functions.
    #[must_use]
    pub const fn new(slots: u32) -> Self {
        Self { slots }
    }

    /// Elements from one row to the next: a whole number of cache lines, so
    /// that no two CPUs write to the same one.
    #[must_use]
    pub const fn stride(self) -> u32 {
        (self.slots + 1).next_multiple_of(Self::LINE)
    }

    /// The column that counts hits of no known slot.
    #[must_use]
    pub const fn stray(self) -> u32 {
        self.slots
    }

    /// Elements of the whole array for `cpus` rows, or `None` when an array map
    /// cannot have so many.
    #[must_use]
    pub const fn elements(self, cpus: u32) -> Option<u32> {
        self.stride().checked_mul(cpus)
    }
}

/// The cookie that marks `slot`. Never 0: that is what
/// `bpf_get_attach_cookie` returns when there is no cookie.
#[must_use]
pub const fn cookie_of_slot(slot: u32) -> u64 {
    slot as u64 + 1
}

/// The slot that `cookie` marks, or `u64::MAX`, which is no slot, for 0.
#[must_use]
pub const fn slot_of_cookie(cookie: u64) -> u64 {
    cookie.wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_whole_cache_lines_with_room_for_the_stray_column() {
        for (slots, stride) in [(0, 8), (1, 8), (7, 8), (8, 16), (377, 384)] {
            let rows = Rows::new(slots);
            assert_eq!(rows.stride(), stride, "{slots} slots");
            assert!(rows.stray() < rows.stride());
        }
        assert_eq!(Rows::new(7).elements(4), Some(32));
        assert_eq!(Rows::new(1 << 20).elements(1 << 12), None);
    }

    #[test]
    fn cookies_name_slots_and_zero_names_none() {
        assert_eq!(slot_of_cookie(cookie_of_slot(0)), 0);
        assert_eq!(slot_of_cookie(cookie_of_slot(41)), 41);
        assert_eq!(slot_of_cookie(0), u64::MAX);
    }
}
