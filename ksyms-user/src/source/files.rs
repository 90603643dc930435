//! Files of the kernel's own file systems, mounted or not.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::{
        Arc,
        mpsc::{Receiver, sync_channel},
    },
    thread,
};

use rustix::{
    fs::{CWD, Mode, OFlags, fstatfs, openat},
    io::Errno,
    mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen},
};

use super::{
    SourceError,
    lockdown::{Lockdown, lockdown},
};
use crate::kallsyms::{Feed, Lines};

/// More than any symbol table: the largest kernels with all their modules come
/// to 30 MB. Keeps `/dev/zero` from filling the memory.
pub(super) const MAX_TEXT_BYTES: usize = 256 << 20;

/// More than any line: names have up to 65,535 bytes.
const MAX_LINE_BYTES: usize = 128 << 10;

const NO_TRACING: &str = "use one with CONFIG_FTRACE and CONFIG_DYNAMIC_FTRACE";

/// A system call on a file that failed, before it is asked why.
pub(super) struct Failure {
    pub(super) call: &'static str,
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

impl Failure {
    pub(super) fn new(
        call: &'static str,
        path: impl Into<PathBuf>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self {
            call,
            path: path.into(),
            source: source.into(),
        }
    }

    pub(super) fn errno(&self) -> Option<Errno> {
        self.source.raw_os_error().map(Errno::from_raw_os_error)
    }

    /// Whether the kernel does not have the file or the file system.
    pub(super) fn is_absent(&self) -> bool {
        matches!(
            self.errno(),
            Some(Errno::NOENT | Errno::NODEV | Errno::NOSYS)
        )
    }
}

/// A file system of which the kernel has one instance, wherever it is mounted.
pub(super) struct Filesystem {
    /// The type, as mount(8) has it.
    name: &'static str,
    /// What statfs(2) says of it (include/uapi/linux/magic.h).
    magic: u64,
    /// Where it is found.
    mountpoints: &'static [&'static str],
}

impl Filesystem {
    pub(super) const TRACEFS: Self = Self {
        name: "tracefs",
        magic: 0x7472_6163,
        // The second mounts itself when it is looked at, on kernels with
        // CONFIG_TRACEFS_AUTOMOUNT_DEPRECATED and on all before 6.17.
        mountpoints: &["/sys/kernel/tracing", "/sys/kernel/debug/tracing"],
    };
    pub(super) const DEBUGFS: Self = Self {
        name: "debugfs",
        magic: 0x6462_6720,
        mountpoints: &["/sys/kernel/debug"],
    };
    pub(super) const SECURITYFS: Self = Self {
        name: "securityfs",
        magic: 0x7363_6673,
        mountpoints: &["/sys/kernel/security"],
    };

    /// Opens its root directory: where it is mounted, or else in a mount of our
    /// own.
    pub(super) fn open(&self) -> Result<Mount, Failure> {
        self.mounted().transpose().unwrap_or_else(|| self.mount())
    }

    /// Opens its root directory where it is mounted, if it is.
    fn mounted(&self) -> Result<Option<Mount>, Failure> {
        for path in self.mountpoints {
            match openat(
                CWD,
                *path,
                OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
                Mode::empty(),
            ) {
                Ok(dir) if self.is_root(&dir) => {
                    return Ok(Some(Mount {
                        dir,
                        path: path.into(),
                        private: false,
                    }));
                }
                // An empty directory, for it to be mounted on, or none.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(Failure::new("open", *path, errno)),
            }
        }
        Ok(None)
    }

    fn is_root(&self, dir: &OwnedFd) -> bool {
        fstatfs(dir).is_ok_and(|stat| u64::try_from(stat.f_type) == Ok(self.magic))
    }

    /// Mounts it at no directory. No other process sees that, and it ends when
    /// the last of its file descriptors is closed (kernel 5.2).
    fn mount(&self) -> Result<Mount, Failure> {
        let fail = |call| move |errno: Errno| Failure::new(call, self.name, errno);
        let context = fsopen(self.name, FsOpenFlags::FSOPEN_CLOEXEC).map_err(fail("fsopen"))?;
        fsconfig_create(&context).map_err(fail("fsconfig"))?;
        let dir = fsmount(
            &context,
            FsMountFlags::FSMOUNT_CLOEXEC,
            MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC,
        )
        .map_err(fail("fsmount"))?;
        Ok(Mount {
            dir,
            path: self.name.into(),
            private: true,
        })
    }
}

