//! A Python-like number: what a caller may write where an operation takes a scalar.

use crate::dtype::{Category, DType};
use std::fmt;

/// A number without a tensor around it. Its category, not its width, takes part in promotion.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Scalar {
    /// A truth value.
    Bool(bool),
    /// An integer.
    Int(i64),
    /// A floating point number.
    Float(f64),
}

impl Scalar {
    /// The promotion category.
    #[inline]
    pub fn category(self) -> Category {
        match self {
            Scalar::Bool(_) => Category::Bool,
            Scalar::Int(_) => Category::Int,
            Scalar::Float(_) => Category::Float,
        }
    }

    /// Its value as a float.
    #[inline]
    pub fn to_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => b as u8 as f64,
            Scalar::Int(i) => i as f64,
            Scalar::Float(f) => f,
        }
    }

    /// Its value as an integer, truncated towards zero.
    #[inline]
    pub fn to_i64(self) -> i64 {
        match self {
            Scalar::Bool(b) => b as i64,
            Scalar::Int(i) => i,
            Scalar::Float(f) => f as i64,
        }
    }

    /// Whether it is not zero.
    #[inline]
    pub fn to_bool(self) -> bool {
        match self {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Float(f) => f != 0.0,
        }
    }

    /// The dtype that a tensor made of it has, floats taking `default_dtype`.
    pub fn dtype(self, default_dtype: DType) -> DType {
        match self {
            Scalar::Bool(_) => DType::Bool,
            Scalar::Int(_) => DType::I64,
            Scalar::Float(_) => default_dtype,
        }
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(b) => write!(f, "{}", if *b { "True" } else { "False" }),
            Scalar::Int(i) => write!(f, "{i}"),
            Scalar::Float(x) => write!(f, "{x:?}"),
        }
    }
}

macro_rules! from {
    ($($t:ty => $variant:ident as $wide:ty),*) => {
        $(impl From<$t> for Scalar {
            #[inline]
            fn from(x: $t) -> Scalar { Scalar::$variant(x as $wide) }
        })*
    };
}
from!(bool => Bool as bool, i64 => Int as i64, i32 => Int as i64, u8 => Int as i64, usize => Int as i64, f32 => Float as f64, f64 => Float as f64);
