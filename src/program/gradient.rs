//! Reverse mode over a Program gives its gradient Program, which is a Program again: derivatives of any order, of every
//! elementwise operation, without a formula written by hand.

use super::build::trace;
use super::{Inst, Program, Reg, Sym};
use crate::dtype::Compute;
use std::collections::HashMap;

/// A derivative of one's own: `(inputs, scalars, results, cotangents) -> gradients of the inputs`. Given where the derived
/// one is numerically poor or PyTorch defines another subgradient.
pub type Vjp<'a> = &'a dyn Fn(&[Sym], &[Sym], &[Sym], &[Option<Sym>]) -> Vec<Option<Sym>>;

/// A value of the forward computation that a gradient Program reads.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Source {
    /// The k-th input.
    Input(u16),
    /// The k-th result.
    Result(u16),
}

/// A gradient Program and what it reads.
#[derive(Clone, Debug)]
pub struct Gradient {
    /// Inputs: the cotangents that are present, in order, then `reads`. Outputs: one per input that needs a gradient.
    /// Scalars: those of the forward program.
    pub program: Program,
    /// The forward values it reads after the cotangents.
    pub reads: Vec<Source>,
    /// For each output whether the results depend on that input at all; where not, the output is zero.
    pub depends: Vec<bool>,
}

impl Program {
    /// The gradient Program for the inputs that need one, given which outputs have a cotangent (an absent cotangent
    /// contributes nothing; it is not zeros). Results listed in `saved` are read as inputs of the gradient instead of being
    /// computed again. `own` replaces the derived rule.
    pub fn gradient(&self, needs: &[bool], present: &[bool], saved: &[bool], own: Option<Vjp<'_>>) -> Gradient {
        let (n, m) = (self.inputs.len(), self.outputs.len());
        let cotangents: Vec<usize> = (0..m).filter(|&k| present[k]).collect();
        let out_type = |k: usize| self.types[self.outputs[k] as usize];
        let mut types: Vec<Compute> = cotangents.iter().map(|&k| out_type(k)).collect();
        types.extend(&self.inputs);
        types.extend((0..m).map(out_type));
        let mut depends = Vec::new();
        let all = trace(&types, &self.scalars, |args, scalars| {
            let (g, rest) = args.split_at(cotangents.len());
            let (x, y) = rest.split_at(n);
            let mut cotangent = vec![None; m];
            cotangents.iter().zip(g).for_each(|(&k, &g)| cotangent[k] = Some(g));
            let known: HashMap<Reg, Sym> = (0..m).filter(|&k| saved[k]).map(|k| (self.outputs[k], y[k])).collect();
            let regs = self.inline(x, scalars, &known);
            let grads = match own {
                Some(vjp) => {
                    let results: Vec<Sym> = self.outputs.iter().map(|&o| regs[o as usize]).collect();
                    vjp(x, scalars, &results, &cotangent)
                }
                None => self.reverse(&regs, &cotangent),
            };
            let wanted = grads.into_iter().zip(&self.inputs).zip(needs).filter(|(_, needs)| **needs);
            let wanted: Vec<(Option<Sym>, Compute)> = wanted.map(|((g, &ty), _)| (g, ty)).collect();
            depends = wanted.iter().map(|(g, _)| g.is_some()).collect();
            wanted.into_iter().map(|(g, ty)| g.unwrap_or_else(|| Sym::constant(ty, 0.0))).collect()
        });
        all.prune(cotangents.len(), n, depends)
    }

