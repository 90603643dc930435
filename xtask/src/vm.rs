//! A virtual machine that boots, runs one command and ends.

mod accel;
mod console;

use std::{
    ffi::OsString,
    fs::{self, File},
    io::{self, BufWriter, Read, Write as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result};
use rustix::fs::{MemfdFlags, memfd_create};
use xtask::{COMMAND_FILE, Decoder, ENVIRONMENT_FILE, Frame, MODULES_FILE, SETTLE, join_strings};

pub(crate) use self::{accel::Accel, console::Console};
use crate::{
    artifacts::Guest,
    initramfs::Initramfs,
    kernels::Kernel,
    modules,
    setup::Setup,
    workspace::{find_program, is_root},
};

/// How long a guest that has reported may take to power off.
const POWER_OFF: Duration = Duration::from_secs(10);
/// How long a guest that panicked may take to reboot, which ends it.
const PANIC: Duration = Duration::from_secs(3);
/// The end of the console that a failure shows.
const TAIL: usize = 40;

/// A file of the host to be found in the guest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AddedFile {
    pub(crate) host: PathBuf,
    pub(crate) guest: PathBuf,
}

/// The processors and the clock of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Processors {
    /// So many, in real time.
    Many(u32),
    /// One, emulated, whose clock counts its instructions: one is 1 ns. Waits
    /// take no real time, and the same work takes the same time each time.
    Counted,
}

/// A virtual machine.
#[derive(Clone, Debug)]
pub(crate) struct Vm {
    pub(crate) kernel: Kernel,
    pub(crate) processors: Processors,
    pub(crate) accel: Accel,
    pub(crate) memory_mib: u32,
    /// More of the kernel's command line.
    pub(crate) append: Vec<String>,
    /// Modules to load before the command.
    pub(crate) modules: Vec<String>,
    pub(crate) files: Vec<AddedFile>,
    /// More of the command's environment.
    pub(crate) environment: Vec<(String, String)>,
    /// The longest that it may take in all, in real time.
    pub(crate) limit: Duration,
    /// Show the console on standard error as it comes.
    pub(crate) echo_console: bool,
}

/// Which of the command's outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The command's exit status; 128 and the signal when it died of one.
    pub(crate) status: u8,
    pub(crate) console: Console,
    /// From the start to the start of the command.
    pub(crate) boot: Duration,
    /// From the start to the end of the machine.
    pub(crate) total: Duration,
}

/// The machine failed, so nothing can be said about the command.
#[derive(Debug, thiserror::Error)]
#[error("the VM with kernel {kernel} failed: {reason}\nThe end of its console:\n{tail}")]
pub(crate) struct Failure {
    kernel: String,
    reason: String,
    tail: String,
}

