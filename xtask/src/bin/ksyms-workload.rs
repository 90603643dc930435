//! Workloads to count the kernel's functions under. Nothing is printed on
//! standard output, which is the observer's.

use std::{
    ffi::OsString,
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    os::unix::process::CommandExt as _,
    process::{Command, ExitCode},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::Parser as _;
use rustix::{
    process::{Gid, Resource, Rlimit, Uid, getppid, getrlimit, setrlimit},
    thread::{
        CapabilitySet, CpuSet, capabilities, remove_capability_from_bounding_set,
        sched_setaffinity, set_capabilities, set_thread_groups, set_thread_res_gid,
        set_thread_res_uid,
    },
};

/// Workloads to count the kernel's functions under.
#[derive(clap::Parser, Debug)]
#[command(name = "ksyms-workload")]
enum Workload {
    /// Echo data through TCP connections over the loopback interface
    Tcp {
        /// Connections, one after another
        #[arg(long, default_value_t = 50)]
        connections: usize,
        /// Bytes each way through each of them
        #[arg(long, default_value_t = 65_536)]
        bytes: usize,
    },
    /// Make exactly so many getppid system calls
    Getppid {
        /// How many
        #[arg(long, default_value_t = 1000)]
        calls: u64,
        /// The processor to make them on
        #[arg(long, default_value_t = 0)]
        cpu: usize,
    },
    /// Do nothing for so many seconds
    Sleep {
        /// How many; 0.5 is fine too
        seconds: f64,
    },
    /// Run a command with less than this process may do
    Limit {
        /// Limit of open files: the soft one, and after a colon the hard one
        #[arg(long, value_name = "SOFT[:HARD]", value_parser = parse_limit)]
        nofile: Option<(u64, Option<u64>)>,
        /// Capabilities to go without, as in `sys_resource,bpf`
        #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = parse_capability)]
        drop_cap: Vec<CapabilitySet>,
        /// The user (and group) to become, by number
        #[arg(long)]
        uid: Option<u32>,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    match perform(Workload::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ksyms-workload: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(workload: Workload) -> Result<()> {
    match workload {
        Workload::Tcp { connections, bytes } => tcp(connections, bytes)
            .context("cannot talk TCP over loopback; is the interface lo up?"),
        Workload::Getppid { calls, cpu } => call_getppid(calls, cpu),
        Workload::Sleep { seconds } => {
            thread::sleep(Duration::try_from_secs_f64(seconds).context("how long is that?")?);
            Ok(())
        }
        Workload::Limit {
            nofile,
            drop_cap,
            uid,
            command,
        } => {
            limit(nofile, &drop_cap, uid)?;
            let error = Command::new(&command[0]).args(&command[1..]).exec();
            Err(error).with_context(|| format!("cannot run {}", command[0].display()))
        }
    }
}

fn tcp(connections: usize, bytes: usize) -> io::Result<()> {
    const PIECE: usize = 4096;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || {
        for _ in 0..connections {
            let (mut stream, _) = listener.accept()?;
            let mut piece = [0; PIECE];
            loop {
                match stream.read(&mut piece)? {
                    0 => break,
                    length => stream.write_all(&piece[..length])?,
                }
            }
        }
        io::Result::Ok(())
    });
    let sent = [b'x'; PIECE];
    let mut received = [0; PIECE];
    for _ in 0..connections {
        let mut stream = TcpStream::connect(address)?;
        let mut left = bytes;
        while left > 0 {
            let length = left.min(PIECE);
            stream.write_all(&sent[..length])?;
            stream.read_exact(&mut received[..length])?;
            left -= length;
        }
    }
    server
        .join()
        .map_err(|_| io::Error::other("the server panicked"))?
}

fn call_getppid(calls: u64, cpu: usize) -> Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        bail!("there is no CPU {cpu}");
    }
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).with_context(|| format!("cannot run on CPU {cpu}"))?;
    for _ in 0..calls {
        // Not optimised away: a system call each.
        let _parent = getppid();
    }
    Ok(())
}

fn limit(
    nofile: Option<(u64, Option<u64>)>,
    drop_cap: &[CapabilitySet],
    uid: Option<u32>,
) -> Result<()> {
    if let Some((soft, hard)) = nofile {
        let maximum = hard.or(getrlimit(Resource::Nofile).maximum);
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(soft),
                maximum,
            },
        )
        .context("cannot set the limit of open files")?;
    }
    let dropped = drop_cap
        .iter()
        .fold(CapabilitySet::empty(), |all, one| all | *one);
    if !dropped.is_empty() {
        // Root gets back at exec whatever is left in the bounding set.
        for capability in dropped.iter() {
            remove_capability_from_bounding_set(capability)
                .context("cannot take a capability away, which takes CAP_SETPCAP")?;
        }
        let mut sets = capabilities(None)?;
        for set in [
            &mut sets.effective,
            &mut sets.permitted,
            &mut sets.inheritable,
        ] {
            set.remove(dropped);
        }
        // Dropped first, SETUID and SETGID would be missed below.
        if uid.is_none() {
            set_capabilities(None, sets).context("cannot drop capabilities")?;
        }
    }
    if let Some(uid) = uid {
        let group = Gid::from_raw(uid);
        let user = Uid::from_raw(uid);
        set_thread_groups(&[]).context("cannot leave the groups")?;
        set_thread_res_gid(group, group, group).context("cannot change the group")?;
        set_thread_res_uid(user, user, user).context("cannot change the user")?;
    }
    Ok(())
}

fn parse_limit(text: &str) -> Result<(u64, Option<u64>), String> {
    let number = |text: &str| {
        text.parse()
            .map_err(|_| format!("{text} is no number of files"))
    };
    match text.split_once(':') {
        Some((soft, hard)) => Ok((number(soft)?, Some(number(hard)?))),
        None => Ok((number(text)?, None)),
    }
}

fn parse_capability(text: &str) -> Result<CapabilitySet, String> {
    let name = text.to_ascii_uppercase();
    let name = name.strip_prefix("CAP_").unwrap_or(&name);
    CapabilitySet::from_name(name)
        .ok_or_else(|| "capabilities have names like sys_admin".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_known_by_name() {
        for (name, capability) in [
            ("sys_resource", CapabilitySet::SYS_RESOURCE),
            ("CAP_BPF", CapabilitySet::BPF),
            ("Perfmon", CapabilitySet::PERFMON),
        ] {
            assert_eq!(parse_capability(name), Ok(capability));
        }
        assert!(parse_capability("root").is_err());
    }

    #[test]
    fn limits_are_one_or_two_numbers() {
        assert_eq!(parse_limit("64"), Ok((64, None)));
        assert_eq!(parse_limit("64:128"), Ok((64, Some(128))));
        assert!(parse_limit("many").is_err());
    }

    #[test]
    fn every_byte_comes_back() {
        tcp(2, 10_000).unwrap();
    }
}
