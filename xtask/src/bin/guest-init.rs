//! The first process of a test VM: mounts what ksyms and its tests need, runs
//! one command, reports what it wrote and how it ended, and powers off.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, PipeReader, Read as _, Write as _},
    os::{
        fd::AsFd as _,
        unix::{ffi::OsStrExt as _, process::CommandExt as _},
    },
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{OFlags, fcntl_getfl, fcntl_setfl},
    io::Errno,
    mount::{MountFlags, mount},
    net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socket_with},
    process::{Resource, Rlimit, WaitOptions, WaitStatus, setrlimit, setsid, wait},
    system::{RebootCommand, finit_module, reboot},
    termios::{OptionalActions, tcdrain, tcgetattr, tcsetattr},
};
use xtask::{
    COMMAND_FILE, ENVIRONMENT_FILE, Frame, MODULES_FILE, REPORT_PORT, SETTLE, split_strings,
};

/// As argv\[0\] it makes this program the step between fork and exec.
const LAUNCHER: &str = "ksyms-launch";

/// What is mounted: type, where, and whether there is no going on without it.
/// A kernel can lack the rest, or lockdown can forbid it.
const MOUNTS: [(&str, &str, bool); 11] = [
    ("proc", "/proc", true),
    ("sysfs", "/sys", true),
    ("devtmpfs", "/dev", true),
    ("devpts", "/dev/pts", false),
    ("tmpfs", "/dev/shm", false),
    ("tmpfs", "/tmp", true),
    ("tmpfs", "/run", true),
    ("tracefs", "/sys/kernel/tracing", false),
    ("debugfs", "/sys/kernel/debug", false),
    ("bpf", "/sys/fs/bpf", false),
    ("securityfs", "/sys/kernel/security", false),
];

/// What a pipe holds unless someone asks for more.
const PIPE_CAPACITY: usize = 64 << 10;

/// Of the guest's time.
const SETTLING: Duration = Duration::from_secs(10);

/// The default ceiling of `fs.nr_open`.
const OPEN_FILES: u64 = 1 << 20;

fn main() {
    let mut args = std::env::args_os();
    if args.next().as_deref() == Some(OsStr::new(LAUNCHER)) {
        launch(&args.collect::<Vec<_>>());
    }
    let last = match run() {
        Ok(status) => Frame::Exited(status),
        Err(error) => Frame::Failed(format!("{error:#}")),
    };
    if let Err(error) = open_report().and_then(|mut report| {
        report.write_all(&last.encode())?;
        // Power goes before the port's buffer would have emptied itself.
        Ok(tcdrain(&report)?)
    }) {
        eprintln!("guest-init: cannot report {last:?}: {error:#}");
    }
    rustix::fs::sync();
    for command in [RebootCommand::PowerOff, RebootCommand::Restart] {
        // Without ACPI a power-off returns; QEMU ends at a restart as well.
        if let Err(error) = reboot(command) {
            eprintln!("guest-init: {command:?}: {error}");
        }
    }
}

fn run() -> Result<u8> {
    set_up()?;
    let mut report = open_report()?;
    load_modules()?;
    report.write_all(&Frame::Started.encode())?;
    if fs::read_to_string("/proc/cmdline").is_ok_and(|line| line.contains(SETTLE)) {
        thread::sleep(SETTLING);
    }
    let strings = |file| fs::read(file).with_context(|| format!("cannot read {file}"));
    let command = strings(COMMAND_FILE)?;
    let environment = strings(ENVIRONMENT_FILE)?;

    let (stdout, stdout_end) = io::pipe()?;
    let (stderr, stderr_end) = io::pipe()?;
    let mut child = Command::new("/proc/self/exe");
    child
        .arg0(LAUNCHER)
        .args(split_strings(&command).map(OsStr::from_bytes))
        .env_clear()
        .envs(split_strings(&environment).filter_map(|pair| {
            let at = pair.iter().position(|&byte| byte == b'=')?;
            Some((
                OsStr::from_bytes(&pair[..at]),
                OsStr::from_bytes(&pair[at + 1..]),
            ))
        }))
        .current_dir("/root")
        .stdin(Stdio::null())
        .stdout(stdout_end)
        .stderr(stderr_end);
    let pid = child.spawn().context("cannot start a process")?.id();
    // The ends that the command writes to must be its own alone.
    drop(child);

    let (ended, mut ended_end) = io::pipe()?;
    thread::spawn(move || ended_end.write_all(&[reap_until(pid)]));
    forward(&mut report, [stdout, stderr], ended)
}

/// Becomes the command, in a session of its own so that no signal meant for
/// one of the two reaches the other.
fn launch(command: &[impl AsRef<OsStr>]) -> ! {
    let _already_leader = setsid();
    let Some((program, args)) = command.split_first() else {
        eprintln!("the VM was given no command to run");
        std::process::exit(127);
    };
    let error = Command::new(program).args(args).exec();
    eprintln!("the VM cannot run {}: {error}", program.as_ref().display());
    // The two statuses that shells have for this.
    std::process::exit(if error.kind() == io::ErrorKind::NotFound {
        127
    } else {
        126
    });
}

