//! The table of primitives: for each its code per compute type, its derivative in primitives, and what it is. Every
//! consumer (instruction enums, derivatives, CPU kernels) expands the same table, so a primitive is added in one place.
//!
//! A row reads: `Name method { float: CODE, int: CODE, bool: CODE } -> same|bool, vjp, doc`. CODE is `(each x => expr)`,
//! expanded into a loop for each type of the class; `(block f)`, a function of the backend's math module over a whole
//! block; or `(-)`, which the type does not have. A derivative is written over [`Sym`](super::Sym); `none` means that the
//! primitive is locally constant and sends nothing back.

/// Hands the table to the macro named.
macro_rules! for_each_primitive {
    ($consumer:ident) => {
        $consumer! {
            unary {
                Neg neg { float: (each x => -x), int: (each x => x.wrapping_neg()), bool: (-) } -> same,
                    (|g, x, y| -g), "Negation; integers wrap.";
                Abs abs { float: (each x => x.abs()), int: (each x => x.wrapping_abs()), bool: (-) } -> same,
                    (|g, x, y| g * x.sign()), "Absolute value.";
                Sign sign { float: (each x => if x > 0.0 { 1.0 } else if x < 0.0 { -1.0 } else { 0.0 }), int: (each x => x.signum()), bool: (each x => x) } -> same,
                    (none), "-1, 0 or 1; 0 for NaN, as in PyTorch.";
                Floor floor { float: (each x => x.floor()), int: (each x => x), bool: (-) } -> same,
                    (none), "Largest integer not above.";
                Ceil ceil { float: (each x => x.ceil()), int: (each x => x), bool: (-) } -> same,
                    (none), "Smallest integer not below.";
                Trunc trunc { float: (each x => x.trunc()), int: (each x => x), bool: (-) } -> same,
                    (none), "Integer part.";
                Round round { float: (each x => x.round_ties_even()), int: (each x => x), bool: (-) } -> same,
                    (none), "Nearest integer, ties to even.";
                Sqrt sqrt { float: (each x => x.sqrt()), int: (-), bool: (-) } -> same,
                    (|g, x, y| g / (y + y)), "Square root.";
                Rsqrt rsqrt { float: (each x => 1.0 / x.sqrt()), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (y * y * y) * -0.5), "Reciprocal of the square root.";
                Recip reciprocal { float: (each x => 1.0 / x), int: (-), bool: (-) } -> same,
                    (|g, x, y| -(g * (y * y))), "Reciprocal.";
                Exp exp { float: (block exp), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * y), "e to the power of x.";
                Exp2 exp2 { float: (block exp2), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * y * std::f64::consts::LN_2), "2 to the power of x.";
                Expm1 expm1 { float: (block expm1), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (y + 1.0)), "exp(x) - 1 without cancellation.";
                Log log { float: (block log), int: (-), bool: (-) } -> same,
                    (|g, x, y| g / x), "Natural logarithm.";
                Log2 log2 { float: (block log2), int: (-), bool: (-) } -> same,
                    (|g, x, y| g / (x * std::f64::consts::LN_2)), "Logarithm to base 2.";
                Log10 log10 { float: (block log10), int: (-), bool: (-) } -> same,
                    (|g, x, y| g / (x * std::f64::consts::LN_10)), "Logarithm to base 10.";
                Log1p log1p { float: (block log1p), int: (-), bool: (-) } -> same,
                    (|g, x, y| g / (x + 1.0)), "log(1 + x) without cancellation.";
                Sin sin { float: (block sin), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * x.cos()), "Sine of radians.";
                Cos cos { float: (block cos), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * -x.sin()), "Cosine of radians.";
                Tan tan { float: (block tan), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (y * y + 1.0)), "Tangent of radians.";
                Asin asin { float: (block asin), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (-x * x + 1.0).rsqrt()), "Inverse sine.";
                Acos acos { float: (block acos), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * -(-x * x + 1.0).rsqrt()), "Inverse cosine.";
                Atan atan { float: (block atan), int: (-), bool: (-) } -> same,
                    (|g, x, y| g / (x * x + 1.0)), "Inverse tangent.";
                Sinh sinh { float: (block sinh), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * x.cosh()), "Hyperbolic sine.";
                Cosh cosh { float: (block cosh), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * x.sinh()), "Hyperbolic cosine.";
                Tanh tanh { float: (block tanh), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (-(y * y) + 1.0)), "Hyperbolic tangent.";
                Asinh asinh { float: (block asinh), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (x * x + 1.0).rsqrt()), "Inverse hyperbolic sine.";
                Acosh acosh { float: (block acosh), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (x * x - 1.0).rsqrt()), "Inverse hyperbolic cosine.";
                Atanh atanh { float: (block atanh), int: (-), bool: (-) } -> same,
                    (|g, x, y| g / (-(x * x) + 1.0)), "Inverse hyperbolic tangent.";
                Erf erf { float: (block erf), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (-(x * x)).exp() * std::f64::consts::FRAC_2_SQRT_PI), "Error function.";
                Erfc erfc { float: (block erfc), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (-(x * x)).exp() * -std::f64::consts::FRAC_2_SQRT_PI), "Complementary error function.";
                Erfcx erfcx { float: (block erfcx), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (x * y * 2.0 - std::f64::consts::FRAC_2_SQRT_PI)), "exp(x^2) erfc(x).";
                Erfinv erfinv { float: (block erfinv), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (y * y).exp() / std::f64::consts::FRAC_2_SQRT_PI), "Inverse error function.";
                Ndtri ndtri { float: (block ndtri), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * (y * y * 0.5).exp() * 2.506_628_274_631_000_5), "Inverse of the normal distribution function.";
                Sigmoid sigmoid { float: (block sigmoid), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * ((-y + 1.0) * y)), "1 / (1 + exp(-x)).";
                Lgamma lgamma { float: (block lgamma), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * x.digamma()), "Logarithm of the absolute value of the gamma function.";
                Digamma digamma { float: (block digamma), int: (-), bool: (-) } -> same,
                    (|g, x, y| g * x.literal(1.0).polygamma(x)), "Logarithmic derivative of the gamma function.";
                Not not { float: (-), int: (each x => !x), bool: (each x => x ^ 1) } -> same,
                    (none), "Logical not; bitwise for integers.";
            }
            binary {
                Add add { float: (each x, y => x + y), int: (each x, y => x.wrapping_add(y)), bool: (-) } -> same,
                    (|g, l, r, y| [Some(g), Some(g)]), "Sum.";
                Sub sub { float: (each x, y => x - y), int: (each x, y => x.wrapping_sub(y)), bool: (-) } -> same,
                    (|g, l, r, y| [Some(g), Some(-g)]), "Difference.";
                Mul mul { float: (each x, y => x * y), int: (each x, y => x.wrapping_mul(y)), bool: (-) } -> same,
                    (|g, l, r, y| [Some(g * r), Some(g * l)]), "Product.";
                Div div { float: (each x, y => x / y), int: (-), bool: (-) } -> same,
                    (|g, l, r, y| [Some(g / r), Some(-g * (y / r))]), "Quotient.";
                Pow pow { float: (block pow), int: (each x, y => integer::pow(x, y)), bool: (-) } -> same,
                    (|g, l, r, y| {
                        // The power rule, with the two places where it would compute 0 * inf selected away.
                        let base = Sym::select(r.eq(r.zero()), g.zero(), g * (r * l.pow(r - 1.0)));
                        let flat = l.eq(l.zero()).and(r.ge(r.zero()));
                        let exponent = Sym::select(flat, g.zero(), g * (y * Sym::select(flat, l.literal(1.0), l).log()));
                        [Some(base), Some(exponent)]
                    }), "x to the power of y, as IEEE 754 and C define it.";
                Atan2 atan2 { float: (block atan2), int: (-), bool: (-) } -> same,
                    (|g, l, r, y| {
                        let square = l * l + r * r;
                        let origin = square.eq(square.zero());
                        let scaled = Sym::select(origin, g.zero(), g / Sym::select(origin, square.literal(1.0), square));
                        [Some(scaled * r), Some(scaled * -l)]
                    }), "Angle of the point (y, x).";
                Hypot hypot { float: (block hypot), int: (-), bool: (-) } -> same,
                    (|g, l, r, y| [Some(g * (l / y)), Some(g * (r / y))]), "Length of the vector (x, y) without overflow.";
                Fmod fmod { float: (block fmod), int: (each x, y => integer::fmod(x, y)), bool: (-) } -> same,
                    (|g, l, r, y| [Some(g), Some(-g * (l / r).trunc())]), "Remainder with the sign of the dividend.";
                Remainder remainder { float: (block remainder), int: (each x, y => integer::remainder(x, y)), bool: (-) } -> same,
                    (|g, l, r, y| [Some(g), Some(-g * l.floor_div(r))]), "Remainder with the sign of the divisor.";
                FloorDiv floor_div { float: (block floor_div), int: (each x, y => integer::floor_div(x, y)), bool: (-) } -> same,
                    (none), "Quotient rounded down.";
                TruncDiv trunc_div { float: (each x, y => (x / y).trunc()), int: (each x, y => integer::trunc_div(x, y)), bool: (-) } -> same,
                    (none), "Quotient rounded towards zero.";
                Max maximum { float: (each x, y => if x > y || x.is_nan() { x } else { y }), int: (each x, y => if x > y { x } else { y }), bool: (each x, y => x | y) } -> same,
                    (|g, l, r, y| {
                        let half = Sym::select(l.eq(r), g * 0.5, g);
                        [Some(Sym::select(l.lt(r), g.zero(), half)), Some(Sym::select(l.gt(r), g.zero(), half))]
                    }), "The larger; NaN wins.";
                Min minimum { float: (each x, y => if x < y || x.is_nan() { x } else { y }), int: (each x, y => if x < y { x } else { y }), bool: (each x, y => x & y) } -> same,
                    (|g, l, r, y| {
                        let half = Sym::select(l.eq(r), g * 0.5, g);
                        [Some(Sym::select(l.gt(r), g.zero(), half)), Some(Sym::select(l.lt(r), g.zero(), half))]
                    }), "The smaller; NaN wins.";
                Copysign copysign { float: (each x, y => x.copysign(y)), int: (-), bool: (-) } -> same,
                    (|g, l, r, y| {
                        let same_sign = y.eq(l);
                        let d = Sym::select(l.eq(l.zero()), g.zero(), Sym::select(same_sign, g, -g));
                        [Some(d), None]
                    }), "The magnitude of x with the sign of y.";
                Nextafter nextafter { float: (block nextafter), int: (-), bool: (-) } -> same,
                    (none), "The next representable number towards y.";
                Polygamma polygamma { float: (block polygamma), int: (-), bool: (-) } -> same,
                    (|g, l, r, y| [None, Some(g * (l + 1.0).polygamma(r))]), "The n-th derivative of digamma at x, n first.";
                Eq eq { float: (each x, y => x == y), int: (each x, y => x == y), bool: (each x, y => x == y) } -> bool,
                    (none), "Whether equal.";
                Ne ne { float: (each x, y => x != y), int: (each x, y => x != y), bool: (each x, y => x != y) } -> bool,
                    (none), "Whether different.";
                Lt lt { float: (each x, y => x < y), int: (each x, y => x < y), bool: (each x, y => x < y) } -> bool,
                    (none), "Whether smaller.";
                Le le { float: (each x, y => x <= y), int: (each x, y => x <= y), bool: (each x, y => x <= y) } -> bool,
                    (none), "Whether smaller or equal.";
                Gt gt { float: (each x, y => x > y), int: (each x, y => x > y), bool: (each x, y => x > y) } -> bool,
                    (none), "Whether larger.";
                Ge ge { float: (each x, y => x >= y), int: (each x, y => x >= y), bool: (each x, y => x >= y) } -> bool,
                    (none), "Whether larger or equal.";
                And and { float: (-), int: (each x, y => x & y), bool: (each x, y => x & y) } -> same,
                    (none), "Logical and; bitwise for integers.";
                Or or { float: (-), int: (each x, y => x | y), bool: (each x, y => x | y) } -> same,
                    (none), "Logical or; bitwise for integers.";
                Xor xor { float: (-), int: (each x, y => x ^ y), bool: (each x, y => x ^ y) } -> same,
                    (none), "Exclusive or; bitwise for integers.";
                Shl shl { float: (-), int: (each x, y => integer::shl(x, y)), bool: (-) } -> same,
                    (none), "Bits shifted up.";
                Shr shr { float: (-), int: (each x, y => integer::shr(x, y)), bool: (-) } -> same,
                    (none), "Bits shifted down, the sign kept.";
            }
        }
    };
}
pub(crate) use for_each_primitive;

