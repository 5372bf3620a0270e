//! What Python's garbage collector may know of the graph. Python objects that the graph holds (hooks, contexts of custom
//! functions, packed values) are shown to it as the property of the wrapper that alone keeps them alive; so cycles through
//! them are collected.
//!
//! A wrapper's property is found by counting: starting at its tensor or node, an object belongs to it once as many references
//! to it were found as its count says there are. What somebody else holds too, another wrapper, a running backward, a Rust
//! caller, is nobody's property and is left alone. No object is the property of two wrappers, so walking all of them takes
//! time in proportion to the graph.
//!
//! The context of a custom function is kept by its node, and may keep it. Then the node lives exactly as long as the context,
//! so what the node holds is the context's property, whoever holds the node; and to hold the node is to hold the context.
//!
//! The collector asks each wrapper twice and must get the same answer: nothing may change in between. It holds the
//! interpreter meanwhile, so only threads that let go of it count, and those of the pool, which never have it; while there
//! are any, nothing is shown.

use super::graph::PyNode;
use super::tensor::PyTensor;
use super::{callsite, function};
use crate::autograd::engine::is_shared;
use crate::autograd::held::Held;
use crate::autograd::node::NodeRef;
use crate::tensor::Tensor;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Python objects that the graph holds; while there are none, the collector need not look into it.
static PAYLOADS: AtomicUsize = AtomicUsize::new(0);

/// Threads that run operations without the interpreter. Changes while the interpreter is held only.
static DETACHED: AtomicUsize = AtomicUsize::new(0);

/// Whether the collection that runs now looks at young objects only.
static YOUNG: AtomicBool = AtomicBool::new(false);

/// How many objects of the graph a wrapper may claim in a collection of young objects. These come often, and a graph that
/// grows between them would be walked from end to end each time.
const YOUNG_LIMIT: usize = 1_000;

/// A Python object held by the graph: exactly one reference, which the collector may be told of.
pub(super) struct Payload(pub(super) Py<PyAny>);

impl Payload {
    pub(super) fn new(object: Py<PyAny>) -> Payload {
        PAYLOADS.fetch_add(1, Ordering::Relaxed);
        Payload(object)
    }
}

