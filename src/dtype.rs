//! The element types, their names and PyTorch's promotion rules. Pure functions; no tensor, no memory.

use std::fmt;

/// The type of a tensor's elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum DType {
    /// One byte, read as `!= 0`.
    Bool,
    /// Unsigned 8-bit integer.
    U8,
    /// Signed 8-bit integer.
    I8,
    /// Signed 16-bit integer.
    I16,
    /// Signed 32-bit integer.
    I32,
    /// Signed 64-bit integer: the default integer type.
    I64,
    /// IEEE half precision; arithmetic is done in float32 and rounded.
    F16,
    /// bfloat16; arithmetic is done in float32 and rounded.
    BF16,
    /// IEEE single precision: the default dtype.
    F32,
    /// IEEE double precision.
    F64,
}

/// PyTorch's category of a dtype, in promotion order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Category {
    /// Truth values.
    Bool,
    /// Integers of any width.
    Int,
    /// Real floating point numbers.
    Float,
}

/// The type in which a dtype's elements are computed: half types widen to f32, small integers to i64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Compute {
    /// A byte, 0 or 1.
    Bool,
    /// 64-bit integer, wrapping.
    I64,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

use DType::*;

impl DType {
    /// All dtypes, in the order of the enum.
    pub const ALL: [DType; 10] = [Bool, U8, I8, I16, I32, I64, F16, BF16, F32, F64];

    /// Bytes of one element.
    #[inline]
    pub const fn size(self) -> usize {
        match self {
            Bool | U8 | I8 => 1,
            I16 | F16 | BF16 => 2,
            I32 | F32 => 4,
            I64 | F64 => 8,
        }
    }

    /// The dtype's name: `float32`.
    pub const fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "uint8",
            I8 => "int8",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            F16 => "float16",
            BF16 => "bfloat16",
            F32 => "float32",
            F64 => "float64",
        }
    }

    /// The name as C++ has it (`long int`), which some messages show.
    pub(crate) fn c_name(self) -> &'static str {
        match self {
            DType::Bool => "bool",
            DType::U8 => "unsigned char",
            DType::I8 => "signed char",
            DType::I16 => "short int",
            DType::I32 => "int",
            DType::I64 => "long int",
            DType::F16 => "c10::Half",
            DType::BF16 => "c10::BFloat16",
            DType::F32 => "float",
            DType::F64 => "double",
        }
    }

    /// The name that PyTorch's messages use: `Float`, `Long`.
    pub const fn legacy(self) -> &'static str {
        match self {
            Bool => "Bool",
            U8 => "Byte",
            I8 => "Char",
            I16 => "Short",
            I32 => "Int",
            I64 => "Long",
            F16 => "Half",
            BF16 => "BFloat16",
            F32 => "Float",
            F64 => "Double",
        }
    }

    /// The dtype of that name, PyTorch's second names (`double`, `long` ...) included.
    pub fn parse(name: &str) -> Option<DType> {
        Some(match name {
            "bool" => Bool,
            "uint8" => U8,
            "int8" => I8,
            "int16" | "short" => I16,
            "int32" | "int" => I32,
            "int64" | "long" => I64,
            "float16" | "half" => F16,
            "bfloat16" => BF16,
            "float32" | "float" => F32,
            "float64" | "double" => F64,
            _ => return None,
        })
    }

    /// Whether it is a floating point type.
    #[inline]
    pub const fn is_float(self) -> bool {
        self as u8 >= F16 as u8
    }

    /// Whether it is a 16-bit floating point type, computed in float32.
    #[inline]
    pub const fn is_half(self) -> bool {
        matches!(self, F16 | BF16)
    }

    /// The promotion category.
    #[inline]
    pub const fn category(self) -> Category {
        match self {
            Bool => Category::Bool,
            U8 | I8 | I16 | I32 | I64 => Category::Int,
            F16 | BF16 | F32 | F64 => Category::Float,
        }
    }

    /// The type its elements are computed in.
    #[inline]
    pub const fn compute(self) -> Compute {
        match self {
            Bool => Compute::Bool,
            U8 | I8 | I16 | I32 | I64 => Compute::I64,
            F16 | BF16 | F32 => Compute::F32,
            F64 => Compute::F64,
        }
    }

    /// The dtype that holds the values of both, by PyTorch's table (`torch.promote_types`).
    pub const fn promote(self, other: DType) -> DType {
        let (a, b) = if (self as u8) <= (other as u8) { (self, other) } else { (other, self) };
        match (a, b) {
            (Bool, t) => t,
            (U8, I8) => I16,
            (F16, BF16) => F32,
            (_, t) => t,
        }
    }

    /// Whether PyTorch lets a result of this dtype be written to a tensor of `to` (`torch.can_cast`): the category may not fall.
    pub const fn can_cast(self, to: DType) -> bool {
        self.category() as u8 <= to.category() as u8
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "torch.{}", self.name())
    }
}

