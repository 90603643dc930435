//! Whether KVM works here. Its device is often there and the kernels it runs
//! crash, so what counts is that one has booted.

use std::{fs, io, time::Duration};

use anyhow::Result;

use super::{Processors, Vm, kvm_is_open};
use crate::{
    artifacts::Guest,
    setup::{Setup, write_atomically},
    workspace::setup_dir,
};

/// What runs the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Accel {
    /// KVM where a kernel has booted under it, else TCG
    Auto,
    /// The processor itself
    Kvm,
    /// QEMU's emulation
    Tcg,
}

/// A boot under a KVM that works takes about a second.
const LIMIT: Duration = Duration::from_secs(20);

/// Chooses by what was found before, else by a boot.
pub(super) fn choose(setup: &Setup, guest: &Guest) -> Result<Accel> {
    if !kvm_is_open() {
        return Ok(Accel::Tcg);
    }
    let kernel = setup.default_kernel()?;
    // Another kernel on either side can change the answer.
    let host = rustix::system::uname();
    let image = fs::metadata(&kernel.image)?;
    let key = format!(
        "{} {} {}",
        host.release().to_string_lossy(),
        kernel.name,
        image.len()
    );
    let verdicts_file = setup_dir().join("kvm-verdicts");
    let verdicts = fs::read_to_string(&verdicts_file).unwrap_or_default();
    let verdict = verdicts
        .lines()
        .find_map(|line| line.strip_suffix(&key)?.strip_suffix(' '));
    let works = if let Some(verdict) = verdict {
        verdict == "works"
    } else {
        eprintln!("vm: trying KVM, once");
        let probe = Vm {
            processors: Processors::Many(1),
            accel: Accel::Kvm,
            memory_mib: 512,
            limit: LIMIT,
            ..Vm::new(kernel)
        };
        let command = ["ksyms-workload", "getppid"].map(Into::into);
        let mut ignore = |_, _: &[u8]| io::Result::Ok(());
        let works = probe
            .run(setup, guest, &command, &mut ignore)
            .is_ok_and(|outcome| outcome.status == 0 && outcome.console.complaints().is_empty());
        let verdict = if works { "works" } else { "fails" };
        eprintln!(
            "vm: KVM {verdict} here; noted in {}",
            verdicts_file.display()
        );
        write_atomically(&verdicts_file, &format!("{verdicts}{verdict} {key}\n"))?;
        works
    };
    Ok(if works { Accel::Kvm } else { Accel::Tcg })
}
