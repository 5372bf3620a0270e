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
    #[error("{message}{}{trace}", Op(op))]
    Runtime {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
        /// Where it comes from.
        trace: Trace,
    },
    /// A dimension or an index outside its range: `IndexError`.
    #[error("{message}{}{trace}", Op(op))]
    Index {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
        /// Where it comes from.
        trace: Trace,
    },
    /// An argument of the wrong kind: `TypeError`.
    #[error("{message}{}{trace}", Op(op))]
    Type {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
        /// Where it comes from.
        trace: Trace,
    },
    /// An argument of the right kind and a wrong value: `ValueError`.
    #[error("{message}{}{trace}", Op(op))]
    Value {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
        /// Where it comes from.
        trace: Trace,
    },
    /// An operation that has no meaning for the dtype or device seen: `NotImplementedError`.
    #[error("{message}{}{trace}", Op(op))]
    NotImplemented {
        /// The operation that refused.
        op: &'static str,
        /// What is wrong with the values seen, and what was expected.
        message: Box<str>,
        /// Where it comes from.
        trace: Trace,
    },
    /// Memory that the system would not give: `RuntimeError`, as PyTorch's CPU allocator raises.
    #[error("{op}: not enough memory: you tried to allocate {bytes} bytes.")]
    OutOfMemory {
        /// The operation that asked.
        op: &'static str,
        /// Bytes asked for.
        bytes: usize,
    },
    /// An error of the embedding program (a Python exception raised in a hook), carried through unchanged.
    #[error("{error}")]
    Foreign {
        /// The error.
        error: Box<dyn std::error::Error + Send + Sync>,
        /// Where it comes from.
        trace: Trace,
    },
}

/// What is known of where an error comes from. Printed behind its message, but for the steps of a backward.
#[derive(Debug, Default)]
pub struct Trace(Option<Box<Steps>>);

#[derive(Debug, Default)]
struct Steps {
    /// The call that the user made, with the shapes and dtypes it was given.
    call: Option<Box<str>>,
    /// What happened where.
    places: Vec<(Box<str>, CallSite)>,
    /// The nodes that were computing gradients, innermost first, and the lines that recorded them.
    nodes: Vec<(Box<str>, CallSite)>,
}

impl Trace {
    fn steps(&mut self) -> &mut Steps {
        self.0.get_or_insert_default()
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(steps) = &self.0 else { return Ok(()) };
        if let Some(call) = &steps.call {
            write!(f, "\nin the call {call}")?;
        }
        for (what, site) in &steps.places {
            if let Some(line) = site.line() {
                write!(f, "\n{what}\n{line}")?;
            }
        }
        Ok(())
    }
}

/// The second line of a message: the operation's name.
struct Op<'a>(&'a &'static str);

impl fmt::Display for Op<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "\n[rustgrad op: {}]", self.0) }
    }
}

impl Error {
    fn trace(&self) -> Option<&Trace> {
        match self {
            Error::Runtime { trace, .. }
            | Error::Index { trace, .. }
            | Error::Type { trace, .. }
            | Error::Value { trace, .. }
            | Error::NotImplemented { trace, .. }
            | Error::Foreign { trace, .. } => Some(trace),
            Error::OutOfMemory { .. } => None,
        }
    }

    fn with_trace(mut self, add: impl FnOnce(&mut Steps)) -> Error {
        match &mut self {
            Error::Runtime { trace, .. }
            | Error::Index { trace, .. }
            | Error::Type { trace, .. }
            | Error::Value { trace, .. }
            | Error::NotImplemented { trace, .. }
            | Error::Foreign { trace, .. } => add(trace.steps()),
            Error::OutOfMemory { .. } => {}
        }
        self
    }

    /// The error, said to have to do with a place.
    #[cold]
    pub fn at(self, what: impl Into<Box<str>>, site: CallSite) -> Error {
        self.with_trace(|steps| steps.places.push((what.into(), site)))
    }

    /// The error, said to come from a call that the user made. The outermost call remains.
    #[cold]
    pub fn in_call(self, call: impl FnOnce() -> String) -> Error {
        if matches!(self, Error::Foreign { .. }) || self.nodes().next().is_some() {
            return self;
        }
        self.with_trace(|steps| steps.call = Some(call().into()))
    }

    /// The error, said to come from a node that computed gradients, recorded at a place.
    #[cold]
    pub fn in_node(self, node: impl Into<Box<str>>, site: CallSite) -> Error {
        self.with_trace(|steps| steps.nodes.push((node.into(), site)))
    }

    /// The nodes that were computing gradients, innermost first, and the lines that recorded them.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, CallSite)> {
        let steps = self.trace().and_then(|trace| trace.0.as_deref());
        steps.into_iter().flat_map(|steps| steps.nodes.iter().map(|(node, site)| (&**node, *site)))
    }

    /// An error of the embedding program.
    pub fn foreign(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Foreign { error: Box::new(error), trace: Trace::default() }
    }

    /// A [`Error::Runtime`].
    #[cold]
    pub fn runtime(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::Runtime { op, message: message.into(), trace: Trace::default() }
    }
    /// A [`Error::Index`].
    #[cold]
    pub fn index(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::Index { op, message: message.into(), trace: Trace::default() }
    }
    /// A [`Error::Type`].
    #[cold]
    pub fn type_(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::Type { op, message: message.into(), trace: Trace::default() }
    }
    /// A [`Error::Value`].
    #[cold]
    pub fn value(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::Value { op, message: message.into(), trace: Trace::default() }
    }
    /// A [`Error::NotImplemented`].
    #[cold]
    pub fn not_implemented(op: &'static str, message: impl Into<Box<str>>) -> Error {
        Error::NotImplemented { op, message: message.into(), trace: Trace::default() }
    }
}

/// Returns early with an [`Error`]: `bail!(runtime "add", "sizes {} and {}", a, b)`.
macro_rules! bail {
    ($kind:ident $op:expr, $($text:tt)*) => { return Err($crate::error::Error::$kind($op, format!($($text)*))) };
}
pub(crate) use bail;
