//! Arguments of operations after binding: what Python's binder and the Rust methods both produce, and what rows read.

use super::random::Generator;
use crate::dtype::{Category, DType};
use crate::error::{Result, bail};
use crate::scalar::Scalar;
use crate::shape::Dims;
use crate::tensor::Tensor;
use smallvec::SmallVec;

/// One bound argument.
#[derive(Clone, Debug)]
pub enum Arg {
    /// Not given, or given as `None`.
    None,
    /// A tensor.
    Tensor(Tensor),
    /// A number where a number or a tensor may stand.
    Number(Scalar),
    /// An integer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A truth value.
    Bool(bool),
    /// A list of integers: sizes or dimensions.
    Ints(Dims<i64>),
    /// Several lists of integers.
    IntLists(Vec<Dims<i64>>),
    /// A string.
    Str(Box<str>),
    /// A dtype.
    DType(DType),
    /// A list of tensors.
    Tensors(Vec<Tensor>),
    /// A list of tensors some of which are absent: indices.
    OptTensors(Vec<Option<Tensor>>),
    /// A random number generator.
    Generator(Generator),
}

/// All arguments of a call, one per parameter of the row, defaults filled in.
pub type Args = SmallVec<[Arg; 4]>;

/// Typed access to bound arguments. The binder has checked kinds, so a wrong kind here is an error of the row.
pub trait Read {
    /// The argument.
    fn arg(&self, i: usize) -> &Arg;

    /// A tensor.
    fn tensor(&self, i: usize) -> Result<&Tensor> {
        match self.arg(i) {
            Arg::Tensor(t) => Ok(t),
            other => mismatch(i, "a tensor", other),
        }
    }
    /// A tensor that may be absent.
    fn opt_tensor(&self, i: usize) -> Option<&Tensor> {
        match self.arg(i) {
            Arg::Tensor(t) => Some(t),
            _ => None,
        }
    }
    /// A list of tensors.
    fn tensors(&self, i: usize) -> Result<&[Tensor]> {
        match self.arg(i) {
            Arg::Tensors(t) => Ok(t),
            other => mismatch(i, "a list of tensors", other),
        }
    }
    /// An integer.
    fn int(&self, i: usize) -> Result<i64> {
        match self.arg(i) {
            Arg::Int(n) => Ok(*n),
            Arg::Number(s) => Ok(s.to_i64()),
            other => mismatch(i, "an integer", other),
        }
    }
    /// An integer that may be absent.
    fn opt_int(&self, i: usize) -> Option<i64> {
        match self.arg(i) {
            Arg::Int(n) => Some(*n),
            Arg::Number(s) => Some(s.to_i64()),
            _ => None,
        }
    }
    /// A float.
    fn float(&self, i: usize) -> Result<f64> {
        match self.arg(i) {
            Arg::Float(x) => Ok(*x),
            Arg::Int(n) => Ok(*n as f64),
            Arg::Number(s) => Ok(s.to_f64()),
            other => mismatch(i, "a number", other),
        }
    }
    /// A number that may be absent.
    fn opt_number(&self, i: usize) -> Option<Scalar> {
        match self.arg(i) {
            Arg::Number(s) => Some(*s),
            Arg::Int(n) => Some(Scalar::Int(*n)),
            Arg::Float(x) => Some(Scalar::Float(*x)),
            Arg::Bool(b) => Some(Scalar::Bool(*b)),
            _ => None,
        }
    }
    /// A number.
    fn number(&self, i: usize) -> Result<Scalar> {
        match self.opt_number(i) {
            Some(s) => Ok(s),
            None => mismatch(i, "a number", self.arg(i)),
        }
    }
    /// A truth value.
    fn bool(&self, i: usize) -> bool {
        match self.arg(i) {
            Arg::Bool(b) => *b,
            Arg::Number(s) => s.to_bool(),
            Arg::Int(n) => *n != 0,
            _ => false,
        }
    }
    /// A list of tensors some of which are absent.
    fn opt_tensors(&self, i: usize) -> Result<&[Option<Tensor>]> {
        match self.arg(i) {
            Arg::OptTensors(t) => Ok(t),
            other => mismatch(i, "a list of tensors", other),
        }
    }
    /// A list of integers.
    fn ints(&self, i: usize) -> Result<&[i64]> {
        match self.arg(i) {
            Arg::Ints(d) => Ok(d),
            other => mismatch(i, "a list of integers", other),
        }
    }
    /// A list of integers that may be absent.
    fn opt_ints(&self, i: usize) -> Option<&[i64]> {
        match self.arg(i) {
            Arg::Ints(d) => Some(d),
            _ => None,
        }
    }
    /// Several lists of integers.
    fn int_lists(&self, i: usize) -> Result<&[Dims<i64>]> {
        match self.arg(i) {
            Arg::IntLists(lists) => Ok(lists),
            other => mismatch(i, "several lists of integers", other),
        }
    }
    /// A string; empty if absent.
    fn str(&self, i: usize) -> &str {
        match self.arg(i) {
            Arg::Str(s) => s,
            _ => "",
        }
    }
    /// A random number generator, or the default one.
    fn generator(&self, i: usize) -> Generator {
        match self.arg(i) {
            Arg::Generator(g) => g.clone(),
            _ => Generator::default(),
        }
    }
    /// A dtype that may be absent.
    fn opt_dtype(&self, i: usize) -> Option<DType> {
        match self.arg(i) {
            Arg::DType(d) => Some(*d),
            _ => None,
        }
    }
}

