//! The one error type and its wording. Every variant names the operation it came from; the first line of the text keeps
//! PyTorch's words where people search for them, and what follows says what PyTorch does not. Nothing here knows a tensor.

use crate::callsite::CallSite;
use std::fmt;

/// The result of every fallible operation of the crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong. A variant stands for the Python exception class that PyTorch raises for it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Shapes, autograd rules, memory overlap: PyTorch's `RuntimeError`.
    #[error("{message}{}", Op(op))]
    Runtime {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
    },
    /// A dimension or an index outside its range: `IndexError`.
    #[error("{message}{}", Op(op))]
    Index {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
    },
    /// An argument of the wrong kind: `TypeError`.
    #[error("{message}{}", Op(op))]
    Type {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
    },
    /// An argument of the right kind and a wrong value: `ValueError`.
    #[error("{message}{}", Op(op))]
    Value {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
    },
    /// An operation that has no meaning for the dtype or device seen: `NotImplementedError`.
    #[error("{message}{}", Op(op))]
    NotImplemented {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
    },
    /// Memory that the system would not give: `RuntimeError`, as PyTorch's CPU allocator raises.
    #[error("{op}: not enough memory: you tried to allocate {bytes} bytes.")]
    OutOfMemory {
        /// The operation that asked.
        op: &'static str,
        /// Bytes asked for.
        bytes: usize,
    },
    /// An error with what is known of where it comes from.
    #[error("{error}{}", Behind(call, places))]
    Traced {
        /// What went wrong.
        error: Box<Error>,
        /// The call that the user made, with the shapes and dtypes it was given.
        call: Option<Box<str>>,
        /// What happened where.
        places: Vec<(Box<str>, CallSite)>,
    },
    /// An error while a node computed gradients. Its text is that of what went wrong.
    #[error("{error}")]
    InBackward {
        /// What went wrong.
        error: Box<Error>,
        /// The node's name.
        node: Box<str>,
        /// The line that recorded the node.
        site: CallSite,
    },
    /// An error of the embedding program (a Python exception raised in a hook), carried through unchanged.
    #[error("{0}")]
    Foreign(Box<dyn std::error::Error + Send + Sync>),
}

/// The second line of a message: the operation's name.
struct Op<'a>(&'a &'static str);

impl fmt::Display for Op<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\n[rustgrad op: {}]", self.0) }
    }
}

/// The lines behind a message: the call, then the places that are known.
struct Behind<'a>(&'a Option<Box<str>>, &'a [(Box<str>, CallSite)]);

impl fmt::Display for Behind<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(call) = self.0 {
            write!(f, "\nin the call {call}")?;
        }
        for (what, site) in self.1 {
            if let Some(line) = site.line() {
                write!(f, "\n{what}\n{line}")?;
            }
        }
        Ok(())
    }
}

impl Error {
    /// The error, said to have to do with a place.
    #[cold]
    pub fn at(self, what: impl Into<Box<str>>, site: CallSite) -> Error {
        let (error, call, mut places) = self.into_parts();
        places.push((what.into(), site));
        Error::Traced { error, call, places }
    }

    /// The error, said to come from a call that the user made.
    #[cold]
    pub fn in_call(self, call: impl FnOnce() -> String) -> Error {
        if matches!(self, Error::Foreign(_) | Error::InBackward { .. }) {
            return self;
        }
        let (error, _, places) = self.into_parts();
        Error::Traced { error, call: Some(call().into()), places }
    }

    fn into_parts(self) -> (Box<Error>, Option<Box<str>>, Vec<(Box<str>, CallSite)>) {
        match self {
            Error::Traced { error, call, places } => (error, call, places),
            other => (Box::new(other), None, Vec::new()),
        }
    }

    /// A [`Error::Runtime`].
    #[cold]
    pub fn runtime(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::Runtime { op, message: message.into() }
    }
    /// A [`Error::Index`].
    #[cold]
    pub fn index(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::Index { op, message: message.into() }
    }
    /// A [`Error::Type`].
    #[cold]
    pub fn type_(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::Type { op, message: message.into() }
    }
    /// A [`Error::Value`].
    #[cold]
    pub fn value(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::Value { op, message: message.into() }
    }
    /// A [`Error::NotImplemented`].
    #[cold]
    pub fn not_implemented(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::NotImplemented { op, message: message.into() }
    }
}

/// Returns early with an [`Error`]: `bail!(runtime "add", "sizes {} and {}", a, b)`.
macro_rules! bail {
    ($kind:ident $op:expr, $($text:tt)*) => { return Err($crate::error::Error::$kind($op, format!($($text)*))) };
}
pub(crate) use bail;
