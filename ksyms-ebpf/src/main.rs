//! The eBPF programs. Built for bpfel-unknown-none by `ksyms-user/build.rs`;
//! on any other target there is nothing here.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]

#[cfg(target_arch = "bpf")]
mod count;

#[cfg(target_arch = "bpf")]
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
#[expect(unsafe_code, reason = "the kernel looks for this section by name")]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";

// The verifier proves that nothing panics; the compiler wants a handler.
#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}
