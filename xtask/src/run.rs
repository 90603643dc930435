//! `cargo xtask run`: ksyms-attach on this machine if it can attach here, else
//! in a VM; and `cargo xtask vm`: any command in a VM.

use std::{
    env,
    ffi::OsString,
    fs,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Command, ExitCode},
};

use anyhow::{Context as _, Result};

use crate::{
    artifacts::Guest,
    kernels,
    machine::Machine,
    setup::Setup,
    vm::{Accel, Processors, Stream, Vm},
    workspace::{is_root, sudo_works},
};

/// Options of `cargo xtask vm`.
#[derive(clap::Args, Debug)]
pub(crate) struct VmArgs {
    #[command(flatten)]
    machine: Machine,
    /// Do not build ksyms-attach, and have only the workloads in the guest
    #[arg(long)]
    bare: bool,
    /// What to run in the guest; ksyms-attach and ksyms-workload are on its PATH
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs a command in a VM and ends as it ends.
pub(crate) fn vm(
    VmArgs {
        machine,
        bare,
        command,
    }: &VmArgs,
) -> Result<ExitCode> {
    let setup = Setup::default();
    let guest = Guest::build(&setup, !bare)?;
    run_in_vm(&setup, &machine.vm(&setup)?, &guest, command)
}

/// Options of `cargo xtask run`.
#[derive(clap::Args, Debug)]
pub(crate) struct RunArgs {
    /// Run in a VM even if this machine would do
    #[arg(long)]
    vm: bool,
    /// Run on this machine even if it does not look as if it would do
    #[arg(long, conflicts_with = "vm")]
    host: bool,
    #[command(flatten)]
    machine: Machine,
    /// Arguments for ksyms-attach [default: --pattern 'tcp_*' -- ksyms-workload tcp]
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<OsString>,
}

/// Runs ksyms-attach and ends as it ends.
pub(crate) fn run(args: &RunArgs) -> Result<ExitCode> {
    let RunArgs {
        vm,
        host,
        machine,
        arguments,
    } = args;
    let setup = Setup::default();
    let mut command = vec![OsString::from("ksyms-attach")];
    if arguments.is_empty() {
        command.extend(["--pattern", "tcp_*", "--", "ksyms-workload", "tcp"].map(Into::into));
    } else {
        command.extend_from_slice(arguments);
    }

    let why_not_here = if *host {
        None
    } else if *vm {
        Some("--vm was given".to_owned())
    } else if machine.kernel.to_string() != kernels::DEFAULT {
        Some("--kernel was given".to_owned())
    } else {
        why_not_here()
    };
    let guest = Guest::build(&setup, true)?;
    let Some(why) = why_not_here else {
        eprintln!("run: on this machine");
        return Err(exec_here(&guest, &command));
    };
    let mut vm = machine.vm(&setup)?;
    // Many functions at once want one processor: with two, QEMU's emulation
    // has crashed guests. And counted, waits for RCU cost nothing.
    if machine.cpus.is_none() && vm.effective_accel(&setup, &guest)? == Accel::Tcg {
        vm.processors = Processors::Counted;
    }
    let clock = match vm.processors {
        Processors::Counted => ", one CPU whose clock counts instructions, 1 ns each",
        Processors::Many(_) => "",
    };
    eprintln!(
        "run: in a VM with Linux {}{clock}, because {why}",
        machine.kernel
    );
    run_in_vm(&setup, &vm, &guest, &command)
}

/// Why ksyms-attach cannot attach on this machine, if it cannot.
fn why_not_here() -> Option<String> {
    if !Path::new("/sys/bus/event_source/devices/kprobe").exists() {
        return Some("this machine's kernel has no kprobes".to_owned());
    }
    if !is_root() && !sudo_works() {
        return Some("this user is neither root nor has sudo without a password".to_owned());
    }
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    let (_, level) = lockdown.split_once('[')?;
    let (level, _) = level.split_once(']')?;
    (level != "none").then(|| format!("this machine's kernel is locked down ({level})"))
}

/// Becomes ksyms-attach. Returns only where that failed.
fn exec_here(guest: &Guest, command: &[OsString]) -> anyhow::Error {
    let Some(attach) = &guest.attach else {
        return anyhow::anyhow!("ksyms-attach was not built");
    };
    // The workload is beside it in most builds, but need not be.
    let directories = [attach, &guest.workload]
        .into_iter()
        .filter_map(|file| file.parent());
    let old_path = env::var_os("PATH").unwrap_or_default();
    let path = match env::join_paths(
        directories
            .map(Path::to_path_buf)
            .chain(env::split_paths(&old_path)),
    ) {
        Ok(path) => path,
        Err(error) => return anyhow::Error::new(error).context("cannot put the workload on PATH"),
    };
    let mut program = if is_root() {
        Command::new(attach)
    } else {
        // sudo would put a PATH of its own in place of ours.
        let mut assignment = OsString::from("PATH=");
        assignment.push(&path);
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", "env"]).arg(assignment).arg(attach);
        sudo
    };
    let error = program.env("PATH", &path).args(&command[1..]).exec();
    anyhow::Error::new(error).context("cannot start ksyms-attach")
}

fn run_in_vm(setup: &Setup, vm: &Vm, guest: &Guest, command: &[OsString]) -> Result<ExitCode> {
    let mut pass_on = |stream, bytes: &[u8]| match stream {
        Stream::Stdout => {
            let mut stdout = io::stdout().lock();
            stdout.write_all(bytes)?;
            stdout.flush()
        }
        Stream::Stderr => io::stderr().write_all(bytes),
    };
    let outcome = vm
        .run(setup, guest, command, &mut pass_on)
        .with_context(|| format!("cannot run {} in a VM", command[0].display()))?;
    for complaint in outcome.console.complaints() {
        eprintln!("vm: the guest's kernel complains: {complaint}");
    }
    if vm.echo_console {
        let seconds = |duration: std::time::Duration| duration.as_secs_f64();
        eprintln!(
            "vm: booted in {:.1} s, ended after {:.1} s",
            seconds(outcome.boot),
            seconds(outcome.total)
        );
    }
    Ok(ExitCode::from(outcome.status))
}
