//! A row's formula and its specialisations: Programs for given dtypes, with their gradients.

use crate::backend::{Executable, Reduce};
use crate::dtype::{Compute, DType};
use crate::error::Result;
use crate::ops::args::Args;
use crate::ops::op::Op;
use crate::program::{Inst, Program, Source, Sym, Vjp, trace};
use crate::shape::Dims;
use crate::sync::lock::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// An elementwise row: a formula over operands and numbers.
pub struct Elementwise {
    /// The formula, traced per specialisation.
    pub formula: fn(&F) -> Sym,
    /// The row's own derivative, where the derived one is poor or PyTorch defines another.
    pub vjp: Option<Derivative>,
    /// Whether backward reads the result, as PyTorch saves it, instead of computing it again.
    pub saves_result: bool,
    /// Dtype classes that the formula is defined for.
    pub accept: Accept,
    /// How the result's dtype follows from the operands'.
    pub promote: Promote,
    /// How many of the number parameters, from the first, take part in promotion as number operands do.
    pub promoting: usize,
    /// The operand that is a condition: read as truth values, no part of promotion, without gradient or edge.
    pub mask: Option<usize>,
    /// Chooses among variants of the formula by arguments that are no operands (strings, flags).
    pub variant: fn(&Args) -> Result<u8>,
    /// Says why some operands are refused, in PyTorch's words.
    pub check: fn(&Args, DType) -> Result<()>,
    /// For a row whose values are summed into a smaller result: what that is, given the arguments and the index space.
    /// `None` for a call that keeps all values.
    pub reduce: Option<fn(&Args, &[usize]) -> Result<Option<Reduced>>>,
    /// Where the tests draw each operand; `(-1.5, 1.5)` without zero for those not listed.
    pub domain: &'static [(f64, f64)],
    /// What the tests give for number parameters that have no default.
    pub numbers: &'static [f64],
    /// The specialisations made so far.
    pub cache: Cache,
}

/// A result smaller than the index space, into which a formula's values are summed.
#[derive(Clone, PartialEq, Debug)]
pub struct Reduced {
    /// The result's shape.
    pub shape: Dims,
    /// The same with reduced dimensions of size 1, so that it broadcasts to the index space.
    pub aligned: Dims,
    /// What the sum is divided by, once, before it is rounded to the result's dtype.
    pub divisor: Option<f64>,
}

impl Reduced {
    /// The sum of all values.
    pub fn sum() -> Reduced {
        Reduced { shape: Dims::new(), aligned: Dims::new(), divisor: None }
    }

    /// The mean of all values of an index space.
    pub fn mean(sizes: &[usize]) -> Reduced {
        Reduced { divisor: Some(crate::shape::numel(sizes) as f64), ..Reduced::sum() }
    }

    /// The sum over some dimensions.
    pub fn over(sizes: &[usize], dims: &[usize], keepdim: bool) -> Reduced {
        let aligned: Dims = sizes.iter().enumerate().map(|(d, &s)| if dims.contains(&d) { 1 } else { s }).collect();
        let shape = match keepdim {
            true => aligned.clone(),
            false => sizes.iter().enumerate().filter(|(d, _)| !dims.contains(d)).map(|(_, &s)| s).collect(),
        };
        Reduced { shape, aligned, divisor: None }
    }
}
/// A row's own derivative: from the operands, the result `y` and its cotangent `g`, all in the type of computation, the
/// gradient of each operand, `None` where it is locally constant. Gradients of numbers are ignored.
pub type Derivative = fn(f: &F, y: Sym, g: Sym) -> Vec<Option<Sym>>;

/// Dtype classes that a formula is defined for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Accept {
    /// Truth values.
    pub bool: bool,
    /// Integers.
    pub int: bool,
    /// Floats.
    pub float: bool,
}

/// How the result's dtype follows from the operands'.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Promote {
    /// The promoted dtype of the operands.
    Same,
    /// The dtype of the first operand, whatever the others are.
    First,
    /// The same, integers becoming the default dtype.
    Float,
    /// Truth values, computed in the promoted dtype.
    Bool,
    /// Truth values, each operand taken as `!= 0`.
    Logical,
}

impl Elementwise {
    /// A formula for all numbers, truth values computed as integers.
    pub const fn numeric(formula: fn(&F) -> Sym) -> Elementwise {
        Elementwise {
            formula,
            vjp: None,
            saves_result: false,
            accept: Accept { bool: true, int: true, float: true },
            promote: Promote::Same,
            promoting: 0,
            mask: None,
            variant: |_| Ok(0),
            check: |_, _| Ok(()),
            reduce: None,
            domain: &[],
            numbers: &[],
            cache: Cache::new(),
        }
    }

