//! Tracing: a formula is ordinary Rust over [`Sym`], and running it once writes the Program. The builder shares common
//! subexpressions and applies only rewrites that keep every bit: `x*1`, `x/1`, `x+(-0.0)`, `x-0`, `--x`, and folding of
//! literals under exact arithmetic. Never `x+0`, `x*0`, `x-x`, `x/x`, reciprocals, contraction or reassociation.

use super::{Binary, Inst, Program, Reg, Result_, Unary};
use crate::dtype::Compute;
use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::{Add, Div, Mul, Neg, Sub};

/// A register of the program being traced on this thread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sym(Reg);

#[derive(Default)]
struct Builder {
    program: Program,
    seen: HashMap<(Inst, Compute), Reg>,
}

thread_local!(static BUILDER: RefCell<Builder> = RefCell::default());

/// Traces a formula over `inputs` and `scalars` of the given types; what it returns are the program's outputs.
pub fn trace(inputs: &[Compute], scalars: &[Compute], formula: impl FnOnce(&[Sym], &[Sym]) -> Vec<Sym>) -> Program {
    // An inner trace (a derivative asked for while tracing) would find the outer program here: put it aside.
    let outer = BUILDER.with_borrow_mut(|b| {
        let fresh = Program { inputs: inputs.to_vec(), scalars: scalars.to_vec(), ..Program::default() };
        std::mem::replace(b, Builder { program: fresh, seen: HashMap::new() })
    });
    let x: Vec<Sym> = inputs.iter().enumerate().map(|(k, &t)| push(Inst::Input(k as u16), t)).collect();
    let s: Vec<Sym> = scalars.iter().enumerate().map(|(k, &t)| push(Inst::Scalar(k as u16), t)).collect();
    let outputs = formula(&x, &s);
    let mut program = BUILDER.with_borrow_mut(|b| std::mem::replace(b, outer)).program;
    program.outputs = outputs.iter().map(|s| s.0).collect();
    program.without_dead_code()
}

/// The bits of a literal of type `ty`.
fn bits(ty: Compute, v: f64) -> u64 {
    match ty {
        Compute::F32 => (v as f32).to_bits() as u64,
        Compute::F64 => v.to_bits(),
        Compute::I64 => v as i64 as u64,
        Compute::Bool => (v != 0.0) as u64,
    }
}

fn push(inst: Inst, ty: Compute) -> Sym {
    BUILDER.with_borrow_mut(|b| {
        let next = b.program.insts.len() as Reg;
        let at = *b.seen.entry((inst, ty)).or_insert(next);
        if at == next {
            b.program.insts.push(inst);
            b.program.types.push(ty);
        }
        Sym(at)
    })
}

impl Sym {
    fn inst(self) -> Inst {
        BUILDER.with_borrow(|b| b.program.insts[self.0 as usize])
    }

    /// The register's type.
    pub fn ty(self) -> Compute {
        BUILDER.with_borrow(|b| b.program.types[self.0 as usize])
    }

    /// A literal of this register's type.
    pub fn literal(self, v: f64) -> Sym {
        Sym::constant(self.ty(), v)
    }

    /// Zero of this register's type.
    pub fn zero(self) -> Sym {
        self.literal(0.0)
    }

    /// A literal.
    pub fn constant(ty: Compute, v: f64) -> Sym {
        push(Inst::Const(bits(ty, v)), ty)
    }

    /// `on` where `condition` (a bool register) holds, else `off`. Both sides are evaluated: select arguments, not results,
    /// where one side may overflow.
    pub fn select(condition: Sym, on: Sym, off: Sym) -> Sym {
        debug_assert_eq!((condition.ty(), on.ty()), (Compute::Bool, off.ty()));
        if on == off {
            return on;
        }
        push(Inst::Select(condition.0, on.0, off.0), on.ty())
    }

    /// Converted to another type: floats to integers truncate, everything to bool is `!= 0`.
    pub fn cast(self, ty: Compute) -> Sym {
        if self.ty() == ty {
            return self;
        }
        push(Inst::Cast(self.0), ty)
    }

    /// Whether it is NaN.
    pub fn is_nan(self) -> Sym {
        self.ne(self)
    }

    /// The square.
    pub fn square(self) -> Sym {
        self * self
    }

    pub(super) fn unary(op: Unary, x: Sym) -> Sym {
        if let (Unary::Neg, Inst::Unary(Unary::Neg, inner)) = (op, x.inst()) {
            return Sym(inner);
        }
        if let (Unary::Neg, Some(v)) = (op, x.float_literal()) {
            return Sym::constant(x.ty(), -v);
        }
        let ty = x.ty();
        push(Inst::Unary(op, x.0), if op.result() == Result_::Bool { Compute::Bool } else { ty })
    }

