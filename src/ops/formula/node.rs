//! The graph node of every elementwise operation: it runs the gradient Program of its specialisation.

use super::fast;
use super::run::{apply, execute, results};
use super::spec::{GradSpec, Spec};
use crate::autograd::held::Visit;
use crate::autograd::mode;
use crate::autograd::node::{Backward, Call, Edge, Edges, Grads, Meta, Node, NodeRef, SavedAttribute};
use crate::autograd::saved::{self, SavedTensor, freed};
use crate::backend::{Sink, Source as Values};
use crate::error::{Result, bail};
use crate::few::MostlyOne;
use crate::ops::inplace;
use crate::program::Source;
use crate::scalar::Scalar;
use crate::shape::{Dims, Layout, expandable, numel};
use crate::storage::Storage;
use crate::sync::lock::Mutex;
use crate::tensor::{Body, State, Tensor};
use smallvec::{SmallVec, smallvec};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the node keeps.
struct ElementwiseBackward {
    spec: &'static Spec,
    /// Whether it was recorded on the fast path: operands and result are plain, and they and the gradients are of one shape
    /// and float dtype.
    plain: bool,
    /// The inputs, as a mask, that needed a gradient.
    needs: u32,
    shapes: Option<Box<Shapes>>,
    scalars: MostlyOne<Scalar>,
    /// Forward values, as the gradient for `needs` reads them; `None` once freed.
    saved: Mutex<Option<Saved>>,
    /// Whether any are there. Changed under the lock.
    keeps: AtomicBool,
}

/// Shapes that are not those of the output.
struct Shapes {
    /// The index space.
    sizes: Dims,
    /// The shape in which a reduced output broadcasts to the index space, where it is not the output's own.
    aligned: Option<Dims>,
}

/// Long graphs are made of these: with the counts of its `Arc`, one fills what allocators hand out for it.
const _: () = assert!(size_of::<Node<ElementwiseBackward>>() + 2 * size_of::<usize>() <= 224);

/// The name of a saved result among a node's attributes.
const RESULT: &str = "result";

type Saved = MostlyOne<SavedTensor>;

/// Whether the gradient that would be recorded reads input `k`.
pub(super) fn reads_input(spec: &Spec, tensors: &[Tensor], k: u16) -> bool {
    let needs = needs_mask(tensors);
    needs != 0 && spec.gradient(needs, 1).reads.contains(&Source::Input(k))
}

fn needs_mask(tensors: &[Tensor]) -> u32 {
    tensors.iter().enumerate().fold(0, |m, (k, t)| m | ((t.requires_grad() && t.dtype().is_float()) as u32) << k)
}

/// Makes the node of a call and hangs its outputs on it.
pub(super) fn record(
    spec: &'static Spec,
    sizes: &Dims,
    aligned: Option<&Dims>,
    tensors: &[Tensor],
    bodies: &[Arc<Body>],
    scalars: &SmallVec<[Scalar; 2]>,
    outputs: &[Tensor],
) -> Result<()> {
    if !spec.outputs.iter().any(|d| d.is_float()) {
        return Ok(());
    }
    let out_bodies: SmallVec<[Arc<Body>; 2]> = outputs.iter().map(Tensor::body).collect();
    let node = make(spec, edges(spec, tensors)?, sizes, aligned, tensors, bodies, scalars, &out_bodies)?;
    for (nr, (out, dtype)) in outputs.iter().zip(&spec.outputs).enumerate() {
        if dtype.is_float() {
            out.set_history(Edge::new(node.clone(), nr as u32));
        }
    }
    Ok(())
}

/// Where the gradients of a call's operands go. An in-place call asks before it changes its target: afterwards, views of it
/// have another history.
pub(super) fn edges(spec: &Spec, tensors: &[Tensor]) -> Result<Edges> {
    spec.edges.iter().map(|e| e.map_or(Ok(Edge::NONE), |k| tensors[k as usize].edge())).collect()
}