/// The root directory of a mounted [`Filesystem`].
#[derive(Debug)]
pub(super) struct Mount {
    dir: OwnedFd,
    /// The mount point, or the type's name for a mount of our own.
    path: PathBuf,
    private: bool,
}

impl Mount {
    pub(super) fn open_file(&self, name: &Path, flags: OFlags) -> Result<File, Failure> {
        openat(&self.dir, name, flags | OFlags::CLOEXEC, Mode::empty())
            .map(File::from)
            .map_err(|errno| Failure::new("open", self.path.join(name), errno))
    }

    pub(super) fn read(&self, name: &Path) -> Result<Vec<u8>, Failure> {
        let mut text = Vec::new();
        self.open_file(name, OFlags::RDONLY)?
            .read_to_end(&mut text)
            .map_err(|source| Failure::new("read", self.path.join(name), source))?;
        Ok(text)
    }

    pub(super) fn path(&self, name: &Path) -> PathBuf {
        self.path.join(name)
    }
}

/// Parses `file` while it is read, which spares its text the way out of the
/// CPU's caches and back.
pub(super) fn parse_lines<P: Lines>(
    mut file: impl Read,
    path: &Path,
    lines: P,
) -> Result<P, SourceError> {
    let malformed = |source| SourceError::Malformed {
        path: path.into(),
        source,
    };
    let mut feed = Feed::new(lines);
    let mut buffer = vec![0; MAX_LINE_BYTES];
    // How much of it waits for the rest of its line.
    let mut rest = 0;
    let mut total = 0;
    loop {
        let read = match file.read(&mut buffer[rest..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            result => result.map_err(SourceError::io("read", path))?,
        };
        total += read;
        if total > MAX_TEXT_BYTES {
            return Err(SourceError::TooLarge {
                path: path.into(),
                limit: MAX_TEXT_BYTES,
            });
        }
        let text = &buffer[..rest + read];
        let Some(end) = feed.feed(text).map_err(malformed)? else {
            return Ok(feed.into_parser());
        };
        // At the end of the file, or if this is no line.
        if read == 0 || text.len() - end == buffer.len() {
            return feed.finish(&text[end..]).map_err(malformed);
        }
        rest = text.len() - end;
        let text = end..text.len();
        buffer.copy_within(text, 0);
    }
}

/// Reads a file on a thread of its own, ahead of who asks for it: for files that
/// the kernel takes long to make up, while which their text can be parsed.
pub(super) struct Ahead {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: io::Cursor<Vec<u8>>,
}

impl Ahead {
    /// Enough for the thread not to wait, and to be told soon that no more is
    /// wanted.
    const PIECES: usize = 16;
    const PIECE_BYTES: usize = 64 << 10;

    /// Begins to read. Where there can be no more threads, the file is read when
    /// it is asked for.
    pub(super) fn read(file: File) -> Box<dyn Read> {
        let file = Arc::new(file);
        let (sender, pieces) = sync_channel(Self::PIECES);
        let ahead = file.clone();
        let reader = move || {
            loop {
                let mut piece = Vec::with_capacity(Self::PIECE_BYTES);
                let read = (&*ahead)
                    .take(Self::PIECE_BYTES as u64)
                    .read_to_end(&mut piece);
                let piece = match read {
                    Ok(0) => return,
                    Ok(_) => Ok(piece),
                    Err(error) => Err(error),
                };
                // Nobody waits for it when what was wanted has come.
                if sender.send(piece).is_err() {
                    return;
                }
            }
        };
        match thread::Builder::new().spawn(reader) {
            Ok(_) => Box::new(Self {
                pieces,
                piece: io::Cursor::default(),
            }),
            Err(_) => Box::new(file),
        }
    }
}

impl Read for Ahead {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.piece.read(into)?;
        if read > 0 || into.is_empty() {
            return Ok(read);
        }
        match self.pieces.recv() {
            Ok(piece) => {
                self.piece = io::Cursor::new(piece?);
                self.piece.read(into)
            }
            // The thread is at the end of the file.
            Err(_) => Ok(0),
        }
    }
}