    /// A formula for floats, to which integers are promoted.
    pub const fn float(formula: fn(&F) -> Sym) -> Elementwise {
        let mut rule = Elementwise::numeric(formula);
        rule.promote = Promote::Float;
        rule
    }

    /// A formula for floats only.
    pub const fn float_only(formula: fn(&F) -> Sym) -> Elementwise {
        let mut rule = Elementwise::numeric(formula);
        rule.accept = Accept { bool: false, int: false, float: true };
        rule
    }

    /// A comparison: truth values, computed in the promoted dtype.
    pub const fn comparison(formula: fn(&F) -> Sym) -> Elementwise {
        let mut rule = Elementwise::numeric(formula);
        rule.promote = Promote::Bool;
        rule
    }

    /// A formula over truth values: each operand is taken as `!= 0`.
    pub const fn logical(formula: fn(&F) -> Sym) -> Elementwise {
        let mut rule = Elementwise::numeric(formula);
        rule.promote = Promote::Logical;
        rule
    }

    /// A formula for integers and truth values.
    pub const fn bits(formula: fn(&F) -> Sym) -> Elementwise {
        let mut rule = Elementwise::numeric(formula);
        rule.accept = Accept { bool: true, int: true, float: false };
        rule
    }

    /// Backward reads the result.
    pub const fn saves_result(mut self) -> Elementwise {
        self.saves_result = true;
        self
    }

    /// The row states its own derivative.
    pub const fn vjp(mut self, vjp: Derivative) -> Elementwise {
        self.vjp = Some(vjp);
        self
    }

    /// Chooses among variants of the formula by arguments that are no operands.
    pub const fn variant(mut self, variant: fn(&Args) -> Result<u8>) -> Elementwise {
        self.variant = variant;
        self
    }

    /// Refuses some calls, in PyTorch's words.
    pub const fn check(mut self, check: fn(&Args, DType) -> Result<()>) -> Elementwise {
        self.check = check;
        self
    }

    /// The values are summed into a smaller result.
    pub const fn reduce(mut self, reduce: fn(&Args, &[usize]) -> Result<Option<Reduced>>) -> Elementwise {
        self.reduce = Some(reduce);
        self
    }

    /// Dtype classes other than the constructor's.
    pub const fn accept(mut self, accept: Accept) -> Elementwise {
        self.accept = accept;
        self
    }

    /// Truth values are refused.
    pub const fn no_bool(mut self) -> Elementwise {
        self.accept.bool = false;
        self
    }

    /// The first `n` number parameters take part in promotion.
    pub const fn promoting(mut self, n: usize) -> Elementwise {
        self.promoting = n;
        self
    }

    /// The result has the dtype of the first operand.
    pub const fn like_first(mut self) -> Elementwise {
        self.promote = Promote::First;
        self
    }

    /// Operand `k` is a condition.
    pub const fn mask(mut self, k: usize) -> Elementwise {
        self.mask = Some(k);
        self
    }

    /// Where the tests draw the operands.
    pub const fn domain(mut self, domain: &'static [(f64, f64)]) -> Elementwise {
        self.domain = domain;
        self
    }

    /// What the tests give for number parameters without default.
    pub const fn numbers(mut self, numbers: &'static [f64]) -> Elementwise {
        self.numbers = numbers;
        self
    }
}

/// What a formula is traced over.
pub struct F {
    operands: SmallVec<[Option<Sym>; 4]>,
    numbers: SmallVec<[Sym; 4]>,
    /// The variant chosen.
    pub variant: u8,
    /// The type in which the result is computed.
    pub ty: Compute,
    /// The promoted dtype.
    pub dtype: DType,
}

impl F {
    /// The k-th operand (tensor or number).
    pub fn x(&self, k: usize) -> Sym {
        self.operands[k].expect("a formula asks for absent operands only after `has`")
    }

    /// Whether the k-th operand is given.
    pub fn has(&self, k: usize) -> bool {
        self.operands[k].is_some()
    }

    /// The k-th number parameter, of those given.
    pub fn n(&self, k: usize) -> Sym {
        self.numbers[k]
    }

    /// A literal of the type of computation.
    pub fn literal(&self, v: f64) -> Sym {
        Sym::constant(self.ty, v)
    }
}

/// How an operand is given.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Given {
    Tensor(DType),
    Number,
    Absent,
}

