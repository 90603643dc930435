//! The words of the eBPF side, through aya-log.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use aya_log::EbpfLogger;
use log::Log;
use thiserror::Error;

/// Why the eBPF side cannot be heard.
#[derive(Debug, Error)]
#[error("the eBPF side's log cannot be read: {0}; it needs CAP_SYS_ADMIN and a kernel since 5.8")]
pub struct LogError(#[from] aya_log::Error);

/// Diagnostics of the eBPF side, for example a hit at an address that belongs
/// to no registered function. Readable (poll the descriptor) when there are any.
pub struct EbpfLog<T>(EbpfLogger<T>);

impl<T: Log> EbpfLog<T> {
    /// Reads what the loaded program `id` writes and hands it to `logger`.
    pub(crate) fn of_program(id: u32, logger: T) -> Result<Self, LogError> {
        Ok(Self(EbpfLogger::init_from_id_with_logger(id, logger)?))
    }

    /// Hands all that is waiting to the logger.
    pub fn flush(&mut self) {
        self.0.flush();
    }
}

impl<T> AsFd for EbpfLog<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T> AsRawFd for EbpfLog<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
