//! A row's formula and its specialisations: Programs for given dtypes, with their gradients.

use crate::backend::{Executable, Reduce};
use crate::dtype::{Compute, DType};
use crate::error::Result;
use crate::ops::args::Args;
use crate::program::{Inst, Program, Source, Sym, Vjp, trace};
use parking_lot::Mutex;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

/// An elementwise row: a formula over operands and numbers.
pub struct Elementwise {
    /// The formula, traced per specialisation.
    pub formula: fn(&F) -> Sym,
    /// The row's own derivative, where the derived one is poor or PyTorch defines another.
    pub vjp: Option<Vjp>,
    /// Whether backward reads the result, as PyTorch saves it, instead of computing it again.
    pub saves_result: bool,
    /// Dtype classes that the formula is defined for.
    pub accept: Accept,
    /// How the result's dtype follows from the operands'.
    pub promote: Promote,
    /// Chooses among variants of the formula by arguments that are no operands (strings, flags).
    pub variant: fn(&Args) -> Result<u8>,
    /// Says why some operands are refused, in PyTorch's words.
    pub check: fn(&Args, DType) -> Result<()>,
    /// The specialisations made so far.
    pub cache: Cache,
}

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
            variant: |_| Ok(0),
            check: |_, _| Ok(()),
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
    pub const fn vjp(mut self, vjp: Vjp) -> Elementwise {
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

    /// Dtype classes other than the constructor's.
    pub const fn accept(mut self, accept: Accept) -> Elementwise {
        self.accept = accept;
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

    /// The k-th number parameter.
    pub fn n(&self, k: usize) -> Sym {
        self.numbers[k]
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
}

/// Specialisations of a row.
pub struct Cache {
    /// Those of the commonest calls: all tensors float32 or all float64, no variant.
    common: [OnceLock<Arc<Spec>>; 8],
    all: Mutex<Option<HashMap<Key, Arc<Spec>>>>,
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
    vjp: Option<Vjp>,
    saves_result: bool,
    gradients: Mutex<Vec<(u32, Arc<GradSpec>)>>,
}

/// The gradient of a specialisation, for some inputs and cotangents: itself a specialisation.
pub struct GradSpec {
    /// Inputs: the cotangents, then `reads`; outputs: a gradient for each input that needs one.
    pub(super) spec: Arc<Spec>,
    /// Which forward values it reads after the cotangents.
    pub(super) reads: SmallVec<[Source; 3]>,
    /// For each output, if it is nothing but one of the inputs, which one: it need not be computed.
    pub(super) passes: SmallVec<[Option<u16>; 2]>,
}

impl Elementwise {
    /// The specialisation for a key.
    pub(super) fn specialise(&self, op: &'static super::super::op::Op, key: Key) -> Arc<Spec> {
        let mut all = self.cache.all.lock();
        let map = all.get_or_insert_with(HashMap::new);
        if let Some(spec) = map.get(&key) {
            return spec.clone();
        }
        let spec = Arc::new(self.trace(op, &key));
        map.insert(key, spec.clone());
        spec
    }

    /// The specialisation of a call whose operands are tensors of one dtype, or one of them a number: slot `shape` of the
    /// cache, made from a key on first use.
    #[inline]
    pub(super) fn common(&self, op: &'static super::super::op::Op, slot: usize, key: impl FnOnce() -> Key) -> Arc<Spec> {
        self.cache.common[slot].get_or_init(|| self.specialise(op, key())).clone()
    }

    /// [`common`](Self::common) without a reference count.
    #[inline]
    pub(super) fn common_ref(&self, op: &'static super::super::op::Op, slot: usize, key: impl FnOnce() -> Key) -> &Arc<Spec> {
        self.cache.common[slot].get_or_init(|| self.specialise(op, key()))
    }

    fn trace(&self, op: &'static super::super::op::Op, key: &Key) -> Spec {
        let ty = match self.promote {
            Promote::Logical => Compute::Bool,
            _ if key.common == DType::Bool && !self.keeps_bool() => Compute::I64,
            _ => key.common.compute(),
        };
        let dtypes: SmallVec<[DType; 4]> =
            key.operands.iter().filter_map(|g| if let Given::Tensor(d) = g { Some(*d) } else { None }).collect();
        let inputs: Vec<Compute> = dtypes.iter().map(|d| d.compute()).collect();
        let given_numbers = key.operands.iter().filter(|g| **g == Given::Number).count();
        let scalars = vec![ty; given_numbers + key.numbers as usize];
        let program = trace(&inputs, &scalars, |x, s| {
            let (mut x, mut s) = (x.iter(), s.iter());
            let mut next_tensor = || x.next().map(|x| x.cast(ty));
            let mut operands = SmallVec::new();
            for g in &key.operands {
                operands.push(match g {
                    Given::Tensor(_) => next_tensor(),
                    Given::Number => s.next().copied(),
                    Given::Absent => None,
                });
            }
            let f = F { operands, numbers: s.copied().collect(), variant: key.variant, ty };
            vec![(self.formula)(&f)]
        });
        let result = match self.promote {
            Promote::Bool | Promote::Logical => DType::Bool,
            Promote::Same | Promote::Float => key.common,
        };
        let mut input = 0;
        let edges = key.operands.iter().map(|g| {
            let Given::Tensor(_) = g else { return None };
            input += 1;
            Some(input - 1)
        });
        let edges = edges.collect();
        let program = cast_output(program, result);
        let names = op.params.iter().map(|p| p.name);
        let given = key.operands.iter().zip(names).filter(|(g, _)| matches!(g, Given::Tensor(_)));
        Spec {
            op: op.rust,
            node: op.node.into(),
            names: given.map(|(_, n)| if n == "input" { "self" } else { n }).collect(),
            executable: Executable::new(program),
            inputs: dtypes,
            outputs: SmallVec::from_slice(&[result]),
            edges,
            vjp: self.vjp,
            saves_result: self.saves_result,
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
    pub(super) fn gradient(&self, needs: u32, present: u32) -> Arc<GradSpec> {
        let key = needs | present << 16;
        let mut known = self.gradients.lock();
        if let Some((_, g)) = known.iter().find(|(k, _)| *k == key) {
            return g.clone();
        }
        let g = Arc::new(self.derive(needs, present));
        known.push((key, g.clone()));
        g
    }

    fn derive(&self, needs: u32, present: u32) -> GradSpec {
        let program = self.executable.program();
        let bits = |mask: u32, n: usize| -> Vec<bool> { (0..n).map(|k| mask >> k & 1 == 1).collect() };
        let needs = bits(needs, program.inputs.len());
        let present = bits(present, program.outputs.len());
        let saved = vec![self.saves_result; program.outputs.len()];
        let gradient = program.gradient(&needs, &present, &saved, self.vjp);
        let cotangents = (0..present.len()).filter(|&k| present[k]).map(|k| self.outputs[k]);
        let reads: SmallVec<[Source; 3]> = gradient.reads.into();
        let read = reads.iter().map(|r| match *r {
            Source::Input(k) => self.inputs[k as usize],
            Source::Result(k) => self.outputs[k as usize],
        });
        let inputs: SmallVec<[DType; 4]> = cotangents.chain(read).collect();
        let outputs: SmallVec<[DType; 2]> = (0..needs.len()).filter(|&k| needs[k]).map(|k| self.inputs[k]).collect();
        let passes = gradient.program.outputs.iter().zip(&outputs).map(|(&o, dtype)| match gradient.program.insts[o as usize] {
            Inst::Input(k) if inputs[k as usize] == *dtype => Some(k),
            _ => None,
        });
        let passes = passes.collect();
        let base = self.node.strip_suffix('0').or(self.node.strip_suffix('1')).or(self.node.strip_suffix('2')).unwrap_or(&self.node);
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
            vjp: None,
            saves_result: false,
            gradients: Mutex::default(),
        };
        GradSpec { spec: Arc::new(spec), reads, passes }
    }

    /// How values that fall together are combined when an output is smaller than the index space: gradients are summed.
    pub(super) const REDUCE: Reduce = Reduce::Sum;
}