/// What selects a specialisation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Key {
    pub operands: SmallVec<[Given; 4]>,
    pub numbers: u8,
    pub variant: u8,
    /// The promoted dtype of the operands.
    pub common: DType,
    /// Whether results are divided by a count, whose reciprocal is the last scalar.
    pub averaged: bool,
}

/// Specialisations of a row.
pub struct Cache {
    /// Those of the commonest calls: all tensors float32 or all float64, no variant.
    common: [OnceLock<&'static Spec>; 8],
    all: Mutex<Option<HashMap<Key, &'static Spec>>>,
}

impl Cache {
    /// None yet.
    pub const fn new() -> Cache {
        Cache { common: [const { OnceLock::new() }; 8], all: Mutex::new(None) }
    }
}

impl Default for Cache {
    fn default() -> Self {
        Cache::new()
    }
}

/// Gradients that are found by their mask of inputs alone.
const QUICK: usize = 8;

/// A Program for given dtypes, with the gradients derived from it.
pub struct Spec {
    /// The operation's name in messages.
    pub(super) op: &'static str,
    /// The graph node's name: `MulBackward0`.
    pub(super) node: Arc<str>,
    pub(super) executable: Executable,
    /// Dtypes of the program's inputs in memory.
    pub(super) inputs: SmallVec<[DType; 4]>,
    /// Dtypes of the outputs in memory.
    pub(super) outputs: SmallVec<[DType; 2]>,
    /// For each edge of the node the program input it belongs to; `None` for a number.
    pub(super) edges: SmallVec<[Option<u16>; 4]>,
    /// Names of the inputs, for the attributes that tools read.
    pub(super) names: SmallVec<[&'static str; 4]>,
    /// The row and key it was traced from, if it states its own derivative.
    own: Option<(&'static Elementwise, Key)>,
    saves_result: bool,
    /// Whether it has a derivative.
    pub(super) differentiable: bool,
    /// Whether it is the gradient of something. Where that does not depend on an input it has no gradient, instead of zeros,
    /// which a node further down might multiply by infinity.
    derived: bool,
    averaged: bool,
    quick: [OnceLock<&'static GradSpec>; QUICK],
    gradients: Mutex<Vec<(u32, &'static GradSpec)>>,
}

/// The gradient of a specialisation, for some inputs and cotangents: itself a specialisation.
pub struct GradSpec {
    /// Inputs: the cotangents, then `reads`; outputs: a gradient for each input that needs one.
    pub(super) spec: &'static Spec,
    /// Which forward values it reads after the cotangents.
    pub(super) reads: SmallVec<[Source; 3]>,
    /// The inputs, as a mask, that have an output: those asked for, less those on which nothing depends.
    pub(super) needs: u32,
    /// The inputs, as a mask, whose gradient was asked for and is zero whatever the values, though the result depends on them.
    pub(super) zeros: u32,
    /// For each output, if it is nothing but one of the inputs, which one: it need not be computed.
    pub(super) passes: SmallVec<[Option<u16>; 2]>,
    /// The inputs, as a mask, whose gradient is nothing but the first cotangent.
    pub(super) passing: u32,
}

impl Elementwise {
    /// The specialisation for a key.
    pub(super) fn specialise(&'static self, op: &'static Op, key: Key) -> &'static Spec {
        let mut all = self.cache.all.lock();
        let map = all.get_or_insert_with(HashMap::new);
        if let Some(spec) = map.get(&key) {
            return spec;
        }
        let spec: &'static Spec = Box::leak(Box::new(self.trace(op, &key)));
        map.insert(key, spec);
        spec
    }

    /// The specialisation of a call whose operands are tensors of one dtype, or one of them a number: slot `slot` of the
    /// cache, made from a key on first use.
    #[inline]
    pub(super) fn common(&'static self, op: &'static Op, slot: usize, key: impl FnOnce() -> Key) -> &'static Spec {
        self.cache.common[slot].get_or_init(|| self.specialise(op, key()))
    }

    /// The type in which a specialisation computes.
    fn compute(&self, key: &Key) -> Compute {
        match self.promote {
            Promote::Logical => Compute::Bool,
            _ if key.common == DType::Bool && !self.keeps_bool() => Compute::I64,
            _ => key.common.compute(),
        }
    }

    /// The operands and numbers of a specialisation, from a program's inputs and scalars.
    fn operands(&self, key: &Key, inputs: &[Sym], scalars: &[Sym]) -> F {
        let ty = self.compute(key);
        let (mut x, mut s) = (inputs.iter(), scalars.iter());
        let operands = key.operands.iter().enumerate().map(|(k, g)| match g {
            Given::Tensor(_) => x.next().map(|x| x.cast(if self.mask == Some(k) { Compute::Bool } else { ty })),
            Given::Number => s.next().copied(),
            Given::Absent => None,
        });
        let operands = operands.collect();
        F { operands, numbers: s.copied().collect(), variant: key.variant, ty, dtype: key.common }
    }

    fn trace(&'static self, op: &'static Op, key: &Key) -> Spec {
        let ty = self.compute(key);
        let dtypes: SmallVec<[DType; 4]> =
            key.operands.iter().filter_map(|g| if let Given::Tensor(d) = g { Some(*d) } else { None }).collect();
        let inputs: Vec<Compute> = dtypes.iter().map(|d| d.compute()).collect();
        let given_numbers = key.operands.iter().filter(|g| **g == Given::Number).count();
        let scalars = vec![ty; given_numbers + key.numbers as usize];
        let program = trace(&inputs, &scalars, |x, s| vec![(self.formula)(&self.operands(key, x, s))]);
        let result = match self.promote {
            Promote::Bool | Promote::Logical => DType::Bool,
            Promote::Same | Promote::First | Promote::Float => key.common,
        };
        let mut input = 0;
        let edges = key.operands.iter().map(|g| {
            let Given::Tensor(_) = g else { return None };
            input += 1;
            Some(input - 1)
        });
        // A condition has no edge.
        let edges = edges.enumerate().filter(|(k, _)| self.mask != Some(*k)).map(|(_, e)| e).collect();
        let program = cast_output(program, result);
        let names = op.params.iter().filter(|p| p.kind.is_operand()).map(|p| p.name);
        let given = key.operands.iter().zip(names).filter(|(g, _)| matches!(g, Given::Tensor(_)));
        Spec {
            op: op.rust,
            node: op.node.into(),
            names: given.map(|(_, n)| if n == "input" { "self" } else { n }).collect(),
            executable: Executable::new(program),
            inputs: dtypes,
            outputs: SmallVec::from_slice(&[result]),
            edges,
            own: self.vjp.map(|_| (self, key.clone())),
            saves_result: self.saves_result,
            differentiable: op.node != super::node::NOT_IMPLEMENTED,
            derived: false,
            averaged: key.averaged,
            quick: Default::default(),
            gradients: Mutex::default(),
        }
    }

    /// Whether truth values are computed as such instead of as integers.
    fn keeps_bool(&self) -> bool {
        !self.accept.float || matches!(self.promote, Promote::Bool)
    }
}

/// Appends the conversion of the result to the type that its dtype is stored from.
fn cast_output(program: Program, result: DType) -> Program {
    let have = program.types[program.outputs[0] as usize];
    if have == result.compute() {
        return program;
    }
    let mut program = program;
    let at = program.outputs[0];
    program.insts.push(Inst::Cast(at));
    program.types.push(result.compute());
    program.outputs[0] = program.insts.len() as u32 - 1;
    program
}

impl Spec {
    /// The gradient for the inputs in the mask `needs`, given the cotangents in the mask `present`.
    pub(super) fn gradient(&self, needs: u32, present: u32) -> &'static GradSpec {
        if present == 1 && needs < QUICK as u32 {
            return self.gradient_ref(needs);
        }
        let key = needs | present << 16;
        let mut known = self.gradients.lock();
        if let Some((_, g)) = known.iter().find(|(k, _)| *k == key) {
            return g;
        }
        let g: &'static GradSpec = Box::leak(Box::new(self.derive(needs, present)));
        known.push((key, g));
        g
    }

    /// All results, as a mask.
    #[inline]
    pub(super) fn all_results(&self) -> u32 {
        (1 << self.outputs.len()) - 1
    }

    /// The gradient of the commonest kind: one result, at most three inputs.
    #[inline]
    pub(super) fn gradient_ref(&self, needs: u32) -> &'static GradSpec {
        self.quick[needs as usize].get_or_init(|| Box::leak(Box::new(self.derive(needs, 1))))
    }

