//! Operators on references: `&a + &b`, `&a * 2.0`, `-&a`. They panic where the method of the same name returns an error,
//! with the same text; code that must not panic calls the methods.

use super::Tensor;
use crate::ops::apply;
use crate::ops::elementwise as e;
use crate::scalar::Scalar;
use std::ops::{Add, Div, Mul, Neg, Sub};

#[track_caller]
fn unwrap(result: crate::Result<Tensor>) -> Tensor {
    match result {
        Ok(t) => t,
        Err(error) => panic!("{error}"),
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident $op:ident;)*) => { $(
        impl $trait<&Tensor> for &Tensor {
            type Output = Tensor;
            /// # Panics
            /// Where the method of the same name returns an error.
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor { unwrap(apply::binary(&e::$op, self, other)) }
        }
        impl $trait<Tensor> for &Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor { unwrap(apply::binary(&e::$op, self, &other)) }
        }
        impl $trait<&Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: &Tensor) -> Tensor { unwrap(apply::binary(&e::$op, &self, other)) }
        }
        impl $trait<Tensor> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: Tensor) -> Tensor { unwrap(apply::binary(&e::$op, &self, &other)) }
        }
        operator!(@number $trait $method $op: f64 i64);
    )* };
    (@number $trait:ident $method:ident $op:ident: $($t:ty)*) => { $(
        impl $trait<$t> for &Tensor {
            type Output = Tensor;
            /// # Panics
            /// Where the method of the same name returns an error.
            #[track_caller]
            fn $method(self, other: $t) -> Tensor { unwrap(apply::binary_number(&e::$op, self, Scalar::from(other))) }
        }
        impl $trait<$t> for Tensor {
            type Output = Tensor;
            #[track_caller]
            fn $method(self, other: $t) -> Tensor { unwrap(apply::binary_number(&e::$op, &self, Scalar::from(other))) }
        }
    )* };
}
operator! {
    Add add ADD;
    Sub sub SUB;
    Mul mul MUL;
    Div div DIV;
}

impl Neg for &Tensor {
    type Output = Tensor;
    /// # Panics
    /// Where [`Tensor::neg`] returns an error.
    #[track_caller]
    fn neg(self) -> Tensor {
        unwrap(Tensor::neg(self))
    }
}

impl Neg for Tensor {
    type Output = Tensor;
    #[track_caller]
    fn neg(self) -> Tensor {
        -&self
    }
}
