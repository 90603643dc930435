//! SIGINT, SIGTERM and SIGHUP end counting the first time, and us the second.

use std::fs;

use rustix::process::Signal;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::watch,
    task::spawn_blocking,
};

use crate::failure::Failure;

/// Counts the signals that tell us to stop.
#[derive(Debug, Clone)]
pub(crate) struct Stop(watch::Receiver<u32>);

impl Stop {
    /// Listens from now on. What was ignored when we were started (nohup, a
    /// background job of a script) stays ignored.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let ignored = ignored_signals();
        let (sender, receiver) = watch::channel(0);
        for kind in [Signal::INT, Signal::TERM, Signal::HUP] {
            if ignored & mask(kind) != 0 {
                continue;
            }
            let mut signals = signal(SignalKind::from_raw(kind.as_raw())).map_err(|error| {
                Failure::Running(format!("listening for signals failed: {error}"))
            })?;
            let sender = sender.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    sender.send_modify(|count| *count += 1);
                }
            });
        }
        // Keeps the channel open when every signal is ignored.
        tokio::spawn(async move { sender.closed().await });
        Ok(Self(receiver))
    }

    /// Waits for the first signal, which may have come already.
    pub(crate) async fn wait(&mut self) {
        self.reaches(1).await;
    }

    /// Runs what may take long, and leaves it when as many signals have come in
    /// all; the work itself goes on until the process ends.
    pub(crate) async fn unless<T: Send + 'static>(
        &mut self,
        limit: u32,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        tokio::select! {
            done = spawn_blocking(work) => done.map_err(|error| {
                Failure::Running(format!("a thread failed: {error}"))
            }),
            () = self.reaches(limit) => Err(Failure::Interrupted),
        }
    }

    /// How many signals have come.
    pub(crate) fn count(&self) -> u32 {
        *self.0.borrow()
    }

    async fn reaches(&mut self, limit: u32) {
        // The sender lives as long as the runtime.
        let _ = self.0.wait_for(|count| *count >= limit).await;
    }
}

fn mask(signal: Signal) -> u64 {
    1 << (signal.as_raw() - 1)
}

/// The signals that are ignored, a bit each from the lowest on (proc(5)).
fn ignored_signals() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| sigign(&status))
        .unwrap_or(0)
}

fn sigign(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    u64::from_str_radix(line.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_found_in_the_status() {
        let status = "Name:\tx\nSigBlk:\t0000000000000002\nSigIgn:\t0000000000001001\n";
        let ignored = sigign(status).unwrap();
        assert_ne!(ignored & mask(Signal::HUP), 0);
        assert_eq!(ignored & mask(Signal::INT), 0);
        assert_eq!(sigign("Name:\tx\n"), None);
    }
}