    fn derive(&self, wanted: u32, present: u32) -> GradSpec {
        let program = self.executable.program();
        let bits = |mask: u32, n: usize| -> Vec<bool> { (0..n).map(|k| mask >> k & 1 == 1).collect() };
        let needs = bits(wanted, program.inputs.len());
        let present = bits(present, program.outputs.len());
        let saved = vec![self.saves_result; program.outputs.len()];
        let own = |x: &[Sym], s: &[Sym], y: &[Sym], g: &[Option<Sym>]| self.stated(x, s, y, g);
        let own: Option<Vjp<'_>> = if self.own.is_some() { Some(&own) } else { None };
        let mut gradient = program.gradient(&needs, &present, &saved, own);
        let mut needs = needs;
        let mut zeros = 0;
        if self.derived {
            let results: Vec<usize> = (0..present.len()).filter(|&k| present[k]).collect();
            let read = program.project(&results).inputs_read();
            let mut depends = gradient.depends.iter();
            for (k, need) in needs.iter_mut().enumerate().filter(|(_, need)| **need) {
                *need = depends.next().copied().unwrap_or(false);
                zeros |= u32::from(!*need && read[k]) << k;
            }
            let kept: Vec<usize> = (0..gradient.depends.len()).filter(|&k| gradient.depends[k]).collect();
            gradient.program = gradient.program.project(&kept);
        }
        if self.averaged {
            gradient.program = gradient.program.scaled(present.iter().filter(|p| **p).count());
        }
        let cotangents = (0..present.len()).filter(|&k| present[k]).map(|k| self.outputs[k]);
        let reads: SmallVec<[Source; 3]> = gradient.reads.into();
        let read = reads.iter().map(|r| match *r {
            Source::Input(k) => self.inputs[k as usize],
            Source::Result(k) => self.outputs[k as usize],
        });
        let inputs: SmallVec<[DType; 4]> = cotangents.chain(read).collect();
        let outputs: SmallVec<[DType; 2]> = (0..needs.len()).filter(|&k| needs[k]).map(|k| self.inputs[k]).collect();
        let passes =
            gradient.program.outputs.iter().zip(&outputs).map(|(&o, dtype)| match gradient.program.insts[o as usize] {
                Inst::Input(k) if inputs[k as usize] == *dtype => Some(k),
                _ => None,
            });
        let passes: SmallVec<[Option<u16>; 2]> = passes.collect();
        let base = self
            .node
            .strip_suffix('0')
            .or(self.node.strip_suffix('1'))
            .or(self.node.strip_suffix('2'))
            .unwrap_or(&self.node);
        let grads = present.iter().filter(|p| **p).count();
        let names = (0..inputs.len()).map(|k| match k.checked_sub(grads).map(|k| reads[k]) {
            None => "grad",
            Some(Source::Input(k)) => self.names.get(k as usize).copied().unwrap_or("self"),
            Some(Source::Result(_)) => "result",
        });
        let spec = Spec {
            op: self.op,
            node: format!("{base}Backward0").into(),
            names: names.collect(),
            edges: (0..inputs.len() as u16).map(Some).collect(),
            executable: Executable::new(gradient.program),
            inputs,
            outputs,
            own: None,
            saves_result: false,
            differentiable: true,
            derived: true,
            averaged: false,
            quick: Default::default(),
            gradients: Mutex::default(),
        };
        let needs = needs.iter().enumerate().fold(0, |m, (k, n)| m | (*n as u32) << k);
        let mut wanted = (0..32u32).filter(|k| needs >> k & 1 == 1);
        let passing = passes.iter().filter_map(|p| Some((*p, wanted.next()?))).filter(|(p, _)| *p == Some(0));
        let passing = passing.fold(0, |m, (_, k)| m | 1 << k);
        GradSpec { spec: Box::leak(Box::new(spec)), reads, needs, zeros, passes, passing }
    }

    /// The gradients of the program's inputs by the row's own derivative.
    fn stated(&self, x: &[Sym], s: &[Sym], y: &[Sym], g: &[Option<Sym>]) -> Vec<Option<Sym>> {
        let (Some((row, key)), Some(g)) = (&self.own, g[0]) else { return vec![None; x.len()] };
        let Some(derivative) = row.vjp else { return vec![None; x.len()] };
        let f = row.operands(key, x, s);
        let grads = derivative(&f, y[0].cast(f.ty), g.cast(f.ty));
        let tensors = key.operands.iter().zip(grads).filter(|(g, _)| matches!(g, Given::Tensor(_)));
        tensors.zip(x).map(|((_, grad), x)| grad.filter(|_| x.ty().is_float()).map(|g| g.cast(x.ty()))).collect()
    }

    /// How values that fall together are combined when an output is smaller than the index space: gradients are summed.
    pub(super) const REDUCE: Reduce = Reduce::Sum;
}
