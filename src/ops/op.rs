//! What a row of the catalogue is, and the macro that declares one.

use super::args::{Arg, Args};
use super::formula::Elementwise;
use super::samples::Sampler;
use super::structured::Structured;
use super::update::Update;
use super::view::View;
use crate::error::{Error, Result};
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// Results of an operation.
pub type Outputs = SmallVec<[Tensor; 1]>;

/// A row of the catalogue: an operation.
pub struct Op {
    /// The Rust method's name; unique.
    pub rust: &'static str,
    /// PyTorch's name. Rows with one name are overloads, tried in catalogue order.
    pub name: &'static str,
    /// Where Python finds it.
    pub surface: Surface,
    /// The parameters.
    pub params: &'static [Param],
    /// What comes back.
    pub returns: Returns,
    /// The graph node's name, as PyTorch gives it: `AddBackward0`. Empty for compositions and for what has no gradient.
    pub node: &'static str,
    /// What it does and how it is differentiated.
    pub rule: Rule,
    /// Documentation: what it computes, shapes, dtypes, errors.
    pub doc: &'static str,
    /// Calls with which the tests exercise it beyond what its signature implies.
    pub samples: fn(&mut Sampler) -> Vec<Args>,
}

/// Where Python finds an operation, as a set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Surface(pub u16);

/// A method of `Tensor`.
pub const METHOD: u16 = 1;
/// A function of the module.
pub const FUNCTION: u16 = 2;
/// A function of `nn.functional`.
pub const NN: u16 = 4;
/// An in-place method, its name with an underscore.
pub const INPLACE: u16 = 8;
/// An in-place function of the module, its name with an underscore.
pub const INPLACE_FUNCTION: u16 = 16;
/// A function of `special`.
pub const SPECIAL: u16 = 32;
/// A function of `linalg`.
pub const LINALG: u16 = 64;
/// An in-place function of `nn.functional`, its name with an underscore.
pub const NN_INPLACE: u16 = 256;
/// Takes `out=`.
pub const OUT: u16 = 128;
/// A property of `Tensor`: no call, one operand.
pub const PROPERTY: u16 = 512;
/// A method, a function with `out=`, and an in-place method: the common elementwise operation.
pub const EVERYWHERE: u16 = METHOD | FUNCTION | INPLACE | OUT;

impl Surface {
    /// Whether any of the places named is among them.
    pub const fn has(self, place: u16) -> bool {
        self.0 & place != 0
    }
}

/// A parameter.
#[derive(Debug)]
pub struct Param {
    /// Its name in Python.
    pub name: &'static str,
    /// What it takes.
    pub kind: Kind,
    /// The default as text; `None` if it must be given.
    pub default: Option<&'static str>,
    /// Whether it can be given by keyword only.
    pub keyword_only: bool,
}

/// What a parameter takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it; see args::kinds")]
pub enum Kind {
    Tensor,
    /// A tensor that has no gradient and no edge: indices, masks.
    Index,
    OptTensor,
    Operand,
    OptOperand,
    Number,
    OptNumber,
    Int,
    OptInt,
    Float,
    OptFloat,
    Bool,
    OptBool,
    Str,
    OptStr,
    Ints,
    OptInts,
    /// Several lists of integers.
    IntLists,
    Dtype,
    OptDType,
    Tensors,
    /// Tensors given one by one, or as one list.
    VarTensors,
    OptTensors,
    OptDevice,
    OptGenerator,
}

impl Kind {
    /// Whether it takes a tensor, alone or instead of a number: an operand of a formula.
    pub const fn is_operand(self) -> bool {
        matches!(self, Kind::Tensor | Kind::OptTensor | Kind::Operand | Kind::OptOperand)
    }
}

/// What an operation returns to Python.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Returns {
    /// One tensor.
    Tensor,
    /// A tuple of any length.
    Tuple,
    /// A tuple with field names, as `torch.return_types` has.
    Fields(&'static [&'static str]),
    /// A truth value, of a tensor of one element.
    Bool,
    /// A tuple if one of these parameters is true, else one tensor.
    TupleIf(&'static [usize]),
}