/// The edge of operand `k` among those of a call.
fn history(spec: &Spec, edges: &[Edge], k: u16) -> Edge {
    let at = spec.edges.iter().position(|e| e.is_some_and(|operand| operand as usize == k as usize));
    at.map_or(Edge::NONE, |at| edges[at].clone())
}

/// Makes the node of an in-place call and puts it before the target.
#[allow(clippy::too_many_arguments, reason = "a call is that many things")]
pub(super) fn record_in_place(
    spec: &'static Spec,
    edges: Edges,
    sizes: &Dims,
    tensors: &[Tensor],
    bodies: &[Arc<Body>],
    scalars: &SmallVec<[Scalar; 2]>,
    target: &Tensor,
    result: &Arc<Body>,
) -> Result<()> {
    let node = make(spec, edges, sizes, None, tensors, bodies, scalars, std::slice::from_ref(result))?;
    inplace::rebase(target, node, 0)
}

/// The result of a call on the fast path, with its node: one result of the shape of its operands, all of one float dtype.
/// The operands' states are locked. Nothing if the gradients would not have that shape and dtype, too.
#[inline]
pub(super) fn record_quick(
    spec: &'static Spec,
    operands: &[(&Tensor, &State)],
    scalars: &[Scalar],
    out: Arc<Body>,
) -> Option<Tensor> {
    let mut edges = match spec.edges.len() {
        1 => Edges::One(Edge::NONE),
        2 => Edges::Two([Edge::NONE, Edge::NONE]),
        _ => return None,
    };
    let mut needs = 0;
    for (edge, input) in edges.iter_mut().zip(&spec.edges) {
        if let Some(k) = *input
            && let (tensor, state) = operands[k as usize]
            && tensor.has_gradient_flag()
        {
            needs |= 1 << k;
            tensor.put_edge(state, edge);
            // A tensor that was given other data (`x.data = t`) may have another shape than the output its gradient is for.
            let meta = edge.node().and_then(|n| n.outputs.get(edge.nr as usize))?;
            if meta.sizes != out.layout.sizes || meta.dtype != out.dtype {
                return None;
            }
        }
    }
    if needs == 0 {
        return None; // a view without history whose base requires a gradient
    }
    let save = |source: &Source| match *source {
        Source::Input(k) => {
            let (tensor, state) = operands[k as usize];
            SavedTensor::plain_input(tensor, state.body.clone())
        }
        Source::Result(k) => SavedTensor::plain_result(out.clone(), k as u32),
    };
    let saved: Saved = spec.gradient_ref(needs).reads.iter().map(save).collect();
    let meta = Meta { sizes: out.layout.sizes.clone(), dtype: out.dtype };
    let body = ElementwiseBackward {
        spec,
        plain: true,
        needs,
        shapes: None,
        scalars: scalars.iter().copied().collect(),
        keeps: AtomicBool::new(!saved.is_empty()),
        saved: Mutex::new(Some(saved)),
    };
    Some(Tensor::with_edge(out, Edge::new(Node::shared(edges, MostlyOne::One(meta), body), 0)))
}