impl Vm {
    /// The machine that is used where nothing else is said.
    pub(crate) fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            processors: Processors::Many(2),
            accel: Accel::Auto,
            memory_mib: 2048,
            append: Vec::new(),
            modules: Vec::new(),
            files: Vec::new(),
            environment: Vec::new(),
            limit: Duration::from_mins(5),
            echo_console: false,
        }
    }

    /// Boots, runs `command` and hands `sink` what it writes as it comes.
    ///
    /// # Errors
    ///
    /// [`Failure`] when the machine fails; another error when it could not be
    /// started or the sink gave one.
    pub(crate) fn run(
        &self,
        setup: &Setup,
        guest: &Guest,
        command: &[OsString],
        sink: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<Outcome> {
        let qemu = setup.qemu()?;
        let accel = self.effective_accel(setup, guest)?;
        let initramfs = self.initramfs(guest, command)?;
        let start = Instant::now();
        let process = self.qemu(&qemu, accel, initramfs)?;
        self.watch(process, start, sink)
    }

    /// What will run the guest's instructions, never [`Accel::Auto`].
    pub(crate) fn effective_accel(&self, setup: &Setup, guest: &Guest) -> Result<Accel> {
        match (self.processors, self.accel) {
            (Processors::Counted, _) => Ok(Accel::Tcg),
            (_, Accel::Auto) => accel::choose(setup, guest),
            (_, chosen) => Ok(chosen),
        }
    }

    fn initramfs(&self, guest: &Guest, command: &[OsString]) -> Result<File> {
        let modules = modules::resolve(&self.kernel, &self.modules)?;
        let read =
            |file: &Path| fs::read(file).with_context(|| format!("cannot read {}", file.display()));
        // In memory: nothing to remove, however we end.
        let file = File::from(memfd_create("initramfs", MemfdFlags::CLOEXEC)?);
        let mut archive = Initramfs::new(BufWriter::new(file));
        for directory in [
            "/proc", "/sys", "/dev", "/tmp", "/run", "/root", "/etc", "/bin",
        ] {
            archive.directory(directory)?;
        }
        // The kernel opens it for the first process before devtmpfs is there.
        archive.device("/dev/console", (5, 1))?;
        archive.file("/init", &read(&guest.init)?)?;
        archive.file("/bin/ksyms-workload", &read(&guest.workload)?)?;
        if let Some(attach) = &guest.attach {
            archive.file("/bin/ksyms-attach", &read(attach)?)?;
        }
        for AddedFile { host, guest } in &self.files {
            archive.file(guest, &read(host)?)?;
        }
        let mut module_paths = Vec::new();
        for module in modules {
            let path = format!("/lib/modules/{}.ko", module.name);
            archive.file(&path, &module.content)?;
            module_paths.push(path);
        }
        let environment = [("PATH", "/bin"), ("HOME", "/root"), ("TMPDIR", "/tmp")]
            .into_iter()
            .chain(
                self.environment
                    .iter()
                    .map(|(name, value)| (name.as_str(), value.as_str())),
            )
            .map(|(name, value)| format!("{name}={value}"));
        archive.file(ENVIRONMENT_FILE, &join_strings(environment))?;
        archive.file(MODULES_FILE, &join_strings(module_paths))?;
        let words = command.iter().map(|word| word.as_encoded_bytes());
        archive.file(COMMAND_FILE, &join_strings(words))?;
        archive
            .finish()?
            .into_inner()
            .map_err(|error| error.into_error().into())
    }

    /// Starts QEMU: its standard output is the guest's report, its standard
    /// error the guest's console and QEMU's own words.
    fn qemu(&self, qemu: &Path, accel: Accel, initramfs: File) -> Result<Process> {
        // Where we are killed, QEMU must not stay.
        let mut command = match find_program("setpriv") {
            Some(setpriv) => {
                let mut command = Command::new(setpriv);
                command.args(["--pdeathsig", "KILL", "--"]).arg(qemu);
                command
            }
            None => Command::new(qemu),
        };
        command
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args(["-machine", "pc", "-cpu", "max"])
            .args(["-m", &format!("{}M", self.memory_mib)]);
        match self.processors {
            Processors::Many(count) => command.args(["-smp", &count.to_string()]),
            Processors::Counted => command.args(["-smp", "1", "-icount", "shift=0,sleep=off"]),
        };
        command.args([
            "-accel",
            match (accel, self.processors) {
                (Accel::Kvm, _) => "kvm",
                (_, Processors::Counted) => "tcg,thread=single",
                _ => "tcg,thread=multi",
            },
        ]);
        command
            .arg("-kernel")
            .arg(&self.kernel.image)
            .args(["-initrd", "/dev/stdin", "-append", &self.kernel_arguments()])
            .args([
                "-chardev",
                "file,id=console,path=/dev/stderr",
                "-serial",
                "chardev:console",
            ])
            .args([
                "-chardev",
                "file,id=report,path=/dev/stdout",
                "-serial",
                "chardev:report",
            ])
            .stdin(initramfs)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = command
            .spawn()
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Process(child))
    }

    fn kernel_arguments(&self) -> String {
        // Warnings and worse are shown; a panic ends the machine at once.
        let fixed = ["console=ttyS0", "loglevel=5", "panic=-1"].map(str::to_owned);
        let settle = (self.processors == Processors::Counted).then(|| SETTLE.to_owned());
        fixed
            .iter()
            .chain(&settle)
            .chain(&self.append)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn watch(
        &self,
        mut process: Process,
        start: Instant,
        sink: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<Outcome> {
        let events = process.events()?;
        let mut console = Console::default();
        let mut decoder = Decoder::default();
        let mut boot = None;
        let mut verdict = None;
        let mut deadline = start + self.limit;
        // The first reason is the one that counts.
        let mut reason: Option<String> = None;
        loop {
            match events.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(Event::Console(bytes)) => {
                    if self.echo_console {
                        // Where standard error is closed nobody wants to see it.
                        let _closed = io::stderr().write_all(&bytes);
                    }
                    if let Some(trouble) = console.push(&bytes)
                        && verdict.is_none()
                    {
                        reason.get_or_insert(trouble);
                        deadline = deadline.min(Instant::now() + PANIC);
                    }
                }
                Ok(Event::Report(bytes)) => {
                    decoder.push(&bytes);
                    loop {
                        match decoder.next_frame() {
                            Ok(None) => break,
                            Ok(Some(Frame::Started)) => boot = Some(start.elapsed()),
                            Ok(Some(Frame::Stdout(bytes))) => sink(Stream::Stdout, &bytes)?,
                            Ok(Some(Frame::Stderr(bytes))) => sink(Stream::Stderr, &bytes)?,
                            Ok(Some(Frame::Exited(status))) => {
                                verdict = Some(status);
                                deadline = deadline.min(Instant::now() + POWER_OFF);
                            }
                            Ok(Some(Frame::Failed(why))) => {
                                reason.get_or_insert(format!("its init says: {why}"));
                                deadline = deadline.min(Instant::now() + POWER_OFF);
                            }
                            Err(error) => {
                                return Err(
                                    self.failure(&format!("its report has {error}"), &console)
                                );
                            }
                        }
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    if verdict.is_none() {
                        reason.get_or_insert_with(|| {
                            let limit = self.limit.as_secs();
                            match boot {
                                None => format!("no sign of life within {limit} s"),
                                Some(_) => format!("the command did not end within {limit} s"),
                            }
                        });
                    }
                    break;
                }
                // Both pipes are closed: QEMU ended.
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(reason) = reason {
            return Err(self.failure(&reason, &console));
        }
        let Some(status) = verdict else {
            return Err(self.failure("it ended without having reported", &console));
        };
        Ok(Outcome {
            status,
            console,
            boot: boot.unwrap_or_default(),
            total: start.elapsed(),
        })
    }

    fn failure(&self, reason: &str, console: &Console) -> anyhow::Error {
        Failure {
            kernel: self.kernel.name.clone(),
            reason: reason.to_owned(),
            tail: console.tail(TAIL),
        }
        .into()
    }
}

enum Event {
    Console(Vec<u8>),
    Report(Vec<u8>),
}

/// A running QEMU, which does not outlive this value.
struct Process(Child);

impl Process {
    /// What comes out of it, until it has ended.
    fn events(&mut self) -> Result<Receiver<Event>> {
        let console = self.0.stderr.take().context("QEMU has no standard error")?;
        let report = self
            .0
            .stdout
            .take()
            .context("QEMU has no standard output")?;
        let (sender, receiver) = channel();
        pump(console, sender.clone(), Event::Console);
        pump(report, sender, Event::Report);
        Ok(receiver)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _waited_already = self.0.wait();
    }
}

/// Sends on what can be read, from a thread of its own.
fn pump(mut pipe: impl Read + Send + 'static, sender: Sender<Event>, event: fn(Vec<u8>) -> Event) {
    // QEMU writes byte by byte. Waking for each costs more than the bytes do.
    const PAUSE: Duration = Duration::from_millis(2);
    thread::spawn(move || {
        let mut buffer = vec![0; 64 << 10];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            if sender.send(event(buffer[..length].to_vec())).is_err() {
                break;
            }
            thread::sleep(PAUSE);
        }
    });
}

/// Whether this user can start QEMU's KVM at all.
fn kvm_is_open() -> bool {
    let opened = File::options().read(true).write(true).open("/dev/kvm");
    opened.is_ok() || (is_root() && Path::new("/dev/kvm").exists())
}