    /// Cotangents of the inputs by reverse accumulation over the registers.
    fn reverse(&self, regs: &[Sym], cotangent: &[Option<Sym>]) -> Vec<Option<Sym>> {
        let mut grads: Vec<Option<Sym>> = vec![None; self.insts.len()];
        let add = |grads: &mut Vec<Option<Sym>>, at: Reg, g: Option<Sym>| {
            if let Some(g) = g
                && self.types[at as usize].is_float()
            {
                let slot = &mut grads[at as usize];
                *slot = Some(slot.map_or(g, |s| s + g));
            }
        };
        for (&o, &g) in self.outputs.iter().zip(cotangent) {
            add(&mut grads, o, g);
        }
        let mut inputs = vec![None; self.inputs.len()];
        for at in (0..self.insts.len()).rev() {
            let Some(g) = grads[at] else { continue };
            let r = |k: Reg| regs[k as usize];
            match self.insts[at] {
                Inst::Input(k) => inputs[k as usize] = Some(g),
                Inst::Scalar(_) | Inst::Const(_) => {}
                Inst::Unary(op, a) => add(&mut grads, a, op.vjp(g, r(a), regs[at])),
                Inst::Binary(op, a, b) => {
                    let [ga, gb] = op.vjp(g, r(a), r(b), regs[at]);
                    add(&mut grads, a, ga);
                    add(&mut grads, b, gb);
                }
                Inst::Select(c, a, b) => {
                    add(&mut grads, a, Some(Sym::select(r(c), g, g.zero())));
                    add(&mut grads, b, Some(Sym::select(r(c), g.zero(), g)));
                }
                Inst::Cast(a) if self.types[a as usize].is_float() => {
                    add(&mut grads, a, Some(g.cast(self.types[a as usize])));
                }
                Inst::Cast(_) => {}
            }
        }
        inputs
    }

    /// The program with its first `n` inputs, of one type, multiplied by one scalar more than it had.
    pub fn scaled(&self, n: usize) -> Program {
        let mut scalars = self.scalars.clone();
        scalars.extend(self.inputs.first());
        trace(&self.inputs, &scalars, |x, s| {
            let mut x = x.to_vec();
            if let Some(&factor) = s.last() {
                x.iter_mut().take(n).for_each(|x| *x = *x * factor);
            }
            let regs = self.inline(&x, s, &HashMap::new());
            self.outputs.iter().map(|&o| regs[o as usize]).collect()
        })
    }

    /// Drops the forward values that the program does not read; the first `cotangents` inputs stay.
    fn prune(mut self, cotangents: usize, forward_inputs: usize, depends: Vec<bool>) -> Gradient {
        let read = self.inputs_read();
        let mut renumbered = vec![0u16; read.len()];
        let (mut types, mut reads) = (Vec::new(), Vec::new());
        for k in 0..read.len() {
            if k < cotangents || read[k] {
                renumbered[k] = types.len() as u16;
                types.push(self.inputs[k]);
                if k >= cotangents {
                    let at = k - cotangents;
                    let input = at < forward_inputs;
                    reads.push(if input {
                        Source::Input(at as u16)
                    } else {
                        Source::Result((at - forward_inputs) as u16)
                    });
                }
            }
        }
        for inst in &mut self.insts {
            if let Inst::Input(k) = inst {
                *k = renumbered[*k as usize];
            }
        }
        self.inputs = types;
        Gradient { program: self, reads, depends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F: Compute = Compute::F64;

    fn reads(n: usize, saved: bool, formula: impl Fn(&[Sym], &[Sym]) -> Sym) -> Vec<Source> {
        let p = trace(&vec![F; n], &[F], |x, s| vec![formula(x, s)]);
        p.gradient(&vec![true; n], &[true], &[saved], None).reads
    }

    #[test]
    fn a_gradient_reads_what_pytorch_saves() {
        assert_eq!(reads(1, true, |x, _| x[0].exp()), [Source::Result(0)]);
        assert_eq!(reads(1, false, |x, _| x[0].sin()), [Source::Input(0)]);
        assert_eq!(reads(2, false, |x, _| x[0] * x[1]), [Source::Input(0), Source::Input(1)]);
        assert_eq!(reads(1, false, |x, s| x[0] * s[0]), []);
        assert_eq!(reads(2, false, |x, _| x[0] + x[1]), []);
    }

    #[test]
    fn an_absent_cotangent_contributes_nothing() {
        let p = trace(&[F], &[], |x, _| vec![x[0].sin(), x[0].cos()]);
        let g = p.gradient(&[true], &[true, false], &[false, false], None);
        assert_eq!(g.program.inputs.len(), 2);
        let both = p.gradient(&[true], &[true, true], &[false, false], None);
        assert!(both.program.len() > g.program.len());
    }
}