#[allow(clippy::too_many_arguments, reason = "a call is that many things")]
fn make(
    spec: &'static Spec,
    edges: Edges,
    sizes: &Dims,
    aligned: Option<&Dims>,
    tensors: &[Tensor],
    bodies: &[Arc<Body>],
    scalars: &SmallVec<[Scalar; 2]>,
    outputs: &[Arc<Body>],
) -> Result<NodeRef> {
    let needs = needs_mask(tensors);
    let save = |source: &Source| match *source {
        Source::Input(k) => {
            let (tensor, body) = (&tensors[k as usize], &bodies[k as usize]);
            // In place, values that change were copied before: the tensor no longer has them.
            if !Arc::ptr_eq(body, &tensor.body()) {
                SavedTensor::copy(spec.op, body.clone(), history(spec, &edges, k))
            } else {
                SavedTensor::input(spec.op, tensor, body.clone())
            }
        }
        Source::Result(k) => SavedTensor::result(spec.op, outputs[k as usize].clone(), k as u32),
    };
    let saved = spec.gradient(needs, spec.all_results()).reads.iter().map(save).collect::<Result<Saved>>()?;
    if !spec.differentiable {
        let metas = outputs.iter().map(|b| Meta { sizes: b.layout.sizes.clone(), dtype: b.dtype }).collect();
        return Ok(Node::shared(edges, metas, NotImplemented { op: spec.op }));
    }
    let metas = outputs.iter().map(|b| Meta { sizes: b.layout.sizes.clone(), dtype: b.dtype }).collect();
    let own_sizes = outputs[0].layout.sizes != *sizes;
    let aligned = aligned.filter(|a| **a != outputs[0].layout.sizes);
    let body = ElementwiseBackward {
        spec,
        plain: false,
        needs,
        shapes: (own_sizes || aligned.is_some())
            .then(|| Box::new(Shapes { sizes: sizes.clone(), aligned: aligned.cloned() })),
        scalars: scalars.iter().copied().collect(),
        keeps: AtomicBool::new(!saved.is_empty()),
        saved: Mutex::new(Some(saved)),
    };
    Ok(Node::shared(edges, metas, body))
}

/// The node's name, in a row, that stands for a derivative which PyTorch does not define: asking for it is an error, which
/// beats silent zeros.
pub(super) const NOT_IMPLEMENTED: &str = "NotImplemented";

/// The node of an operation without derivative.
struct NotImplemented {
    op: &'static str,
}

impl Backward for NotImplemented {
    fn name(&self) -> Cow<'static, str> {
        NOT_IMPLEMENTED.into()
    }

    fn backward(&self, _: &Call<'_>, _: Grads) -> Result<Grads> {
        bail!(runtime self.op, "derivative for aten::{} is not implemented", self.op)
    }
}

/// A node that refuses to be differentiated, for an operation whose result is the given body.
pub(crate) fn not_implemented(op: &'static str, edges: Edges, result: &Body) -> NodeRef {
    let meta = Meta { sizes: result.layout.sizes.clone(), dtype: result.dtype };
    Node::shared(edges, MostlyOne::One(meta), NotImplemented { op })
}

impl ElementwiseBackward {
    /// Shapes of the gradients wanted: those of the edges' ends.
    ///
    /// # Errors
    /// `RuntimeError` if a gradient over the index space cannot be summed to one: the operand was given other data between
    /// its making and its use.
    fn targets(&self, node: &NodeRef, sizes: &[usize], needs: u32) -> Result<SmallVec<[Option<Dims>; 2]>> {
        let mut targets = SmallVec::new();
        for (k, (input, edge)) in self.spec.edges.iter().zip(&*node.edges).enumerate() {
            if !input.is_some_and(|i| needs >> i & 1 == 1) {
                continue;
            }
            let target = edge.node().and_then(|n| n.outputs.get(edge.nr as usize)).map(|m| m.sizes.clone());
            if let Some(target) = target.as_ref().filter(|t| !expandable(t, sizes)) {
                bail!(runtime self.spec.op, "Function {} returned an invalid gradient at index {k} - got {sizes:?} but expected shape compatible with {target:?}", self.spec.node);
            }
            targets.push(target);
        }
        Ok(targets)
    }

