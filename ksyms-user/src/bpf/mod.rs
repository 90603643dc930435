//! All that talks to the kernel's bpf(2), `perf_event_open(2)` and mmap(2).
//!
//! Aya stays behind this module, and so does `unsafe`: [`sys`] wraps each
//! system call in a safe function, [`counters`] maps the counters.
//!
//! The programs are loaded here rather than by `aya::Ebpf` for two reasons: no
//! aya release can load a kprobe.multi program (its attach type is fixed), and
//! `aya::EbpfLoader` parses the kernel's whole BTF before it does anything.

pub(crate) mod counters;
pub(crate) mod log;
pub(crate) mod object;
pub(crate) mod sys;