/// What an operation does.
#[allow(clippy::large_enum_variant, reason = "rows are statics: nothing moves one")]
pub enum Rule {
    /// A formula over elements.
    Elementwise(Elementwise),
    /// The same memory seen otherwise.
    View(View),
    /// A kernel with its derivative.
    Structured(Structured),
    /// A change of a part of the first operand: on a copy, or in place.
    Update(Update),
    /// A composition of other operations, which brings its derivative along.
    Composite(fn(&Args) -> Result<Outputs>),
    /// A change of the first argument, which comes back. Such a row has an in-place form only.
    InPlace(fn(&'static Op, &Args) -> Result<()>),
}

impl Op {
    /// The position of the parameter of that name.
    pub fn param(&self, name: &str) -> Option<usize> {
        self.params.iter().position(|p| p.name == name)
    }

    /// The default of parameter `i`, bound.
    pub fn default(&self, i: usize) -> Arg {
        let p = &self.params[i];
        let Some(text) = p.default else { return Arg::None };
        match (text, p.kind) {
            ("None", _) => Arg::None,
            ("true", _) => Arg::Bool(true),
            ("false", _) => Arg::Bool(false),
            (t, Kind::Str | Kind::OptStr) => Arg::Str(t.trim_matches('"').into()),
            ("()", _) => Arg::Ints(Default::default()),
            (t, Kind::Ints | Kind::OptInts) => Arg::Ints(
                t.trim_matches(['[', ']'])
                    .split(',')
                    .filter_map(|x| x.trim().replace("- ", "-").parse().ok())
                    .collect(),
            ),
            (t, kind) => {
                let t = t.replace("- ", "-");
                match (t.parse::<i64>(), t.parse::<f64>()) {
                    (Ok(n), _) if matches!(kind, Kind::Int | Kind::OptInt) => Arg::Int(n),
                    (_, Ok(x)) if matches!(kind, Kind::Float | Kind::OptFloat) => Arg::Float(x),
                    (Ok(n), _) => Arg::Number(crate::Scalar::Int(n)),
                    (_, Ok(x)) => Arg::Number(crate::Scalar::Float(x)),
                    _ => Arg::Str(t.into()),
                }
            }
        }
    }

    /// Whether the operation can be differentiated at all.
    pub fn is_differentiable(&self) -> bool {
        !self.node.is_empty() || matches!(self.rule, Rule::Composite(_))
    }
}

impl std::fmt::Debug for Op {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Op({})", self.rust)
    }
}

/// What a Rust method returns, made of an operation's outputs.
pub trait FromOutputs: Sized {
    /// The conversion.
    fn from_outputs(op: &'static Op, outputs: Outputs) -> Result<Self>;
}

#[cold]
fn wrong_count<T>(op: &'static Op, n: usize) -> Result<T> {
    Err(Error::runtime(op.rust, format!("internal error: {} results", n)))
}

impl FromOutputs for Tensor {
    #[inline]
    fn from_outputs(op: &'static Op, mut outputs: Outputs) -> Result<Tensor> {
        match outputs.pop() {
            Some(t) if outputs.is_empty() => Ok(t),
            _ => wrong_count(op, outputs.len() + 1),
        }
    }
}

impl FromOutputs for bool {
    fn from_outputs(op: &'static Op, outputs: Outputs) -> Result<bool> {
        Ok(Tensor::from_outputs(op, outputs)?.item()?.to_bool())
    }
}

impl FromOutputs for (Tensor, Tensor) {
    fn from_outputs(op: &'static Op, outputs: Outputs) -> Result<Self> {
        let n = outputs.len();
        let mut it = outputs.into_iter();
        match (it.next(), it.next(), it.next()) {
            (Some(a), Some(b), None) => Ok((a, b)),
            _ => wrong_count(op, n),
        }
    }
}

impl FromOutputs for Vec<Tensor> {
    fn from_outputs(_: &'static Op, outputs: Outputs) -> Result<Self> {
        Ok(outputs.into_vec())
    }
}

/// Declares rows: statics of type [`Op`] and, from the same signature, the Rust methods.
///
/// ```text
/// op! {
///     /// Natural exponential, elementwise.                                  documentation
///     EXP exp(self) -> Tensor = "ExpBackward0",                              static, signature, graph node
///         EVERYWHERE | SPECIAL,                                              where Python finds it
///         Elementwise(Elementwise { saves_result: true, ..FLOAT.of(|f| f.x(0).exp()) });    rule
/// }
/// ```
///
/// Parameters are `name: Kind = default`, those after `;` keyword-only. `self` stands for `input: Tensor`. A Python name
/// other than the Rust one follows as `as "name"`. Samples may follow the rule: `, |s| vec![...]`.
///
/// All rows of a file stand in one invocation, which also declares `ROWS`, the file's part of the catalogue.
macro_rules! op {
    (@rows [$($row:ident)*]) => {
        /// The rows of this file.
        pub static ROWS: &[&$crate::ops::op::Op] = &[$(&$row),*];
    };
    (@rows [$($row:ident)*] $(#[doc = $doc:literal])* $id:ident $rust:ident $(as $py:literal)? (self $(, $p:ident: $k:ident $(= $d:expr)?)* $(; $($q:ident: $qk:ident $(= $qd:expr)?),+)?) -> $ret:ident $(<$inner:ty>)? $([$($field:literal),+])? = $node:literal, $surface:expr, $rule:expr $(, $samples:expr)?; $($rest:tt)*) => {
        #[doc = concat!("The row of `", stringify!($rust), "`.")]
        pub static $id: $crate::ops::op::Op = $crate::ops::op::Op {
            rust: stringify!($rust),
            name: $crate::ops::op::first_of(&[$($py,)? stringify!($rust)]),
            surface: $crate::ops::op::Surface($surface),
            params: &[
                $crate::ops::op::Param { name: "input", kind: $crate::ops::op::Kind::Tensor, default: None, keyword_only: false },
                $($crate::ops::op::Param { name: stringify!($p), kind: $crate::ops::op::Kind::$k, default: $crate::ops::op::default_text!($($d)?), keyword_only: false },)*
                $($($crate::ops::op::Param { name: stringify!($q), kind: $crate::ops::op::Kind::$qk, default: $crate::ops::op::default_text!($($qd)?), keyword_only: true },)+)?
            ],
            returns: $crate::ops::op::returns!($ret $([$($field),+])?),
            node: $node,
            rule: $rule,
            doc: concat!($($doc, "\n",)*),
            samples: $crate::ops::op::samples!($($samples)?),
        };
        impl $crate::tensor::Tensor {
            $(#[doc = $doc])*
            #[allow(clippy::too_many_arguments, reason = "the signature is PyTorch's")]
            pub fn $rust(&self $(, $p: impl Into<$crate::ops::args::kinds::$k>)*) -> $crate::Result<$crate::ops::op::rust_type!($ret $(<$inner>)? $([$($field),+])?)> {
                let mut args = $crate::ops::args::Args::new();
                args.push($crate::ops::args::Arg::Tensor(self.clone()));
                $(args.push($crate::ops::args::Arg::from($p.into() as $crate::ops::args::kinds::$k));)*
                $crate::ops::apply::call_into(&$id, args)
            }
        }
        $crate::ops::op::op! { @rows [$($row)* $id] $($rest)* }
    };
    (@rows [$($row:ident)*] $(#[doc = $doc:literal])* $id:ident $rust:ident $(as $py:literal)? ($($p:ident: $k:ident $(= $d:expr)?),* $(; $($q:ident: $qk:ident $(= $qd:expr)?),+)?) -> $ret:ident $(<$inner:ty>)? $([$($field:literal),+])? = $node:literal, $surface:expr, $rule:expr $(, $samples:expr)?; $($rest:tt)*) => {
        #[doc = concat!("The row of `", stringify!($rust), "`.")]
        pub static $id: $crate::ops::op::Op = $crate::ops::op::Op {
            rust: stringify!($rust),
            name: $crate::ops::op::first_of(&[$($py,)? stringify!($rust)]),
            surface: $crate::ops::op::Surface($surface),
            params: &[
                $($crate::ops::op::Param { name: stringify!($p), kind: $crate::ops::op::Kind::$k, default: $crate::ops::op::default_text!($($d)?), keyword_only: false },)*
                $($($crate::ops::op::Param { name: stringify!($q), kind: $crate::ops::op::Kind::$qk, default: $crate::ops::op::default_text!($($qd)?), keyword_only: true },)+)?
            ],
            returns: $crate::ops::op::returns!($ret $([$($field),+])?),
            node: $node,
            rule: $rule,
            doc: concat!($($doc, "\n",)*),
            samples: $crate::ops::op::samples!($($samples)?),
        };
        impl $crate::tensor::Tensor {
            $(#[doc = $doc])*
            #[allow(clippy::too_many_arguments, reason = "the signature is PyTorch's")]
            pub fn $rust($($p: impl Into<$crate::ops::args::kinds::$k>),*) -> $crate::Result<$crate::ops::op::rust_type!($ret $(<$inner>)? $([$($field),+])?)> {
                let mut args = $crate::ops::args::Args::new();
                $(args.push($crate::ops::args::Arg::from($p.into() as $crate::ops::args::kinds::$k));)*
                $crate::ops::apply::call_into(&$id, args)
            }
        }
        $crate::ops::op::op! { @rows [$($row)* $id] $($rest)* }
    };
    ($($rows:tt)*) => {
        $crate::ops::op::op! { @rows [] $($rows)* }
    };
}

macro_rules! default_text {
    () => {
        None
    };
    ($d:expr) => {
        Some(stringify!($d))
    };
}

macro_rules! returns {
    (Tensor) => { $crate::ops::op::Returns::Tensor };
    (Bool) => { $crate::ops::op::Returns::Bool };
    (Vec) => { $crate::ops::op::Returns::Tuple };
    (Fields [$($f:literal),+]) => { $crate::ops::op::Returns::Fields(&[$($f),+]) };
    (TupleIf [$($f:literal),+]) => { $crate::ops::op::Returns::TupleIf(&[$($f),+]) };
}

macro_rules! rust_type {
    (Tensor) => { $crate::tensor::Tensor };
    (Bool) => { bool };
    (Vec <$t:ty>) => { Vec<$t> };
    (Fields [$a:literal, $b:literal]) => { ($crate::tensor::Tensor, $crate::tensor::Tensor) };
    (Fields [$($f:literal),+]) => { Vec<$crate::tensor::Tensor> };
    (TupleIf [$($f:literal),+]) => { Vec<$crate::tensor::Tensor> };
}

macro_rules! samples {
    () => {
        |_| Vec::new()
    };
    ($e:expr) => {
        $e
    };
}

pub(crate) use {default_text, op, returns, rust_type, samples};

/// The first of one or two names.
pub const fn first_of(names: &[&'static str]) -> &'static str {
    names[0]
}
