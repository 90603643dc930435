//! The programs of the main job: find the slot of the function that was hit
//! and add one to this CPU's counter.
//!
//! Both run with preemption off and never nest on one CPU: the kernel refuses
//! a second tracing program there (`bpf_prog_active`, kernel/trace/bpf_trace.c)
//! and counts it as missed. So plain additions are exact.
#![expect(
    unsafe_code,
    reason = "helpers, maps and symbol names have no safe form in eBPF"
)]

use core::ptr;

use aya_ebpf::{
    EbpfContext as _, Global,
    bindings::BPF_F_MMAPABLE,
    btf_maps::{Array, HashMap},
    helpers::{bpf_get_attach_cookie, bpf_get_smp_processor_id},
    macros::{btf_map, kprobe},
    programs::ProbeContext,
};
use aya_log_ebpf::warn;
use ksyms_ebpf::slot_of_cookie;

// User space sets the real sizes of both maps when it creates them.
#[btf_map]
static COUNTS: Array<u64, 1, { BPF_F_MMAPABLE as usize }> = Array::new();
#[btf_map]
static SLOTS: HashMap<u64, u32, 1> = HashMap::new();

#[unsafe(no_mangle)]
static SLOT_COUNT: Global<u32> = Global::new(0);
#[unsafe(no_mangle)]
static ROW_STRIDE: Global<u32> = Global::new(0);

/// See [`ksyms_ebpf::maps::COUNTING`].
#[unsafe(no_mangle)]
static mut COUNTING: u32 = 0;

#[inline(always)]
fn is_counting() -> bool {
    // SAFETY: user space alone writes it, in one piece.
    unsafe { ptr::read_volatile(&raw const COUNTING) != 0 }
}

#[kprobe]
fn count_by_cookie(ctx: ProbeContext) -> u32 {
    if !is_counting() {
        return 0;
    }
    // SAFETY: the helper only reads the context it is given.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    count(&ctx, slot_of_cookie(cookie));
    0
}

#[kprobe]
fn count_by_address(ctx: ProbeContext) -> u32 {
    if !is_counting() {
        return 0;
    }
    let address = probed_address(&ctx);
    // Kernels with IBT put the probe behind the ENDBR that a function begins
    // with (arch_adjust_kprobe_addr, arch/x86/kernel/kprobes/core.c, 5.18).
    let slot = slot_of_address(address).or_else(|| slot_of_address(address.wrapping_sub(ENDBR)));
    count(&ctx, slot.unwrap_or(u64::MAX));
    0
}

/// Bytes of an ENDBR64.
const ENDBR: u64 = 4;

#[inline(always)]
fn slot_of_address(address: u64) -> Option<u64> {
    // SAFETY: values of this map are only written before the probes are armed.
    unsafe { SLOTS.get(address) }.map(|&slot| u64::from(slot))
}

/// Where the probe sits. On x86 the handler sees the instruction pointer just
/// behind the one-byte int3, and probes that ftrace or a jump carry imitate
/// that (arch/x86/kernel/kprobes/{core,ftrace,opt}.c).
#[inline(always)]
fn probed_address(ctx: &ProbeContext) -> u64 {
    // SAFETY: the context of a kprobe is a pt_regs.
    unsafe { (*ctx.regs).rip }.wrapping_sub(1)
}

#[inline(always)]
fn count(ctx: &ProbeContext, slot: u64) {
    let slots = SLOT_COUNT.load();
    let column = if slot < u64::from(slots) {
        slot as u32
    } else {
        warn!(
            ctx,
            "hit at {:x}, which belongs to no registered function",
            probed_address(ctx)
        );
        slots
    };
    // SAFETY: the helper takes no argument.
    let cpu = unsafe { bpf_get_smp_processor_id() };
    if let Some(counter) = COUNTS.get_ptr_mut(cpu * ROW_STRIDE.load() + column) {
        // SAFETY: the element is this CPU's own, see the top of the file.
        unsafe { *counter += 1 };
    }
}
