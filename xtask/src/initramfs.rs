//! Writes an initramfs: a cpio archive in the "newc" format, which the kernel
//! unpacks into its first root file system (kernel docs:
//! driver-api/early-userspace/buffer-format).

use std::{
    collections::BTreeSet,
    io::{self, Write},
    os::unix::ffi::OsStrExt as _,
    path::Path,
};

const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const CHARACTER_DEVICE: u32 = 0o020_600;

/// An archive on its way to `out`.
#[derive(Debug)]
pub(crate) struct Initramfs<W> {
    out: W,
    entries: u32,
    directories: BTreeSet<Vec<u8>>,
}

impl<W: Write> Initramfs<W> {
    pub(crate) fn new(out: W) -> Self {
        Self {
            out,
            entries: 0,
            directories: BTreeSet::new(),
        }
    }

    /// Adds a directory and those it is in.
    pub(crate) fn directory(&mut self, path: impl AsRef<Path>) -> io::Result<()> {
        let path = path.as_ref();
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        let name = name(path);
        if name.is_empty() || !self.directories.insert(name.to_vec()) {
            return Ok(());
        }
        self.entry(name, DIRECTORY, &[], (0, 0))
    }

    /// Adds a file that anyone can read and execute.
    pub(crate) fn file(&mut self, path: impl AsRef<Path>, content: &[u8]) -> io::Result<()> {
        self.leaf(path.as_ref(), EXECUTABLE, content, (0, 0))
    }

    /// Adds a character device with its major and minor number.
    pub(crate) fn device(&mut self, path: impl AsRef<Path>, number: (u32, u32)) -> io::Result<()> {
        self.leaf(path.as_ref(), CHARACTER_DEVICE, &[], number)
    }

    /// Ends the archive.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.entry(b"TRAILER!!!", 0, &[], (0, 0))?;
        Ok(self.out)
    }

    fn leaf(
        &mut self,
        path: &Path,
        mode: u32,
        content: &[u8],
        number: (u32, u32),
    ) -> io::Result<()> {
        if let Some(parent) = path.parent() {
            self.directory(parent)?;
        }
        self.entry(name(path), mode, content, number)
    }

    fn entry(
        &mut self,
        name: &[u8],
        mode: u32,
        content: &[u8],
        (major, minor): (u32, u32),
    ) -> io::Result<()> {
        let too_long =
            |_| io::Error::new(io::ErrorKind::FileTooLarge, "cpio holds files below 4 GiB");
        let size = u32::try_from(content.len()).map_err(too_long)?;
        let name_size = u32::try_from(name.len() + 1).map_err(too_long)?;
        self.entries += 1;
        let fields = [
            self.entries, // inode
            mode,
            0, // owner
            0, // group
            1, // links
            0, // modification time
            size,
            0, // major and minor of the device it is on
            0,
            major,
            minor,
            name_size,
            0, // no checksum in this format
        ];
        let mut header = b"070701".to_vec();
        for field in fields {
            write!(header, "{field:08x}")?;
        }
        header.extend_from_slice(name);
        header.push(0);
        // Header with name, and content: each filled up to a multiple of 4.
        header.resize(header.len().next_multiple_of(4), 0);
        self.out.write_all(&header)?;
        self.out.write_all(content)?;
        let padding = content.len().next_multiple_of(4) - content.len();
        self.out.write_all(&[0; 3][..padding])
    }
}

/// Names in the archive have no slash in front.
fn name(path: &Path) -> &[u8] {
    let name = path.as_os_str().as_bytes();
    name.strip_prefix(b"/").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn sample() -> Vec<u8> {
        let mut archive = Initramfs::new(Vec::new());
        archive.file("/init", b"#!x\n1").unwrap();
        archive.device("/dev/console", (5, 1)).unwrap();
        archive.file("/etc/a/b", b"").unwrap();
        archive.directory("/etc/a").unwrap();
        archive.finish().unwrap()
    }

    #[test]
    fn the_bytes_are_those_of_the_format() {
        let mut archive = Initramfs::new(Vec::new());
        archive.device("dev/tty", (5, 1)).unwrap();
        archive.file("init", b"12345").unwrap();
        let entries = [
            // inode, mode, owner and group, links, time, size, device it is on, device it is, name
            "070701 00000001 000041ed 00000000 00000000 00000001 00000000 00000000 \
             00000000 00000000 00000000 00000000 00000004 00000000 dev~~~",
            "070701 00000002 00002180 00000000 00000000 00000001 00000000 00000000 \
             00000000 00000000 00000005 00000001 00000008 00000000 dev/tty~~~",
            "070701 00000003 000081ed 00000000 00000000 00000001 00000000 00000005 \
             00000000 00000000 00000000 00000000 00000005 00000000 init~~12345~~~",
            "070701 00000004 00000000 00000000 00000000 00000001 00000000 00000000 \
             00000000 00000000 00000000 00000000 0000000b 00000000 TRAILER!!!~~~~",
        ];
        let expected = entries.concat().replace(' ', "").replace('~', "\0");
        assert_eq!(
            String::from_utf8(archive.finish().unwrap()).unwrap(),
            expected
        );
    }

    #[test]
    fn cpio_reads_it() {
        let Ok(mut cpio) = Command::new("cpio")
            .args(["--list", "--quiet"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
        else {
            return; // cpio is not installed everywhere
        };
        cpio.stdin.take().unwrap().write_all(&sample()).unwrap();
        let listed = cpio.wait_with_output().unwrap();
        assert!(listed.status.success());
        assert_eq!(
            String::from_utf8(listed.stdout).unwrap(),
            "init\ndev\ndev/console\netc\netc/a\netc/a/b\n"
        );
    }
}