/// tracefs, where ftrace and trace events are controlled.
///
/// File names are relative to its root: `available_filter_functions`,
/// `events/kprobes/enable`.
#[derive(Debug)]
pub struct Tracefs(Mount);

impl Tracefs {
    /// Opens tracefs where it is mounted: /sys/kernel/tracing or
    /// /sys/kernel/debug/tracing. When it is not, mounts it for this process
    /// alone, at no directory; that needs `CAP_SYS_ADMIN` and kernel 5.2.
    ///
    /// # Errors
    ///
    /// [`SourceError::NotPermitted`], [`SourceError::LockedDown`], or
    /// [`SourceError::Unavailable`] for a kernel without `CONFIG_TRACING`.
    pub fn open() -> Result<Self, SourceError> {
        let mounted = match Filesystem::TRACEFS.mounted() {
            Ok(Some(mount)) => Ok(mount),
            // The kernel makes no files in it then, and nothing else holds it:
            // closing our mount would unmount it for good, a path on which
            // kernels have crashed (6.12, tracefs_destroy_inode()).
            Ok(None) if lockdown() == Some(Lockdown::Confidentiality) => {
                return Err(SourceError::LockedDown {
                    call: "mount",
                    path: Filesystem::TRACEFS.name.into(),
                    level: Some(Lockdown::Confidentiality),
                    source: None,
                });
            }
            Ok(None) => Filesystem::TRACEFS.mount(),
            Err(failure) => Err(failure),
        };
        let tracefs = mounted.map_err(|failure| match failure.errno() {
            Some(Errno::NODEV) => SourceError::unavailable(failure, NO_TRACING),
            Some(Errno::NOSYS) => SourceError::unavailable(
                failure,
                "run `mount -t tracefs tracefs /sys/kernel/tracing`",
            ),
            _ => SourceError::kernel(failure),
        })?;
        // Every tracefs has this file, but one that was made under lockdown,
        // which has none (fs/tracefs/inode.c, tracefs_create_file()).
        match tracefs.open_file("README".as_ref(), OFlags::PATH) {
            Err(failure) if failure.errno() == Some(Errno::NOENT) => {
                Err(SourceError::missing(failure, NO_TRACING))
            }
            _ => Ok(Self(tracefs)),
        }
    }

    /// Whether this is a mount of our own, so that a user who looks into
    /// /sys/kernel/tracing finds nothing there.
    #[must_use]
    pub const fn is_private(&self) -> bool {
        self.0.private
    }

    /// Where `name` is, for messages: `/sys/kernel/tracing/NAME`, or
    /// `tracefs/NAME` for a mount of our own.
    #[must_use]
    pub fn path(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.path(name.as_ref())
    }

    /// Opens a file, closed on exec. Nothing is ever created.
    ///
    /// # Errors
    ///
    /// [`SourceError::NotPermitted`], [`SourceError::LockedDown`], or
    /// [`SourceError::Io`] with what open(2) says.
    pub fn open_file(&self, name: impl AsRef<Path>, flags: OFlags) -> Result<File, SourceError> {
        self.0
            .open_file(name.as_ref(), flags)
            .map_err(SourceError::kernel)
    }

    /// Opens a file to be read; `None` when there is none of that name.
    pub(super) fn open_if_exists(&self, name: &str) -> Result<Option<File>, SourceError> {
        match self.open_file(name, OFlags::RDONLY) {
            Ok(file) => Ok(Some(file)),
            Err(SourceError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads a whole file.
    ///
    /// # Errors
    ///
    /// As for [`Tracefs::open_file`], or with what read(2) says.
    pub fn read(&self, name: impl AsRef<Path>) -> Result<Vec<u8>, SourceError> {
        self.0.read(name.as_ref()).map_err(SourceError::kernel)
    }
}
