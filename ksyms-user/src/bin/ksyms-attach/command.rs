//! COMMAND: found before anything is attached, run while counting, and not left
//! behind.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs, io,
    os::{fd::AsFd as _, unix::fs::PermissionsExt as _},
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    process::{Child, Command},
    time::timeout,
};

use crate::{
    failure::Failure,
    terminal::{Talk, say},
};

/// How long COMMAND may take to end after it was told to.
const GRACE: Duration = Duration::from_secs(2);

/// Checks that COMMAND can be run, as far as that can be seen.
pub(crate) fn check(command: &[OsString]) -> Result<(), Failure> {
    let Some(program) = command.first() else {
        return Ok(());
    };
    let found = if program.as_encoded_bytes().contains(&b'/') {
        is_executable(Path::new(program))
    } else {
        env::split_paths(&env::var_os("PATH").unwrap_or_default())
            .any(|folder| is_executable(&folder.join(program)))
    };
    if found {
        Ok(())
    } else {
        Err(Failure::Usage(format!(
            "COMMAND {} is not found or not executable; nothing was attached",
            program.display()
        )))
    }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|data| data.is_file() && data.permissions().mode() & 0o111 != 0)
}

/// COMMAND while it runs.
pub(crate) struct Running {
    name: OsString,
    child: Child,
}

impl Running {
    /// Starts it. Its stdout becomes our stderr: our stdout is data.
    pub(crate) fn start(command: &[OsString]) -> Result<Option<Self>, Failure> {
        let Some((program, arguments)) = command.split_first() else {
            return Ok(None);
        };
        let child = io::stderr()
            .as_fd()
            .try_clone_to_owned()
            .and_then(|stderr| {
                Command::new(program)
                    .args(arguments)
                    .stdout(Stdio::from(stderr))
                    .kill_on_drop(true)
                    .spawn()
            })
            .map_err(|error| {
                Failure::Running(format!("running {} failed: {error}", program.display()))
            })?;
        Ok(Some(Self {
            name: program.clone(),
            child,
        }))
    }

    /// Waits until it ends.
    pub(crate) async fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends it if it still runs, and says how it ended unless that was well.
    pub(crate) async fn finish(mut self, talk: Talk) {
        let status = match self.child.try_wait() {
            Ok(Some(status)) => Ok(status),
            Err(error) => Err(error),
            Ok(None) => {
                talk.explain(&format!("ending {}", self.name.display()));
                self.end().await
            }
        };
        report(&self.name, status);
    }

    async fn end(&mut self) -> io::Result<ExitStatus> {
        let pid = self.child.id().and_then(|id| id.try_into().ok());
        if let Some(pid) = pid.and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM)?;
        }
        if let Ok(status) = timeout(GRACE, self.child.wait()).await {
            return status;
        }
        self.child.kill().await?;
        self.child.wait().await
    }
}

fn report(name: &OsStr, status: io::Result<ExitStatus>) {
    match status {
        Ok(status) if status.success() => {}
        Ok(status) => say(&format!("{}: {status}", name.display())),
        Err(error) => say(&format!("waiting for {} failed: {error}", name.display())),
    }
}
