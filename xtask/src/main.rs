//! `cargo xtask`: everything a developer of ksyms types.

mod artifacts;
mod deb;
mod initramfs;
mod kernels;
mod machine;
mod modules;
mod run;
mod setup;
mod test;
mod vm;
mod workspace;

use std::{io, process::ExitCode};

use anyhow::Result;
use clap::Parser as _;

/// Sets up, builds, runs and tests ksyms.
#[derive(clap::Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100)]
enum Task {
    /// Get what building and running takes: a rustc for eBPF, its linker,
    /// QEMU, kernels to boot
    Setup(setup::Args),
    /// Build the release ksyms-attach and print its path
    Build,
    /// Run ksyms-attach, on this machine if it can attach here, else in a VM
    Run(run::RunArgs),
    /// Run a command in a VM
    ///
    /// Ends with the command's status, 128 and the signal's number if it died
    /// of one, 125 if the VM failed.
    Vm(run::VmArgs),
    /// Run the tests, on this machine and in VMs
    Test(test::Args),
}

/// Of a process whose reader left, as in `xtask … | head`: what a shell has.
const DIED_OF_SIGPIPE: u8 = 128 + 13;
/// Not the status of what ran in a VM, but that of the VM.
const VM_FAILED: u8 = 125;

fn main() -> ExitCode {
    let error = match perform(&Task::parse()) {
        Ok(code) => return code,
        Err(error) => error,
    };
    if is_broken_pipe(&error) {
        return ExitCode::from(DIED_OF_SIGPIPE);
    }
    eprintln!("error: {error:#}");
    if error.is::<vm::Failure>() {
        ExitCode::from(VM_FAILED)
    } else {
        ExitCode::FAILURE
    }
}

fn perform(task: &Task) -> Result<ExitCode> {
    match task {
        Task::Setup(args) => setup::run(args).map(|()| ExitCode::SUCCESS),
        Task::Build => {
            println!(
                "{}",
                artifacts::build_attach(&setup::Setup::default())?.display()
            );
            Ok(ExitCode::SUCCESS)
        }
        Task::Run(args) => run::run(args),
        Task::Vm(args) => run::vm(args),
        Task::Test(args) => test::run(args),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .root_cause()
        .downcast_ref::<io::Error>()
        .is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
