//! Operations with a kernel of their own: the row brings a forward function and a derivative written with tensor methods,
//! which makes every higher derivative follow.

use super::args::{Arg, Args, Read};
use super::op::{Kind, Op, Outputs, Returns, Rule};
use crate::autograd::held::Visit;
use crate::autograd::mode::{self, GradMode};
use crate::autograd::node::{Backward, Call, Edge, Edges, Grads, Meta, Node, SavedAttribute};
use crate::autograd::saved::{self, SavedTensor, freed};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::few::MostlyOne;
use crate::shape::Layout;
use crate::sync::lock::Mutex;
use crate::tensor::Tensor;
use crate::threads::Stoppable;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::iter::repeat_n;

/// A structured row.
pub struct Structured {
    /// Computes the results, in memory of their own; recording is off meanwhile.
    pub forward: fn(&Args) -> Result<Outputs>,
    /// Gradients of the tensor arguments, one per edge, from those of the results; `None` if there is none.
    pub backward: Option<fn(&Context<'_>) -> Result<Grads>>,
    /// What backward reads.
    pub saves: &'static [Save],
}

/// A value kept for backward.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Save {
    /// A tensor argument, by edge number.
    Input(usize),
    /// A tensor argument that only the gradient of another edge reads: `(argument, gradient)`.
    InputFor(usize, usize),
    /// A result.
    Output(usize),
    /// An index tensor, or a list of them, by parameter number.
    Index(usize),
    /// Member `.1` of the list of index tensors that parameter `.0` is. Rows write [`Save::Index`].
    IndexOf(usize, usize),
}

/// What a derivative may read.
pub struct Context<'a> {
    node: &'a StructuredBackward,
    call: &'a Call<'a>,
    grads: &'a Grads,
}

impl Context<'_> {
    /// The gradient of result `k`, if there is one.
    pub fn grad(&self, k: usize) -> Option<Tensor> {
        self.grads.get(k).cloned().flatten()
    }

    /// Whether the gradient of edge `k` is asked for.
    pub fn needs(&self, k: usize) -> bool {
        self.call.needs(k)
    }

    /// The gradient for edge `k`, computed only if it is asked for and there is one for result 0.
    pub fn when(&self, k: usize, f: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Option<Tensor>> {
        match self.grads.first() {
            Some(Some(g)) if self.needs(k) => f(g).map(Some),
            _ => Ok(None),
        }
    }

    /// Tensor argument of edge `k`, if it was given.
    pub fn opt_input(&self, k: usize) -> Result<Option<Tensor>> {
        if self.node.inputs[k].is_none() { Ok(None) } else { self.input(k).map(Some) }
    }

    /// Saved tensor argument of edge `k`.
    ///
    /// # Errors
    /// `RuntimeError` if it was modified in place or freed.
    pub fn input(&self, k: usize) -> Result<Tensor> {
        self.unpack(|s| matches!(s, Save::Input(i) | Save::InputFor(i, _) if *i == k))
    }

    /// Saved index tensor of parameter `i`.
    ///
    /// # Errors
    /// `RuntimeError` if it was modified in place or freed.
    pub fn index(&self, i: usize) -> Result<Tensor> {
        self.unpack(|s| *s == Save::Index(i))
    }

    /// Saved list of index tensors of parameter `i`.
    ///
    /// # Errors
    /// `RuntimeError` if one was modified in place or freed.
    pub fn indices(&self, i: usize) -> Result<Vec<Option<Tensor>>> {
        let values = self.node.saved.lock().clone().ok_or_else(|| freed(self.call.node))?;
        let mut list = vec![None; self.int(i)? as usize];
        for (save, value) in values {
            if let Save::IndexOf(param, at) = save
                && param == i
            {
                list[at] = Some(value.unpack(self.call.node)?);
            }
        }
        Ok(list)
    }

    /// Saved result `k`.
    ///
    /// # Errors
    /// `RuntimeError` if it was modified in place or freed.
    pub fn output(&self, k: usize) -> Result<Tensor> {
        self.unpack(|s| *s == Save::Output(k))
    }

    fn unpack(&self, which: impl Fn(&Save) -> bool) -> Result<Tensor> {
        // Copied out of the lock: to unpack may run hooks.
        let value = {
            let saved = self.node.saved.lock();
            let values = saved.as_ref().ok_or_else(|| freed(self.call.node))?;
            values.iter().find(|(s, _)| which(s)).ok_or_else(|| missing(self.node.op))?.1.clone()
        };
        value.unpack(self.call.node)
    }

    /// The sizes that tensor argument of edge `k` had.
    pub fn sizes(&self, k: usize) -> &[usize] {
        self.node.inputs[k].as_ref().map_or(&[], |m| &m.sizes)
    }

    /// The dtype that tensor argument of edge `k` had.
    pub fn dtype(&self, k: usize) -> DType {
        self.node.inputs[k].as_ref().map_or(DType::F32, |m| m.dtype)
    }

    /// Whether tensor argument of edge `k` was a matrix that lay column-major, as a transposed one does.
    pub fn lies_transposed(&self, k: usize) -> bool {
        k < 8 && self.node.transposed >> k & 1 == 1
    }

    /// The layout that the first tensor argument of a view operation had.
    pub fn layout(&self) -> Option<&Layout> {
        self.node.layout.as_deref()
    }

    /// The number of edges.
    pub fn edges(&self) -> usize {
        self.node.inputs.len()
    }
}