#[cold]
fn mismatch<T>(i: usize, want: &str, got: &Arg) -> Result<T> {
    bail!(type_ "", "argument {i} must be {want}, got {got:?}")
}

impl Read for [Arg] {
    #[inline]
    fn arg(&self, i: usize) -> &Arg {
        self.get(i).unwrap_or(&Arg::None)
    }
}

impl Read for Args {
    #[inline]
    fn arg(&self, i: usize) -> &Arg {
        self.get(i).unwrap_or(&Arg::None)
    }
}

/// The Rust types of parameters, by the names that rows use. A Rust method takes `impl Into<kind>`.
pub mod kinds {
    use super::{Category, DType, Dims, Scalar};
    pub use crate::ops::random::Generator;
    pub use crate::tensor::Tensor;

    /// A tensor without a gradient: indices, masks.
    pub type Index = Tensor;
    /// A tensor or a number.
    #[derive(Clone, Debug)]
    pub enum Operand {
        /// A tensor.
        Tensor(Tensor),
        /// A number.
        Number(Scalar),
    }
    /// A number.
    pub type Number = Scalar;
    /// A number, or nothing (`()`).
    #[derive(Clone, Copy, Debug)]
    pub struct OptNumber(pub Option<Scalar>);
    /// An integer.
    pub type Int = i64;
    /// An integer, or nothing.
    pub type OptInt = Option<i64>;
    /// A float.
    pub type Float = f64;
    /// A float, or nothing.
    pub type OptFloat = Option<f64>;
    /// A truth value.
    pub type Bool = bool;
    /// A truth value, or nothing.
    pub type OptBool = Option<bool>;
    /// A string.
    pub type Str = String;
    /// A string, or nothing.
    pub type OptStr = Option<String>;
    /// Sizes: `[2, 3]`, `&[2, 3]`, or one number.
    #[derive(Clone, Debug)]
    pub struct Ints(pub Dims<i64>);
    /// Dimensions: one number, several, or `()` for all.
    #[derive(Clone, Debug)]
    pub struct OptInts(pub Option<Dims<i64>>);
    /// Several lists of integers.
    pub type IntLists = Vec<Dims<i64>>;
    /// A dtype, or nothing.
    pub type OptDType = Option<DType>;
    /// A dtype.
    pub type Dtype = DType;
    /// A tensor, or nothing.
    pub type OptTensor = Option<Tensor>;
    /// A tensor or a number, or nothing (`()`).
    #[derive(Clone, Debug)]
    pub struct OptOperand(pub Option<Operand>);
    /// Several tensors.
    pub type Tensors = Vec<Tensor>;
    /// Several tensors, which Python may also give one by one.
    pub type VarTensors = Vec<Tensor>;
    /// A device's name, or nothing.
    pub type OptDevice = Option<String>;
    /// A random number generator, or nothing for the default one.
    pub type OptGenerator = Option<Generator>;
    /// Several tensors, some absent.
    pub type OptTensors = Vec<Option<Tensor>>;

    impl Operand {
        /// The promotion category of a number.
        pub fn category(&self) -> Category {
            match self {
                Operand::Tensor(t) => t.dtype().category(),
                Operand::Number(s) => s.category(),
            }
        }
    }
}

impl From<&Tensor> for Tensor {
    fn from(t: &Tensor) -> Tensor {
        t.clone()
    }
}

impl From<&Tensor> for Option<Tensor> {
    fn from(t: &Tensor) -> Option<Tensor> {
        Some(t.clone())
    }
}

