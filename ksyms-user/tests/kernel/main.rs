//! Tests against a real kernel. `cargo xtask test` runs them in VMs, as root,
//! one at a time, with `KSYMS_TEST_KERNEL` set to the kernel they must find
//! there; without it they are skipped and say so.
//!
//! What a kernel must have is decided by its name, not by asking it: a feature
//! that is lost is a failure, not a skip.

mod counting;
mod event;
mod faults;
mod harness;
mod host;
mod kcore;
mod listing;
mod lockdown;
mod module;
mod signals;
mod smp;
mod symbols;
mod wide;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // The tests look at what is attached in the whole kernel.
    arguments.test_threads = Some(1);
    let trials: Vec<Trial> = [
        counting::trials(),
        event::trials(),
        faults::trials(),
        host::trials(),
        kcore::trials(),
        listing::trials(),
        lockdown::trials(),
        module::trials(),
        signals::trials(),
        smp::trials(),
        symbols::trials(),
        wide::trials(),
    ]
    .into_iter()
    .flatten()
    .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}