impl Read for Context<'_> {
    /// An argument that is no tensor.
    fn arg(&self, i: usize) -> &Arg {
        self.node.args.arg(i)
    }
}

#[cold]
fn missing(op: &'static Op) -> Error {
    Error::runtime(op.rust, "internal error: the derivative reads a value that the row does not save")
}

type Derivative = fn(&Context<'_>) -> Result<Grads>;

/// The node.
struct StructuredBackward {
    op: &'static Op,
    name: &'static str,
    /// The arguments, tensors taken out.
    args: Box<[Arg]>,
    /// For each edge what the tensor was; `None` if it was not given.
    inputs: SmallVec<[Option<Meta>; 2]>,
    layout: Option<Box<Layout>>,
    /// Which of the first eight edges were column-major matrices, a bit each.
    transposed: u8,
    derivative: Derivative,
    /// Whether it saved anything.
    keeps: bool,
    /// Forward values; `None` once freed, if there were any.
    saved: Mutex<Option<SmallVec<[(Save, SavedTensor); 1]>>>,
}

/// Runs a structured row.
pub(super) fn forward(op: &'static Op, rule: &Structured, args: &Args) -> Result<Outputs> {
    let recording = mode::is_grad_enabled();
    let mut outputs = {
        let (_mode, _fresh) = (GradMode::set(false), Stoppable::fresh());
        (rule.forward)(args)?
    };
    match rule.backward {
        Some(derivative) if recording && !op.node.is_empty() => {
            record(op, args, None, derivative, rule.saves, &mut outputs)?
        }
        _ if mode::is_inference_mode() => outputs.iter().for_each(Tensor::mark_inference),
        _ => {}
    }
    Ok(outputs)
}

/// The tensor arguments, one for each edge.
fn edge_tensors<'a>(op: &'static Op, args: &'a Args) -> SmallVec<[Option<&'a Tensor>; 2]> {
    let mut tensors = SmallVec::new();
    for (param, arg) in op.params.iter().zip(args) {
        match (param.kind, arg) {
            (Kind::Tensor | Kind::OptTensor | Kind::Operand | Kind::OptOperand, Arg::Tensor(t)) => {
                tensors.push(Some(t))
            }
            (Kind::Tensor | Kind::OptTensor | Kind::Operand | Kind::OptOperand, _) => tensors.push(None),
            (_, Arg::Tensors(list)) => tensors.extend(list.iter().map(Some)),
            // Indices have no gradient and no edge.
            _ => {}
        }
    }
    tensors
}

/// Makes the node of a call, if any argument requires a gradient, and hangs the float results on it.
pub(super) fn record(
    op: &'static Op,
    args: &Args,
    layout: Option<&Layout>,
    derivative: Derivative,
    saves: &'static [Save],
    outputs: &mut [Tensor],
) -> Result<()> {
    record_as(op.node, op, args, layout, derivative, saves, outputs)
}

/// [`record`] with a name for the node that is not the row's.
pub(super) fn record_as(
    name: &'static str,
    op: &'static Op,
    args: &Args,
    layout: Option<&Layout>,
    derivative: Derivative,
    saves: &'static [Save],
    outputs: &mut [Tensor],
) -> Result<()> {
    let tensors = edge_tensors(op, args);
    let needs = |k: usize| tensors.get(k).is_some_and(|t| t.is_some_and(|t| t.requires_grad()));
    if !(0..tensors.len()).any(needs) {
        return Ok(());
    }
    let results = MostlyOne::of(outputs, |out| out.look(Meta::of));
    if !results.iter().any(|meta| meta.dtype.is_float()) {
        return Ok(());
    }
    let mut saved = SmallVec::new();
    for &save in saves {
        let value = match save {
            Save::InputFor(_, of) if !needs(of) => continue,
            Save::Input(k) | Save::InputFor(k, _) => match tensors[k] {
                Some(t) => SavedTensor::input(op.rust, t, t.body())?,
                None => continue,
            },
            Save::Output(k) => SavedTensor::result(op.rust, outputs[k].body(), k as u32)?,
            Save::Index(i) | Save::IndexOf(i, _) => match &args[i] {
                Arg::Tensor(t) => SavedTensor::input(op.rust, t, t.body())?,
                Arg::OptTensors(list) => {
                    for (at, t) in list.iter().enumerate() {
                        if let Some(t) = t {
                            saved.push((Save::IndexOf(i, at), SavedTensor::input(op.rust, t, t.body())?));
                        }
                    }
                    continue;
                }
                _ => continue,
            },
        };
        saved.push((save, value));
    }
    let (mut edges, mut inputs, mut transposed) = (Edges::None, SmallVec::new(), 0);
    for (k, tensor) in tensors.iter().enumerate() {
        let Some(tensor) = tensor else {
            edges.push(Edge::NONE);
            inputs.push(None);
            continue;
        };
        let (edge, (meta, turned)) = tensor.edge_and(|body| (Meta::of(body), column_major(&body.layout)))?;
        edges.push(edge);
        inputs.push(Some(meta));
        if k < 8 {
            transposed |= (turned as u8) << k;
        }
    }
    let body = StructuredBackward {
        op,
        name,
        args: without_tensors(args),
        inputs,
        layout: layout.map(|l| Box::new(l.clone())),
        transposed,
        derivative,
        keeps: !saved.is_empty(),
        saved: Mutex::new(Some(saved)),
    };
    let node = Node::shared(edges, results, body);
    let nodes = repeat_n(node, outputs.len());
    for (nr, (out, node)) in outputs.iter_mut().zip(nodes).enumerate() {
        if node.outputs[nr].dtype.is_float() {
            out.become_output(Edge::new(node, nr as u32));
        }
    }
    Ok(())
}