    /// Backward of what was recorded on the fast path, if the cotangent is plain too; otherwise nothing, and `grads` is as
    /// it was.
    #[inline]
    fn quick(&self, call: &Call<'_>, grads: &mut Grads) -> Result<Option<Grads>> {
        if !matches!(grads[..], [Some(_)]) {
            return Ok(None);
        }
        let mut needs = 0;
        for (at, input) in self.spec.edges.iter().enumerate() {
            if let (Some(k), true) = (input, call.needs(at)) {
                needs |= 1 << k;
            }
        }
        let gradient = self.spec.gradient_ref(needs);
        if gradient.needs != needs {
            return Ok(None);
        }
        // Gradients that are just the cotangent are handed on; the others are computed together.
        let passing = gradient.passing;
        let computed = needs & !passing;
        let results = match (computed, passing) {
            (0, _) => Some(SmallVec::new()),
            (_, 0) => self.compute(call, gradient, &mut grads[0], true)?,
            _ => self.compute(call, self.spec.gradient_ref(computed), &mut grads[0], false)?,
        };
        let Some(results) = results else { return Ok(None) };
        let mut results = results.into_iter();
        let mut out = Grads::new();
        let mut left = passing.count_ones();
        for input in &self.spec.edges {
            match input {
                Some(k) if passing >> k & 1 == 1 => {
                    left -= 1;
                    out.push(if left == 0 { grads[0].take() } else { grads[0].clone() });
                }
                Some(k) if computed >> k & 1 == 1 => out.push(results.next()),
                _ => out.push(None),
            }
        }
        Ok(Some(out))
    }

    /// Computes the gradients of a specialisation from a plain cotangent, which may be used up if `consumed`: its memory then
    /// becomes that of the only result. Returns nothing if it is not plain, or if something is being written that has to be read.
    #[inline]
    fn compute(
        &self,
        call: &Call<'_>,
        gradient: &GradSpec,
        slot: &mut Option<Tensor>,
        consumed: bool,
    ) -> Result<Option<SmallVec<[Tensor; 2]>>> {
        let (node, meta) = (call.node, &call.node.outputs[0]);
        let Some(grad) = slot else { return Ok(None) };
        // The node is plain: of this dtype and these sizes, a cotangent is small, too.
        let fits = |b: &Body| b.dtype == meta.dtype && b.layout.sizes == meta.sizes && b.layout.is_contiguous();
        let mut saved = self.saved.lock();
        let mut results: SmallVec<[Tensor; 2]> = SmallVec::new();
        {
            let mut bodies: SmallVec<[&Body; 3]> = SmallVec::new();
            for source in &gradient.reads {
                let Some(body) = self.find(&saved, node, *source)?.body(node)? else { return Ok(None) };
                bodies.push(body);
            }
            let n = numel(&meta.sizes);
            let run = |cotangent: Option<Values<'_>>, sinks: &mut [Option<Sink<'_>>]| {
                let mut inputs = [cotangent, None, None, None];
                if bodies.len() >= inputs.len() {
                    return false;
                }
                for (input, body) in inputs[1..].iter_mut().zip(&bodies) {
                    *input = fast::guarded(body);
                }
                gradient.spec.executable.run_small(n, &inputs[..=bodies.len()], &self.scalars, sinks)
            };
            let mut values = [0; _];
            let sink = if consumed && gradient.passes.len() == 1 { fast::reuse(grad, &mut values, fits) } else { None };
            if sink.is_some() {
                if !run(Some(Values::buffer(&values, meta.dtype)), &mut [sink]) {
                    return Ok(None);
                }
                results.extend(slot.take());
            } else {
                let body = grad.body();
                if !fits(&body) {
                    return Ok(None);
                }
                let mut fresh: SmallVec<[Storage; 2]> = SmallVec::new();
                for _ in 0..gradient.passes.len() {
                    fresh.push(Storage::uninit(self.spec.op, n * meta.dtype.size())?);
                }
                {
                    let mut sinks: SmallVec<[Option<Sink<'_>>; 2]> = SmallVec::new();
                    for storage in &mut fresh {
                        sinks.push(Sink::new(storage, n, meta.dtype));
                    }
                    if !run(fast::guarded(&body), &mut sinks) {
                        return Ok(None);
                    }
                }
                for storage in fresh {
                    let layout = Layout::contiguous(meta.sizes.clone());
                    results.push(Tensor::from_body(Body::new(storage, layout, meta.dtype)));
                }
            }
        }
        if call.last {
            let used = self.take(&mut saved);
            drop(saved);
            drop(used);
        }
        Ok(Some(results))
    }