fn set_up() -> Result<()> {
    for (kind, target, needed) in MOUNTS {
        let mounted = fs::create_dir_all(target)
            .and_then(|()| Ok(mount(kind, target, kind, MountFlags::NOSUID, None)?));
        match mounted {
            Err(error) if needed => {
                return Err(error).with_context(|| format!("cannot mount {kind} at {target}"));
            }
            Err(error) => eprintln!("guest-init: no {kind} at {target}: {error}"),
            Ok(()) => {}
        }
    }
    let open_files = Rlimit {
        current: Some(OPEN_FILES),
        maximum: Some(OPEN_FILES),
    };
    setrlimit(Resource::Nofile, open_files).context("cannot raise the limit of open files")?;
    bring_loopback_up().context("cannot bring the loopback interface up")
}

/// Sends `RTM_NEWLINK` for interface 1 with `IFF_UP` set and meant.
fn bring_loopback_up() -> io::Result<()> {
    const RTM_NEWLINK: u16 = 16;
    const NLM_F_REQUEST: u16 = 1;
    const IFF_UP: u32 = 1;
    let mut message = Vec::new();
    message.extend(32_u32.to_ne_bytes());
    message.extend(RTM_NEWLINK.to_ne_bytes());
    message.extend(NLM_F_REQUEST.to_ne_bytes());
    message.extend([0; 8]); // sequence number, port
    message.extend([0; 4]); // family, padding, device type
    message.extend(1_i32.to_ne_bytes()); // lo is always the first interface
    message.extend(IFF_UP.to_ne_bytes()); // flags
    message.extend(IFF_UP.to_ne_bytes()); // which of the flags are meant
    let socket = socket_with(
        AddressFamily::NETLINK,
        SocketType::RAW,
        SocketFlags::CLOEXEC,
        None, // NETLINK_ROUTE is 0
    )?;
    // The kernel has acted on it before this returns.
    send(&socket, &message, SendFlags::empty())?;
    let flags = fs::read_to_string("/sys/class/net/lo/flags")?;
    let up = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16)
        .is_ok_and(|flags| flags & IFF_UP != 0);
    if up {
        Ok(())
    } else {
        Err(io::Error::other(format!(
            "its flags stayed {}",
            flags.trim()
        )))
    }
}

/// The report port in raw mode: a terminal would turn each `\n` into `\r\n`.
fn open_report() -> Result<File> {
    let port = File::options()
        .read(true)
        .write(true)
        .open(REPORT_PORT)
        .with_context(|| format!("cannot open {REPORT_PORT}"))?;
    let mut settings = tcgetattr(&port)?;
    settings.make_raw();
    tcsetattr(&port, OptionalActions::Now, &settings)?;
    Ok(port)
}

fn load_modules() -> Result<()> {
    for path in split_strings(&fs::read(MODULES_FILE).unwrap_or_default()) {
        let path = Path::new(OsStr::from_bytes(path));
        let file = File::open(path).with_context(|| format!("no {}", path.display()))?;
        match finit_module(&file, c"", 0) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => bail!("cannot load {}: {error}", path.display()),
        }
    }
    Ok(())
}

/// Collects every process that ends, orphans too, until the command does.
fn reap_until(command: u32) -> u8 {
    loop {
        match wait(WaitOptions::empty()) {
            Ok(Some((pid, status))) if pid.as_raw_pid().cast_unsigned() == command => {
                return exit_status(status);
            }
            Ok(_) | Err(Errno::INTR) => {}
            // Not reached: the command is a child until it is waited for.
            Err(_) => return u8::MAX,
        }
    }
}

/// As a shell has it: a signal's number counts from 128.
fn exit_status(status: WaitStatus) -> u8 {
    let number = status
        .exit_status()
        .or_else(|| status.terminating_signal().map(|signal| signal + 128));
    number
        .and_then(|number| u8::try_from(number).ok())
        .unwrap_or(u8::MAX)
}

/// Passes on what the command writes until it has ended and all is passed on.
/// What it left running in the background is not waited for.
fn forward(report: &mut File, mut pipes: [PipeReader; 2], mut ended: PipeReader) -> Result<u8> {
    for pipe in &pipes {
        fcntl_setfl(pipe, fcntl_getfl(pipe)? | OFlags::NONBLOCK)?;
    }
    let kinds = [Frame::Stdout, Frame::Stderr];
    let mut open = [true; 2];
    let mut buffer = vec![0; PIPE_CAPACITY];
    loop {
        let has_ended = {
            let mut polled = vec![PollFd::new(&ended, PollFlags::IN)];
            for (pipe, _) in pipes.iter().zip(open).filter(|(_, open)| *open) {
                polled.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
            }
            match poll(&mut polled, None) {
                Err(Errno::INTR) => continue,
                polled => polled?,
            };
            !polled[0].revents().is_empty()
        };
        // The end was seen before these reads, and a read empties a full pipe:
        // all that the command itself wrote is in them.
        for ((pipe, open), kind) in pipes.iter_mut().zip(&mut open).zip(kinds) {
            if *open {
                match pipe.read(&mut buffer) {
                    Ok(0) => *open = false,
                    Ok(length) => report.write_all(&kind(buffer[..length].to_vec()).encode())?,
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error).context("cannot read the command's output"),
                }
            }
        }
        if has_ended {
            let mut status = [0];
            ended.read_exact(&mut status)?;
            return Ok(status[0]);
        }
    }
}