fn column_major(layout: &Layout) -> bool {
    match (&layout.sizes[..], &layout.strides[..]) {
        ([m, n], [1, step]) => *m > 1 && *n > 1 && *step >= *m as isize,
        _ => false,
    }
}

/// Arguments as the node keeps them: tensors only as saved values, of a list of index tensors its length; up to the last one of
/// which anything is left, which often is none.
fn without_tensors(args: &Args) -> Box<[Arg]> {
    let kept = |arg: &Arg| !matches!(arg, Arg::None | Arg::Tensor(_) | Arg::Tensors(_));
    let n = args.iter().rposition(kept).map_or(0, |last| last + 1);
    let without = |arg: &Arg| match arg {
        Arg::Tensor(_) | Arg::Tensors(_) => Arg::None,
        Arg::OptTensors(list) => Arg::Int(list.len() as i64),
        other => other.clone(),
    };
    if n == 0 { Box::default() } else { args[..n].iter().map(without).collect() }
}

impl Backward for StructuredBackward {
    fn name(&self) -> Cow<'static, str> {
        self.name.into()
    }

    fn backward(&self, call: &Call<'_>, grads: Grads) -> Result<Grads> {
        if grads.iter().all(Option::is_none) {
            return Ok(Grads::from_elem(None, call.node.edges.len()));
        }
        (self.derivative)(&Context { node: self, call, grads: &grads })
    }

    fn weight(&self) -> f64 {
        // A view's derivative most often is another view.
        if matches!(self.op.rule, Rule::View(_)) { 0.3 } else { 4.0 }
    }

    fn release(&self) {
        if !self.keeps {
            return;
        }
        let mut saved = self.saved.lock();
        let old = saved.take();
        drop(saved);
        drop(old);
    }

    fn saved(&self) -> Vec<(Cow<'static, str>, SavedAttribute)> {
        let names = self.names();
        let saved = self.saved.lock();
        let tensors = saved.iter().flatten().map(|(save, value)| {
            let name = match *save {
                Save::Input(k) | Save::InputFor(k, _) => names.get(k).copied().unwrap_or("tensors").into(),
                Save::Output(k) => self.result(k),
                Save::Index(i) | Save::IndexOf(i, _) => self.op.params[i].name.into(),
            };
            let value = match *save {
                Save::IndexOf(_, at) => SavedAttribute::Member(at, Some(value.clone())),
                _ => SavedAttribute::Tensor(value.clone()),
            };
            (name, value)
        });
        tensors.collect()
    }

    fn freed(&self) -> Option<Vec<Cow<'static, str>>> {
        let params = self.op.params.iter().map(|p| Cow::Borrowed(p.name));
        let results = (0..4).map(|k| self.result(k));
        self.saved.lock().is_none().then(|| params.chain(["self".into()]).chain(results).collect())
    }

    fn replace_saved(&self, k: usize, value: SavedTensor) -> bool {
        saved::replace(&self.saved, k, value)
    }

    fn held(&self, visit: &mut Visit<'_>) {
        saved::held_in(&self.saved, visit);
    }
}

impl StructuredBackward {
    /// PyTorch's names of the tensor arguments, one for each edge.
    fn names(&self) -> Vec<&'static str> {
        let tensors = |kind| matches!(kind, Kind::Tensor | Kind::OptTensor | Kind::Operand | Kind::OptOperand);
        let params = self.op.params.iter().filter(|p| tensors(p.kind));
        params.map(|p| if p.name == "input" { "self" } else { p.name }).collect()
    }

    /// PyTorch's name of result `k`.
    fn result(&self, k: usize) -> Cow<'static, str> {
        match self.op.returns {
            Returns::Fields(names) if k < names.len() => names[k].into(),
            Returns::Tuple => format!("result{k}").into(),
            _ => "result".into(),
        }
    }
}