    /// Runs the gradient without recording it.
    #[allow(clippy::too_many_arguments, reason = "a private helper of backward, with its locals")]
    fn plain(
        &self,
        gradient: &GradSpec,
        node: &NodeRef,
        sizes: &Dims,
        grads: &Grads,
        targets: &[Option<Dims>],
        needs: u32,
        present: u32,
    ) -> Result<Grads> {
        let given: SmallVec<[&Tensor; 2]> = grads.iter().flatten().collect();
        let mut out: Grads = smallvec![None; gradient.passes.len()];
        for (k, slot) in out.iter_mut().enumerate() {
            // A gradient that is just the cotangent is handed on, not copied.
            if let Some(from) = gradient.passes[k].filter(|_| targets[k].as_ref() == Some(sizes)) {
                // The cotangent of a reduced result is smaller than the gradient.
                *slot = given.get(from as usize).filter(|g| g.sizes() == *sizes).map(|g| (*g).clone());
            }
        }
        let passed = out.iter().filter(|g| g.is_some()).count();
        if passed == out.len() {
            return Ok(out);
        }
        if passed > 0 {
            // Compute the others alone.
            let mut wanted = (0..32).filter(|k| needs >> k & 1 == 1);
            let rest = out
                .iter()
                .filter_map(|g| Some((g.is_none(), wanted.next()?)))
                .filter(|r| r.0)
                .fold(0, |m, r| m | 1 << r.1);
            let some: SmallVec<[Option<Dims>; 2]> =
                targets.iter().zip(&out).filter(|(_, g)| g.is_none()).map(|(t, _)| t.clone()).collect();
            let mut computed =
                self.plain(self.spec.gradient(rest, present), node, sizes, grads, &some, rest, present)?.into_iter();
            for slot in out.iter_mut().filter(|g| g.is_none()) {
                *slot = computed.next().flatten();
            }
            return Ok(out);
        }
        let mut bodies: SmallVec<[Arc<Body>; 3]> = given.iter().map(|g| g.body()).collect();
        for value in self.reads(gradient, node)? {
            bodies.push(value.fetch(node)?);
        }
        let outputs = results(gradient.spec, sizes, &bodies, targets)?;
        execute(gradient.spec, sizes, &bodies, &self.scalars, &outputs)?;
        Ok(outputs.into_iter().map(|b| Some(Tensor::from_body(b))).collect())
    }

    /// What is saved, in order.
    #[inline]
    fn sources(&self) -> &'static [Source] {
        &self.spec.gradient(self.needs, self.spec.all_results()).reads
    }

    /// Takes out what is saved, to be dropped without the lock. A node that keeps nothing can be walked again and again, as
    /// in PyTorch.
    #[inline]
    fn take(&self, saved: &mut Option<Saved>) -> Option<Saved> {
        if !self.keeps.load(Ordering::Relaxed) {
            return None;
        }
        self.keeps.store(false, Ordering::Relaxed);
        saved.take()
    }

    /// What a gradient reads of the saved values, taken out of the lock: to bring them back may run hooks.
    fn reads(&self, gradient: &GradSpec, node: &NodeRef) -> Result<SmallVec<[SavedTensor; 3]>> {
        let saved = self.saved.lock();
        gradient.reads.iter().map(|source| self.find(&saved, node, *source).cloned()).collect()
    }

    fn find<'s>(&self, saved: &'s Option<Saved>, node: &NodeRef, source: Source) -> Result<&'s SavedTensor> {
        let saved = saved.as_ref().ok_or_else(|| freed(node))?;
        let at = self.sources().iter().position(|s| *s == source);
        at.and_then(|at| saved.get(at)).ok_or_else(|| freed(node))
    }
}