use super::build::Sym;

/// The type of a primitive's result.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Result_ {
    /// That of its operands.
    Same,
    /// A truth value.
    Bool,
}

macro_rules! result {
    (same) => {
        Result_::Same
    };
    (bool) => {
        Result_::Bool
    };
}

macro_rules! has {
    ((-)) => {
        false
    };
    ($($code:tt)*) => {
        true
    };
}

macro_rules! unary_vjp {
    ((none), $g0:ident, $x0:ident, $y0:ident) => {
        None
    };
    ((|$g:ident, $x:ident, $y:ident| $e:expr), $g0:ident, $x0:ident, $y0:ident) => {{
        let ($g, $x, $y): (Sym, Sym, Sym) = ($g0, $x0, $y0);
        Some($e)
    }};
}

macro_rules! binary_vjp {
    ((none), $g0:ident, $l0:ident, $r0:ident, $y0:ident) => {
        [None, None]
    };
    ((|$g:ident, $l:ident, $r:ident, $y:ident| $e:expr), $g0:ident, $l0:ident, $r0:ident, $y0:ident) => {{
        let ($g, $l, $r, $y): (Sym, Sym, Sym, Sym) = ($g0, $l0, $r0, $y0);
        $e
    }};
}

macro_rules! define {
    (unary { $($u:ident $um:ident { float: $uf:tt, int: $ui:tt, bool: $ub:tt } -> $ur:ident, $uv:tt, $ud:literal;)* }
     binary { $($b:ident $bm:ident { float: $bf:tt, int: $bi:tt, bool: $bb:tt } -> $br:ident, $bv:tt, $bd:literal;)* }) => {
        /// Primitives of one operand.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Unary { $(#[doc = $ud] $u),* }
        /// Primitives of two operands.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Binary { $(#[doc = $bd] $b),* }

        #[allow(unused_variables, reason = "a derivative names only what it reads")]
        impl Unary {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Unary] = &[$(Unary::$u),*];
            /// The type of the result.
            pub const fn result(self) -> Result_ { match self { $(Unary::$u => result!($ur)),* } }
            /// Whether floats, integers and truth values have it.
            pub const fn classes(self) -> (bool, bool, bool) { match self { $(Unary::$u => (has!($uf), has!($ui), has!($ub))),* } }
            /// The cotangent of the operand `x`, given that of the result `y`; `None` if locally constant.
            pub(super) fn vjp(self, g: Sym, x: Sym, y: Sym) -> Option<Sym> {
                match self { $(Unary::$u => unary_vjp!($uv, g, x, y)),* }
            }
        }

        #[allow(unused_variables, reason = "a derivative names only what it reads")]
        impl Binary {
            /// All of them, in the order of the table.
            pub const ALL: &'static [Binary] = &[$(Binary::$b),*];
            /// The type of the result.
            pub const fn result(self) -> Result_ { match self { $(Binary::$b => result!($br)),* } }
            /// Whether floats, integers and truth values have it.
            pub const fn classes(self) -> (bool, bool, bool) { match self { $(Binary::$b => (has!($bf), has!($bi), has!($bb))),* } }
            /// The cotangents of the operands, given that of the result `y`; `None` where locally constant.
            pub(super) fn vjp(self, g: Sym, l: Sym, r: Sym, y: Sym) -> [Option<Sym>; 2] {
                match self { $(Binary::$b => binary_vjp!($bv, g, l, r, y)),* }
            }
        }

        #[allow(clippy::should_implement_trait, reason = "the table names the methods; the operators are there too")]
        impl Sym {
            $(#[doc = $ud] pub fn $um(self) -> Sym { Sym::unary(Unary::$u, self) })*
            $(#[doc = $bd] pub fn $bm(self, other: Sym) -> Sym { Sym::binary(Binary::$b, self, other) })*
        }
    };
}

for_each_primitive!(define);