impl Drop for Payload {
    fn drop(&mut self) {
        PAYLOADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs `f` without holding the interpreter, so that other Python threads run meanwhile.
pub(super) fn detached<R: Send>(py: Python<'_>, f: impl FnOnce() -> R + Send) -> R {
    struct Back;
    impl Drop for Back {
        fn drop(&mut self) {
            DETACHED.fetch_sub(1, Ordering::Relaxed);
        }
    }
    DETACHED.fetch_add(1, Ordering::Relaxed);
    // Dropped when the interpreter is held again.
    let _back = Back;
    callsite::detached(py, f)
}

/// What the interpreter calls before and after each collection.
#[pyfunction]
fn _collection(phase: &str, info: &Bound<'_, PyAny>) -> PyResult<()> {
    let young = phase == "start" && info.get_item("generation")?.extract::<u32>()? < 2;
    YOUNG.store(young, Ordering::Relaxed);
    Ok(())
}

/// Asks the interpreter to tell of its collections.
pub(super) fn init(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_function(wrap_pyfunction!(_live_payloads, m)?)?;
    let callbacks = m.py().import("gc")?.getattr("callbacks")?;
    callbacks.call_method1("append", (wrap_pyfunction!(_collection, m)?,)).map(drop)
}

/// An object of the graph.
#[derive(Clone)]
pub(super) enum Object {
    Tensor(Tensor),
    Node(NodeRef),
    /// A node that its context keeps.
    Bound(NodeRef),
}

impl Object {
    fn address(&self) -> usize {
        match self {
            Object::Tensor(t) => t.id(),
            Object::Node(n) | Object::Bound(n) => Arc::as_ptr(n).cast::<()>() as usize,
        }
    }

    fn held(&self, visit: &mut dyn FnMut(Held<'_>)) {
        match self {
            Object::Tensor(t) => t.held(visit),
            Object::Node(n) => n.held(visit),
            Object::Bound(n) => {
                function::bound_context(n).into_iter().for_each(|context| visit(Held::Payload(context)))
            }
        }
    }

    fn describe(&self) -> String {
        match self {
            Object::Tensor(t) => format!("tensor of shape {:?}", t.sizes()),
            Object::Node(n) | Object::Bound(n) => n.name().into_owned(),
        }
    }
}

/// What a wrapper alone keeps alive.
struct Property {
    /// Shared objects of which some references were not found yet: how many, and the object.
    open: HashMap<usize, (usize, Object)>,
    /// Objects that were found and not looked into yet.
    next: Vec<Object>,
    /// References to the root that were not found. Until there are none, nothing is the wrapper's for sure.
    missing: usize,
    root: usize,
    payloads: Vec<*const Py<PyAny>>,
}

impl Property {
    /// Counts from a wrapper's object, of which the wrapper holds one reference of `count`, that of `root` itself left out.
    /// `claim` sees each object found to
    /// belong to the wrapper.
    fn of(root: Object, count: usize, limit: usize, mut claim: impl FnMut(Object)) -> Property {
        let mut property = Property {
            open: HashMap::new(),
            missing: count.saturating_sub(1),
            root: root.address(),
            next: vec![root],
            payloads: Vec::new(),
        };
        let mut claimed = 0;
        while let Some(object) = property.next.pop() {
            object.held(&mut |held| property.found(held));
            claim(object);
            claimed += 1;
            if claimed == limit {
                break;
            }
        }
        property
    }

    fn found(&mut self, held: Held<'_>) {
        match held {
            Held::Payload(payload) => self.payloads.extend(object_of(payload)),
            Held::Tensor(t) => self.meet(Arc::strong_count(&t.0), Object::Tensor, t, t.id()),
            Held::Node(n) => {
                let (count, address) = (Arc::strong_count(n), Arc::as_ptr(n).cast::<()>() as usize);
                match function::bound_context(n) {
                    None => self.meet(count, Object::Node, n, address),
                    // One of the references is the context's.
                    Some(_) => self.meet(count - 1, Object::Bound, n, address),
                }
            }
        }
    }

    /// Counts one reference to an object that has `count` of them.
    fn meet<T: Clone>(&mut self, count: usize, wrap: fn(T) -> Object, object: &T, address: usize) {
        if address == self.root {
            self.missing = self.missing.saturating_sub(1);
            return;
        }
        if count == 1 {
            return self.next.push(wrap(object.clone()));
        }
        match self.open.entry(address) {
            Entry::Vacant(slot) => {
                slot.insert((count - 1, wrap(object.clone())));
            }
            Entry::Occupied(mut slot) if slot.get().0 > 1 => slot.get_mut().0 -= 1,
            Entry::Occupied(slot) => self.next.push(slot.remove().1),
        }
    }
}

/// Where the reference to a Python object lies that the graph keeps.
fn object_of(payload: &(dyn std::any::Any + Send + Sync)) -> Option<*const Py<PyAny>> {
    payload.downcast_ref::<Payload>().map(|payload| std::ptr::from_ref(&payload.0))
}

/// Whether the graph may be looked into: it holds Python objects, and nobody can be changing it.
fn is_open() -> bool {
    PAYLOADS.load(Ordering::Relaxed) > 0 && DETACHED.load(Ordering::Relaxed) == 0 && !is_shared()
}

/// Shows what belongs to a wrapper, but for the reference `own`.
fn traverse(
    root: impl FnOnce() -> Object,
    count: usize,
    own: Option<*const Py<PyAny>>,
    visit: &PyVisit<'_>,
) -> Result<(), PyTraverseError> {
    if !is_open() {
        return Ok(());
    }
    let limit = if YOUNG.load(Ordering::Relaxed) { YOUNG_LIMIT } else { usize::MAX };
    let property = Property::of(root(), count, limit, drop);
    if property.missing > 0 {
        return Ok(());
    }
    for payload in property.payloads {
        if own == Some(payload) {
            continue;
        }
        // SAFETY: it lies in an object that the wrapper keeps alive, and nothing changes while the collector looks: it holds
        // the interpreter, and no thread runs operations without.
        visit.call(unsafe { &*payload })?;
    }
    Ok(())
}

/// Shows the collector the Python objects that only this tensor keeps alive.
pub(super) fn traverse_tensor(t: &Tensor, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    traverse(|| Object::Tensor(t.clone()), Arc::strong_count(&t.0), None, visit)
}

/// Shows the collector the Python objects that only a wrapper of this node keeps alive.
pub(super) fn traverse_node(node: &NodeRef, visit: &PyVisit<'_>) -> Result<(), PyTraverseError> {
    let (count, root) = (Arc::strong_count(node), || Object::Node(node.clone()));
    match function::bound_context(node) {
        None => traverse(root, count, None, visit),
        // The wrapper is the context: the reference to it is shown by whoever else holds the node, or by itself if nobody does.
        Some(context) => traverse(root, 1, Some(std::ptr::from_ref(&context.0)).filter(|_| count > 1), visit),
    }
}

/// Breaks the cycles that run through this tensor, whose wrapper is garbage. What others hold stays as it is.
pub(super) fn clear_tensor(t: &Tensor) {
    if !is_open() {
        return;
    }
    let (mut tensors, count) = (Vec::new(), Arc::strong_count(&t.0));
    let property = Property::of(Object::Tensor(t.clone()), count, usize::MAX, |object| {
        if let Object::Tensor(t) = object {
            tensors.push(t);
        }
    });
    let alone = property.missing == 0;
    drop(property);
    if alone {
        tensors.iter().for_each(Tensor::let_go);
    }
}

/// Python objects that the graph behind these wrappers holds: `(holder, object, whether the collector sees it)`.
#[pyfunction]
fn _live_payloads(py: Python<'_>, wrappers: Vec<Bound<'_, PyAny>>) -> Vec<(String, Py<PyAny>, bool)> {
    let roots: Vec<(Object, usize)> = wrappers.iter().filter_map(root_of).collect();
    let mut seen = HashSet::new();
    for (root, count) in &roots {
        let property = Property::of(root.clone(), *count, usize::MAX, drop);
        if property.missing == 0 {
            seen.extend(property.payloads);
        }
    }
    let mut known: HashSet<usize> = HashSet::new();
    let mut next: Vec<Object> = roots.into_iter().map(|(root, _)| root).collect();
    let mut all = Vec::new();
    while let Some(object) = next.pop() {
        if !known.insert(object.address()) {
            continue;
        }
        object.held(&mut |held| match held {
            Held::Tensor(t) => next.push(Object::Tensor(t.clone())),
            Held::Node(n) => next.push(Object::Node(n.clone())),
            Held::Payload(payload) => {
                if let (Some(place), Some(Payload(value))) = (object_of(payload), payload.downcast_ref()) {
                    all.push((object.describe(), value.clone_ref(py), seen.contains(&place)));
                }
            }
        });
    }
    all
}

/// A wrapper's object, with its count of references.
fn root_of(wrapper: &Bound<'_, PyAny>) -> Option<(Object, usize)> {
    if let Ok(t) = wrapper.cast::<PyTensor>() {
        let t = &t.get().tensor;
        return Some((Object::Tensor(t.clone()), Arc::strong_count(&t.0) - 1));
    }
    let node = wrapper.cast::<PyNode>().ok()?.get().owned()?;
    // A context that keeps its node owns what that holds, whoever else holds the node.
    let count = if function::bound_context(&node).is_some() { 1 } else { Arc::strong_count(&node) - 1 };
    Some((Object::Node(node), count))
}