impl Backward for ElementwiseBackward {
    fn name(&self) -> Cow<'static, str> {
        Cow::Owned(self.spec.node.to_string())
    }

    fn fits(&self) -> bool {
        self.plain
    }

    fn backward(&self, call: &Call<'_>, mut grads: Grads) -> Result<Grads> {
        let node = call.node;
        if self.plain
            && !call.create_graph
            && let Some(out) = self.quick(call, &mut grads)?
        {
            return Ok(out);
        }
        if let Some(aligned) = self.shapes.as_ref().and_then(|s| s.aligned.as_ref()) {
            for g in grads.iter_mut().flatten() {
                *g = g.reshape(&**aligned)?;
            }
        }
        let mut needs = 0u32;
        for (at, input) in self.spec.edges.iter().enumerate() {
            if let (Some(k), true) = (input, call.needs(at)) {
                needs |= 1 << k;
            }
        }
        let present = grads.iter().enumerate().fold(0u32, |m, (k, g)| m | (g.is_some() as u32) << k);
        let mut out: Grads = smallvec![None; node.edges.len()];
        if needs == 0 || present == 0 {
            return Ok(out);
        }
        let gradient = self.spec.gradient(needs, present);
        needs = gradient.needs;
        for (at, input) in self.spec.edges.iter().enumerate() {
            if input.is_some_and(|k| gradient.zeros >> k & 1 == 1) {
                call.zeros.add(at);
            }
        }
        if needs == 0 {
            return Ok(out);
        }
        // In place, the target may have another float dtype than the result had before it was stored.
        let mut grads = grads;
        for (grad, dtype) in grads.iter_mut().zip(&self.spec.outputs) {
            if let Some(g) = grad.as_mut().filter(|g| dtype.is_float() && g.dtype() != *dtype) {
                *g = crate::ops::to_dtype(g, *dtype)?;
            }
        }
        let sizes = self.shapes.as_ref().map_or(&node.outputs[0].sizes, |s| &s.sizes);
        let targets = self.targets(node, sizes, needs)?;
        let results = if mode::is_grad_enabled() {
            let mut tensors: SmallVec<[Tensor; 3]> = grads.iter().flatten().cloned().collect();
            for value in self.reads(gradient, node)? {
                tensors.push(value.unpack(node)?);
            }
            apply(gradient.spec, sizes, tensors, &self.scalars, &targets)?.into_iter().map(Some).collect()
        } else {
            self.plain(gradient, node, sizes, &grads, &targets, needs, present)?
        };
        let mut results = results.into_iter();
        for (slot, input) in out.iter_mut().zip(&self.spec.edges) {
            if input.is_some_and(|k| needs >> k & 1 == 1) {
                *slot = results.next().flatten();
            }
        }
        Ok(out)
    }

    fn release(&self) {
        if self.keeps.load(Ordering::Relaxed) {
            let mut saved = self.saved.lock();
            let old = self.take(&mut saved);
            drop(saved);
            drop(old);
        }
    }

    fn saved(&self) -> Vec<(Cow<'static, str>, SavedAttribute)> {
        let saved = self.saved.lock();
        let values = saved.iter().flat_map(|s| s.iter());
        let tensors = self.sources().iter().zip(values).map(|(source, value)| {
            let name = match *source {
                Source::Input(k) => self.spec.names.get(k as usize).copied().unwrap_or("self"),
                Source::Result(_) => RESULT,
            };
            (Cow::Borrowed(name), SavedAttribute::Tensor(value.clone()))
        });
        tensors.collect()
    }

    fn is_packed(&self) -> bool {
        self.saved.lock().iter().flat_map(|s| s.iter()).any(SavedTensor::is_packed)
    }

    fn check_saved(&self, node: &NodeRef) -> Result<()> {
        self.saved.lock().iter().flat_map(|s| s.iter()).try_for_each(|value| value.body(node).map(drop))
    }

    fn weight(&self) -> f64 {
        // A derivative takes about as long as what it is of.
        self.spec.executable.cost()
    }

    fn freed(&self) -> Option<Vec<Cow<'static, str>>> {
        let names = self.spec.names.iter().copied().chain([RESULT]);
        self.saved.lock().is_none().then(|| names.map(Cow::Borrowed).collect())
    }

    fn replace_saved(&self, k: usize, value: SavedTensor) -> bool {
        saved::replace(&self.saved, k, value)
    }

    fn held(&self, visit: &mut Visit<'_>) {
        saved::held_in(&self.saved, visit);
    }
}
