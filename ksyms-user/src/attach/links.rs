//! What is armed, by file descriptors.

use std::{
    mem,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    sync::Mutex,
    thread,
};

/// How many threads arm or take off one by one at the same time, at most. What
/// they do between their waits the kernel does in turn, so more are of no use.
pub(super) const WORKERS: usize = 16;

/// Links, or perf events with a program. Dropping takes off what they armed, by
/// several threads where there are several, as the kernel waits for each.
#[derive(Debug, Default)]
pub(super) struct Links(Vec<OwnedFd>);

impl Links {
    pub(super) fn push(&mut self, link: OwnedFd) {
        self.0.push(link);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.0.iter().map(|link| link.as_fd())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        let others = self.0.len().min(WORKERS).saturating_sub(1);
        let links = Mutex::new(mem::take(&mut self.0));
        let work = || {
            // Closed when the lock is free again.
            let take = || links.lock().ok()?.pop();
            while let Some(link) = take() {
                drop(link);
            }
        };
        thread::scope(|scope| {
            for _ in 0..others {
                // Where no thread can be had, those there are do its share.
                if thread::Builder::new().spawn_scoped(scope, work).is_err() {
                    break;
                }
            }
            work();
        });
    }
}
