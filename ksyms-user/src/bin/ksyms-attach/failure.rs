//! How the program can fail, and the exit code of each.

use std::{error::Error, fmt, io, process::ExitCode};

use ksyms::{
    attach::AttachError,
    bench::{LockError, ResolveError},
    kallsyms::TableError,
    select::PatternError,
    source::SourceError,
};

#[derive(Debug)]
pub(crate) enum Failure {
    /// What was asked is not understood, or means nothing here.
    Usage(String),
    /// The patterns match no function that could be attached.
    NoMatch(String),
    /// This machine or this user cannot.
    Environment(String),
    /// It went wrong on the way.
    Running(String),
    /// A second signal did not wait for the end.
    Interrupted,
    /// stdout does not take the result.
    Output(io::Error),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::Running(_) | Self::Interrupted | Self::Output(_) => 1,
            Self::Usage(_) | Self::NoMatch(_) => 2,
            Self::Environment(_) => 3,
        })
    }

    fn of(error: &impl Error, environment: bool) -> Self {
        let text = chain(error);
        if environment {
            Self::Environment(text)
        } else {
            Self::Running(text)
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(text)
            | Self::NoMatch(text)
            | Self::Environment(text)
            | Self::Running(text) => f.write_str(text),
            Self::Interrupted => {
                f.write_str("interrupted again: leaving; the kernel takes off what is left")
            }
            Self::Output(error) => write!(
                f,
                "writing the result to stdout failed: {error}; is the disk full?"
            ),
        }
    }
}

/// An error with its causes, each said once.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text} ({cause_text})");
        }
        source = cause.source();
    }
    text
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Self::of(&error, error.is_environment())
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        Self::of(&error, error.is_environment())
    }
}

impl From<LockError> for Failure {
    fn from(error: LockError) -> Self {
        Self::of(&error, false)
    }
}

impl From<TableError> for Failure {
    fn from(error: TableError) -> Self {
        Self::of(&error, false)
    }
}

impl From<ResolveError> for Failure {
    fn from(error: ResolveError) -> Self {
        Self::of(&error, false)
    }
}

impl From<PatternError> for Failure {
    fn from(error: PatternError) -> Self {
        Self::Usage(chain(&error))
    }
}
