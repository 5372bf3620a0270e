//! Samples: the calls with which the tests exercise a row. A row's signature implies most; what it cannot imply (a good
//! dimension, an index) the row says itself.

use super::args::{Arg, Args};
use crate::dtype::DType;
use crate::tensor::Tensor;

/// Draws sample tensors, the same each time.
pub struct Sampler {
    state: u64,
    /// Dtype of the tensors drawn by [`t`](Self::t).
    pub dtype: DType,
}

impl Sampler {
    /// A sampler whose draws depend on `seed` alone.
    pub fn new(seed: u64, dtype: DType) -> Sampler {
        Sampler { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, dtype }
    }

    /// A number in `[0, 1)` (xorshift64*, Vigna 2016).
    pub fn unit(&mut self) -> f64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        (self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A tensor of numbers in `(low, high)`.
    pub fn between(&mut self, sizes: &[usize], low: f64, high: f64) -> Tensor {
        let values: Vec<f64> = (0..crate::shape::numel(sizes)).map(|_| low + (high - low) * self.unit()).collect();
        let t = Tensor::from_slice(&values, sizes).expect("a sample fits in memory");
        crate::ops::to_dtype(&t, self.dtype).expect("a sample can be converted")
    }

    /// A tensor of numbers in `(-1.5, 1.5)`, none within 0.05 of zero, where many functions bend, and no two equal.
    pub fn t(&mut self, sizes: &[usize]) -> Tensor {
        let n = crate::shape::numel(sizes);
        let mut values: Vec<f64> = (0..n)
            .map(|i| {
                let magnitude = 0.05 + 1.4 * (i as f64 + 0.2 + 0.6 * self.unit()) / n.max(1) as f64;
                if self.unit() < 0.5 { -magnitude } else { magnitude }
            })
            .collect();
        for i in (1..n).rev() {
            let j = (self.unit() * (i + 1) as f64) as usize;
            values.swap(i, j);
        }
        let t = Tensor::from_slice(&values, sizes).expect("a sample fits in memory");
        crate::ops::to_dtype(&t, self.dtype).expect("a sample can be converted")
    }

    /// Integers in `[low, high)`.
    pub fn ints(&mut self, sizes: &[usize], low: i64, high: i64) -> Tensor {
        let values: Vec<i64> =
            (0..crate::shape::numel(sizes)).map(|_| low + ((high - low) as f64 * self.unit()) as i64).collect();
        Tensor::from_slice(&values, sizes).expect("a sample fits in memory")
    }

    /// Truth values.
    pub fn mask(&mut self, sizes: &[usize]) -> Tensor {
        let ints = self.ints(sizes, 0, 2);
        crate::ops::to_dtype(&ints, DType::Bool).expect("a sample can be converted")
    }

    /// A call with one tensor of each shape given.
    pub fn tensors(&mut self, shapes: &[&[usize]]) -> Args {
        shapes.iter().map(|s| Arg::Tensor(self.t(s))).collect()
    }
}
