//! One benchmark at a time.

use std::{
    io,
    os::{
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixListener},
    },
};

/// Keeps other benchmarks on this machine from starting until it is dropped:
/// two at once would measure each other.
///
/// It is an abstract socket address (unix(7)), which one process holds at a
/// time, whoever it belongs to. The kernel gives it up when that process ends,
/// however it ends, and there is no file to be left behind or in the way.
/// Containers with networks of their own do not see each other's.
#[derive(Debug)]
pub struct Lock {
    _socket: UnixListener,
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process has it.
    #[error("another benchmark runs, and both would measure each other; wait until it ends")]
    Held,
    /// A system call failed in another way.
    #[error(
        "{call} for the abstract socket @{ADDRESS}, which keeps benchmarks apart, failed; \
         allow Unix sockets in this container or sandbox"
    )]
    Socket {
        /// The system call.
        call: &'static str,
        /// The errno.
        source: io::Error,
    },
}

const ADDRESS: &str = "ksyms-attach/bench";

impl Lock {
    /// Takes the lock, at once or not at all.
    ///
    /// # Errors
    ///
    /// [`LockError::Held`] when another benchmark runs.
    pub fn take() -> Result<Self, LockError> {
        Self::take_at(ADDRESS)
    }

    fn take_at(address: &str) -> Result<Self, LockError> {
        let fail = |source: io::Error| LockError::Socket {
            call: "bind",
            source,
        };
        let address = SocketAddr::from_abstract_name(address).map_err(fail)?;
        match UnixListener::bind_addr(&address) {
            Ok(socket) => Ok(Self { _socket: socket }),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(LockError::Held),
            Err(error) => Err(fail(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let address = format!("ksyms-attach/bench/test/{}", std::process::id());
        let lock = Lock::take_at(&address).unwrap();
        assert!(matches!(Lock::take_at(&address), Err(LockError::Held)));
        drop(lock);
        Lock::take_at(&address).unwrap();
        let too_long = "x".repeat(200);
        assert!(matches!(
            Lock::take_at(&too_long),
            Err(LockError::Socket { .. })
        ));
    }
}
