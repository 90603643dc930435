//! The options that describe a VM on the command line, shared by the tasks
//! that start one.

use std::{path::PathBuf, str::FromStr, time::Duration};

use anyhow::Result;

use crate::{
    kernels::{self, Choice, Kernel},
    setup::Setup,
    vm::{Accel, AddedFile, Processors, Vm},
};

/// Options of the VM.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "The VM")]
pub(crate) struct Machine {
    /// Kernel to boot: 5.10, 6.1, 6.12, 6.18, 7.0, 7.3 or the path of an image
    #[arg(long, value_name = "KERNEL", default_value = kernels::DEFAULT)]
    pub(crate) kernel: Choice,
    /// Number of processors [default: 1; QEMU's emulation has crashed guests
    /// that patch much code with more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub(crate) cpus: Option<u32>,
    /// Memory in MiB
    #[arg(long, value_name = "MIB", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(128..))]
    memory: u32,
    /// More arguments for the kernel, as in "lockdown=integrity"
    #[arg(long, value_name = "ARGUMENTS", allow_hyphen_values = true)]
    append: Vec<String>,
    /// One emulated processor whose clock counts instructions, each 1 ns: the
    /// clock for comparisons, and waiting takes no real time
    #[arg(long)]
    icount: bool,
    /// Modules to load first, from the kernel's own package
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    modules: Vec<String>,
    /// A file to have in the guest, in /bin unless said otherwise
    #[arg(long, value_name = "FILE[:/GUEST/PATH]")]
    add: Vec<AddedFile>,
    /// A variable in the command's environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = parse_variable)]
    env: Vec<(String, String)>,
    /// Seconds after which the VM has failed
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    timeout: u64,
    /// What runs the guest's instructions
    #[arg(long, default_value = "auto")]
    accel: Accel,
    /// Show the kernel's console on standard error
    #[arg(long)]
    verbose: bool,
}

impl Machine {
    /// The machine that these options describe.
    pub(crate) fn vm(&self, setup: &Setup) -> Result<Vm> {
        let Self {
            kernel,
            cpus,
            memory,
            append,
            icount,
            modules,
            add,
            env,
            timeout,
            accel,
            verbose,
        } = self;
        let processors = match (*icount, *cpus) {
            (true, cpus) => {
                if cpus.is_some_and(|cpus| cpus != 1) {
                    eprintln!("vm: --icount has one CPU, whatever --cpus says");
                }
                if *accel == Accel::Kvm {
                    eprintln!("vm: --icount is emulated, whatever --accel says");
                }
                Processors::Counted
            }
            (false, cpus) => Processors::Many(cpus.unwrap_or(1)),
        };
        Ok(Vm {
            kernel: Kernel::get(kernel, setup)?,
            processors,
            accel: *accel,
            memory_mib: *memory,
            append: append.clone(),
            modules: modules.clone(),
            files: add.clone(),
            environment: env.clone(),
            limit: Duration::from_secs(*timeout),
            echo_console: *verbose,
        })
    }
}

impl FromStr for AddedFile {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, guest) = match text.rsplit_once(":/") {
            Some((host, guest)) => (host, Some(format!("/{guest}"))),
            None => (text, None),
        };
        let host = PathBuf::from(host);
        let guest = match (guest, host.file_name()) {
            (Some(guest), _) => guest.into(),
            (None, Some(name)) => PathBuf::from("/bin").join(name),
            (None, None) => return Err("this names no file".to_owned()),
        };
        Ok(Self { host, guest })
    }
}

fn parse_variable(text: &str) -> Result<(String, String), String> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| "write NAME=VALUE".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn added_files_go_to_bin_unless_told() {
        let parse = |text: &str| {
            text.parse::<AddedFile>()
                .map(|file| (file.host, file.guest))
        };
        assert_eq!(
            parse("/t/kernel-1f"),
            Ok(("/t/kernel-1f".into(), "/bin/kernel-1f".into()))
        );
        assert_eq!(parse("a:b:/bin/c"), Ok(("a:b".into(), "/bin/c".into())));
        assert!(parse("/").is_err());
    }
}