impl From<&Tensor> for kinds::Operand {
    fn from(t: &Tensor) -> kinds::Operand {
        kinds::Operand::Tensor(t.clone())
    }
}

impl From<Tensor> for kinds::Operand {
    fn from(t: Tensor) -> kinds::Operand {
        kinds::Operand::Tensor(t)
    }
}

impl From<&Tensor> for kinds::OptOperand {
    fn from(t: &Tensor) -> kinds::OptOperand {
        kinds::OptOperand(Some(t.into()))
    }
}

impl From<()> for kinds::OptOperand {
    fn from((): ()) -> kinds::OptOperand {
        kinds::OptOperand(None)
    }
}

impl From<()> for kinds::OptNumber {
    fn from((): ()) -> kinds::OptNumber {
        kinds::OptNumber(None)
    }
}

impl From<Scalar> for kinds::Operand {
    fn from(s: Scalar) -> kinds::Operand {
        kinds::Operand::Number(s)
    }
}

macro_rules! operand_from {
    ($($t:ty),*) => { $(
        impl From<$t> for kinds::Operand {
            fn from(x: $t) -> kinds::Operand { kinds::Operand::Number(x.into()) }
        }
        impl From<$t> for kinds::OptOperand {
            fn from(x: $t) -> kinds::OptOperand { kinds::OptOperand(Some(x.into())) }
        }
        impl From<$t> for kinds::OptNumber {
            fn from(x: $t) -> kinds::OptNumber { kinds::OptNumber(Some(x.into())) }
        }
    )* };
}
operand_from!(bool, i32, i64, f32, f64);

macro_rules! int_list {
    ($($t:ty),*) => { $(
        impl From<&[$t]> for kinds::Ints {
            fn from(s: &[$t]) -> Self { kinds::Ints(s.iter().map(|&x| x as i64).collect()) }
        }
        impl<const N: usize> From<[$t; N]> for kinds::Ints {
            fn from(s: [$t; N]) -> Self { s[..].into() }
        }
        impl<const N: usize> From<&[$t; N]> for kinds::Ints {
            fn from(s: &[$t; N]) -> Self { s[..].into() }
        }
        impl From<$t> for kinds::Ints {
            fn from(x: $t) -> Self { [x][..].into() }
        }
        impl From<&[$t]> for kinds::OptInts {
            fn from(s: &[$t]) -> Self { kinds::OptInts(Some(kinds::Ints::from(s).0)) }
        }
        impl<const N: usize> From<[$t; N]> for kinds::OptInts {
            fn from(s: [$t; N]) -> Self { s[..].into() }
        }
        impl From<$t> for kinds::OptInts {
            fn from(x: $t) -> Self { [x][..].into() }
        }
    )* };
}
int_list!(i64, i32, usize);

impl From<&Dims> for kinds::Ints {
    fn from(d: &Dims) -> Self {
        d[..].into()
    }
}

impl From<()> for kinds::OptInts {
    fn from((): ()) -> Self {
        kinds::OptInts(None)
    }
}

macro_rules! arg_from {
    ($($t:ty, $x:ident => $e:expr;)*) => { $(
        impl From<$t> for Arg {
            #[inline]
            fn from($x: $t) -> Arg { $e }
        }
    )* };
}
arg_from! {
    Tensor, x => Arg::Tensor(x);
    Scalar, x => Arg::Number(x);
    i64, x => Arg::Int(x);
    f64, x => Arg::Float(x);
    bool, x => Arg::Bool(x);
    String, x => Arg::Str(x.into());
    DType, x => Arg::DType(x);
    kinds::Ints, x => Arg::Ints(x.0);
    kinds::OptInts, x => x.0.map_or(Arg::None, Arg::Ints);
    kinds::Operand, x => match x { kinds::Operand::Tensor(t) => Arg::Tensor(t), kinds::Operand::Number(s) => Arg::Number(s) };
    kinds::OptOperand, x => x.0.map_or(Arg::None, Arg::from);
    kinds::OptNumber, x => x.0.map_or(Arg::None, Arg::Number);
    Vec<Dims<i64>>, x => Arg::IntLists(x);
    Vec<Tensor>, x => Arg::Tensors(x);
    Vec<Option<Tensor>>, x => Arg::OptTensors(x);
    Generator, x => Arg::Generator(x);
}

impl<T> From<Option<T>> for Arg
where
    Arg: From<T>,
{
    #[inline]
    fn from(x: Option<T>) -> Arg {
        x.map_or(Arg::None, Arg::from)
    }
}