    pub(super) fn binary(op: Binary, l: Sym, r: Sym) -> Sym {
        let ty = l.ty();
        debug_assert_eq!(ty, r.ty(), "{op:?} of two types");
        if let Some(simpler) = Sym::rewrite(op, l, r).filter(|_| ty.is_float()) {
            return simpler;
        }
        // Commutative operations share their mirror image; NaN payloads apart, the bits are the same.
        let (l, r) = if matches!(op, Binary::Add | Binary::Mul) && l.0 > r.0 { (r, l) } else { (l, r) };
        push(Inst::Binary(op, l.0, r.0), if op.result() == Result_::Bool { Compute::Bool } else { ty })
    }

    fn float_literal(self) -> Option<f64> {
        match (self.inst(), self.ty()) {
            (Inst::Const(b), Compute::F32) => Some(f32::from_bits(b as u32) as f64),
            (Inst::Const(b), Compute::F64) => Some(f64::from_bits(b)),
            _ => None,
        }
    }

    /// The bit-exact simplifications of float arithmetic.
    fn rewrite(op: Binary, l: Sym, r: Sym) -> Option<Sym> {
        let (a, b) = (l.float_literal(), r.float_literal());
        if let (Some(x), Some(y)) = (a, b) {
            // Folding in f64 and rounding once more to f32 is exact for these four operations (double rounding is
            // innocuous when the wider format has at least 2p + 2 bits).
            let v = match op {
                Binary::Add => x + y,
                Binary::Sub => x - y,
                Binary::Mul => x * y,
                Binary::Div => x / y,
                _ => return None,
            };
            return Some(l.literal(v));
        }
        let is = |v: Option<f64>, want: f64| v.is_some_and(|v| v.to_bits() == want.to_bits());
        match op {
            Binary::Mul if is(b, 1.0) => Some(l),
            Binary::Mul if is(a, 1.0) => Some(r),
            Binary::Div if is(b, 1.0) => Some(l),
            Binary::Add if is(b, -0.0) => Some(l),
            Binary::Add if is(a, -0.0) => Some(r),
            Binary::Sub if is(b, 0.0) => Some(l),
            _ => None,
        }
    }
}

impl Neg for Sym {
    type Output = Sym;
    fn neg(self) -> Sym {
        Sym::unary(Unary::Neg, self)
    }
}

macro_rules! operator {
    ($($trait:ident $method:ident),*) => { $(
        impl $trait for Sym {
            type Output = Sym;
            fn $method(self, other: Sym) -> Sym { Sym::binary(Binary::$trait, self, other) }
        }
        impl $trait<f64> for Sym {
            type Output = Sym;
            fn $method(self, other: f64) -> Sym { Sym::binary(Binary::$trait, self, self.literal(other)) }
        }
    )* };
}
operator!(Add add, Sub sub, Mul mul, Div div);

impl Program {
    /// Writes this program's instructions again into the one being traced, on the given inputs and scalars. Registers for
    /// which `known` has an entry are taken from there instead of being computed. Returns all registers.
    pub(super) fn inline(&self, inputs: &[Sym], scalars: &[Sym], known: &HashMap<Reg, Sym>) -> Vec<Sym> {
        let mut regs: Vec<Sym> = Vec::with_capacity(self.insts.len());
        for (at, inst) in self.insts.iter().enumerate() {
            let sym = match (known.get(&(at as Reg)), *inst) {
                (Some(&sym), _) => sym,
                (None, Inst::Input(k)) => inputs[k as usize],
                (None, Inst::Scalar(k)) => scalars[k as usize],
                (None, inst) => push(inst.map(|r| regs[r as usize].0), self.types[at]),
            };
            regs.push(sym);
        }
        regs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Compute = Compute::F32;

    fn len(formula: impl FnOnce(Sym) -> Sym) -> usize {
        trace(&[F], &[], |x, _| vec![formula(x[0])]).len()
    }

    #[test]
    fn exact_rewrites_only() {
        assert_eq!(len(|x| x * 1.0), 0);
        assert_eq!(len(|x| x / 1.0), 0);
        assert_eq!(len(|x| x + -0.0), 0);
        assert_eq!(len(|x| x - 0.0), 0);
        assert_eq!(len(|x| -(-x)), 0);
        // Each of these changes some bit pattern: -0.0 + 0, NaN * 0, inf - inf, 0 / 0.
        assert_eq!(len(|x| x + 0.0), 1);
        assert_eq!(len(|x| x * 0.0), 1);
        assert_eq!(len(|x| x - x), 1);
        assert_eq!(len(|x| x / x), 1);
    }

    #[test]
    fn common_subexpressions_are_shared() {
        assert_eq!(len(|x| (x * 2.0).sin() + (x * 2.0).sin()), 3);
        let p = trace(&[F, F], &[], |x, _| vec![x[0] * x[1], x[1] * x[0]]);
        assert_eq!((p.len(), p.outputs[0]), (1, p.outputs[1]));
    }

    #[test]
    fn scalars_are_never_folded() {
        let p = trace(&[F], &[F], |x, s| vec![x[0] * s[0]]);
        assert_eq!(p.len(), 1);
    }
}