impl Compute {
    /// The dtype whose storage is exactly this type.
    #[inline]
    pub const fn dtype(self) -> DType {
        match self {
            Compute::Bool => Bool,
            Compute::I64 => I64,
            Compute::F32 => F32,
            Compute::F64 => F64,
        }
    }

    /// Whether it is a floating point type.
    #[inline]
    pub const fn is_float(self) -> bool {
        matches!(self, Compute::F32 | Compute::F64)
    }
}

/// Collects operands and answers with PyTorch's result dtype: tensors with dimensions outrank 0-d tensors, which outrank
/// Python numbers, unless the lower rank has the higher category.
#[derive(Clone, Copy, Default, Debug)]
pub struct Promotion {
    dimensioned: Option<DType>,
    zero_dim: Option<DType>,
    number: Option<DType>,
}

impl Promotion {
    /// Adds a tensor.
    #[inline]
    pub fn tensor(&mut self, dtype: DType, rank: usize) {
        let slot = if rank > 0 { &mut self.dimensioned } else { &mut self.zero_dim };
        *slot = Some(slot.map_or(dtype, |d| d.promote(dtype)));
    }

    /// Adds a Python number, as `float64`, `int64` or `bool` by its kind; `default_dtype` is what a float number stands for.
    #[inline]
    pub fn number(&mut self, category: Category, default_dtype: DType) {
        let dtype = match category {
            Category::Bool => Bool,
            Category::Int => I64,
            Category::Float => default_dtype,
        };
        self.number = Some(self.number.map_or(dtype, |d| d.promote(dtype)));
    }

    /// The result dtype of what was added; `default_dtype` if nothing was.
    pub fn result(self, default_dtype: DType) -> DType {
        let combine = |high: Option<DType>, low: Option<DType>| match (high, low) {
            (Some(h), Some(l)) if l.category() > h.category() => Some(h.promote(l)),
            (Some(h), _) => Some(h),
            (None, l) => l,
        };
        let low = combine(self.zero_dim, self.number);
        combine(self.dimensioned, low).unwrap_or(default_dtype)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_table_is_symmetric_and_idempotent() {
        for a in DType::ALL {
            assert_eq!(a.promote(a), a);
            for b in DType::ALL {
                assert_eq!(a.promote(b), b.promote(a));
                assert!(a.promote(b).category() == a.category().max(b.category()));
            }
        }
        assert_eq!(U8.promote(I8), I16);
        assert_eq!(F16.promote(BF16), F32);
        assert_eq!(I64.promote(F16), F16);
    }

    #[test]
    fn lower_ranks_do_not_widen_within_a_category() {
        // Recorded from PyTorch 2.13: float16 tensor + 0-d float64 is float16; int64 tensor + 0-d float32 is float32.
        let mut p = Promotion::default();
        p.tensor(F16, 1);
        p.tensor(F64, 0);
        assert_eq!(p.result(F32), F16);
        let mut p = Promotion::default();
        p.tensor(I64, 2);
        p.tensor(F32, 0);
        assert_eq!(p.result(F32), F32);
        let mut p = Promotion::default();
        p.tensor(U8, 1);
        p.number(Category::Int, F32);
        assert_eq!(p.result(F32), U8);
        let mut p = Promotion::default();
        p.tensor(Bool, 1);
        p.number(Category::Float, F64);
        assert_eq!(p.result(F64), F64);
    }
}
