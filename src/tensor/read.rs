//! Reading tensors back into Rust: single elements, vectors, text.

use super::{Elements, PrintOptions, Tensor, default_dtype, repr};
use crate::autograd::node::Edge;
use crate::backend::cpu;
use crate::dtype::DType;
use crate::error::{Error, Result, bail};
use crate::scalar::Scalar;
use crate::storage::{Guards, Storage};
use half::{bf16, f16};

/// A Rust type that is a dtype.
pub trait Value: Copy {
    /// The dtype.
    const DTYPE: DType;
    /// Writes values to the start of a storage that has room for them.
    fn write(values: &[Self], storage: &Storage);
    /// The values of a row-major storage of this dtype from element `offset` on.
    fn read(storage: &Storage, offset: usize, n: usize) -> Vec<Self>;
}

macro_rules! value {
    ($($t:ty = $dtype:ident),*) => { $(
        impl Value for $t {
            const DTYPE: DType = DType::$dtype;
            fn write(values: &[Self], storage: &Storage) {
                cpu::memory::write(values, storage)
            }
            fn read(storage: &Storage, offset: usize, n: usize) -> Vec<Self> {
                cpu::memory::read(storage, offset, n)
            }
        }
    )* };
}
value!(u8 = U8, i8 = I8, i16 = I16, i32 = I32, i64 = I64, f16 = F16, bf16 = BF16, f32 = F32, f64 = F64);

impl Tensor {
    /// The value of a tensor with one element.
    ///
    /// # Errors
    /// `RuntimeError` if it has another number of elements.
    pub fn item(&self) -> Result<Scalar> {
        let body = self.body();
        if body.layout.numel() != 1 {
            bail!(runtime "item", "a Tensor with {} elements cannot be converted to Scalar", body.layout.numel());
        }
        let _guards = Guards::take([&body.storage], []);
        Ok(cpu::memory::element(&body.storage, body.layout.offset, body.dtype))
    }

    /// All elements in row-major order.
    ///
    /// # Errors
    /// `RuntimeError` if `T` is not the tensor's dtype.
    pub fn to_vec<T: Value>(&self) -> Result<Vec<T>> {
        let body = self.body();
        if body.dtype != T::DTYPE {
            return Err(Error::runtime("to_vec", format!("the tensor is of dtype {}, not {}", body.dtype, T::DTYPE)));
        }
        let dense = if body.layout.is_contiguous() { body } else { crate::ops::contiguous("to_vec", &body)? };
        let _guards = Guards::take([&dense.storage], []);
        Ok(T::read(&dense.storage, dense.layout.offset, dense.layout.numel()))
    }

    /// All elements as numbers, in row-major order.
    ///
    /// # Errors
    /// `RuntimeError` if memory runs out.
    pub fn to_scalars(&self) -> Result<Vec<Scalar>> {
        let body = self.body();
        let dense = if body.layout.is_contiguous() { body } else { crate::ops::contiguous("tolist", &body)? };
        let _guards = Guards::take([&dense.storage], []);
        Ok((0..dense.layout.numel())
            .map(|i| cpu::memory::element(&dense.storage, dense.layout.offset + i, dense.dtype))
            .collect())
    }

    /// The text that PyTorch prints.
    pub fn to_repr(&self, options: &PrintOptions) -> String {
        self.to_repr_named(options, "tensor(")
    }

    /// The text that PyTorch prints, for a subclass of that name.
    pub fn to_repr_named(&self, options: &PrintOptions, prefix: &str) -> String {
        let body = self.body();
        let history = self.grad_fn();
        let suffix = match history.as_ref().map(Edge::node) {
            Ok(Some(node)) => Some(format!("grad_fn=<{}>", node.name())),
            Ok(None) if self.requires_grad() => Some("requires_grad=True".to_string()),
            Ok(None) => None,
            Err(_) => Some("grad_fn=<Invalid>".to_string()),
        };
        let _guards = Guards::take([&body.storage], []);
        repr(&Shown(&body), options, default_dtype(), prefix, None, &suffix.into_iter().collect::<Vec<_>>())
    }
}

/// A body as the printer reads it.
struct Shown<'a>(&'a super::Body);

impl Elements for Shown<'_> {
    fn sizes(&self) -> &[usize] {
        &self.0.layout.sizes
    }
    fn dtype(&self) -> DType {
        self.0.dtype
    }
    fn get(&self, index: &[usize]) -> Scalar {
        let at = index
            .iter()
            .zip(self.0.layout.strides.iter())
            .fold(self.0.layout.offset as isize, |o, (&i, &s)| o + i as isize * s);
        cpu::memory::element(&self.0.storage, at as usize, self.0.dtype)
    }
}
