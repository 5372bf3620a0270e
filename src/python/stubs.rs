//! Type stubs of the extension, rendered from the catalogue: what is written by hand stands in `stubs/core.pyi`, and the
//! methods and functions of operations take the places of its two marks.

use super::bind::python_default;
use super::dispatch::{Form, group};
use crate::ops::op::{
    FUNCTION, INPLACE, INPLACE_FUNCTION, Kind, LINALG, METHOD, NN, NN_INPLACE, OUT, Op, Param, Returns, SPECIAL,
};
use std::fmt::Write;

const TEMPLATE: &str = include_str!("stubs/core.pyi");
const METHODS: &str = "    # <methods of operations>\n";
const FUNCTIONS: &str = "# <functions of operations>\n";
const HEADER: &str = "# Generated from the catalogue of operations by `make stubs`; not edited by hand.\n";

/// The files of the stub package, by name.
pub(super) fn files() -> Vec<(&'static str, String)> {
    let core = TEMPLATE.replace(METHODS, &methods()).replace(FUNCTIONS, &functions(FUNCTION | INPLACE_FUNCTION));
    let sub = |surface| {
        format!(
            "{HEADER}from collections.abc import Sequence\nfrom typing import Any, overload\n\nfrom rustgrad._core import Generator, Tensor, _bool, _device, _dtype, _float, _int, _Number, _str\n\n{}",
            functions(surface)
        )
    };
    vec![
        ("__init__.pyi", format!("{HEADER}{core}")),
        ("_nn.pyi", sub(NN | NN_INPLACE)),
        ("_special.pyi", sub(SPECIAL)),
        ("_linalg.pyi", sub(LINALG)),
    ]
}

fn methods() -> String {
    let mut text = String::new();
    for (surface, form) in [(METHOD, Form::Plain), (INPLACE, Form::InPlace)] {
        for entry in group(surface, form) {
            let name = entry.name.to_string_lossy();
            if TEMPLATE.contains(&format!("    def {name}(")) {
                continue;
            }
            render(&mut text, "    ", &name, &entry.overloads, true, form);
        }
    }
    text
}

fn functions(surfaces: u16) -> String {
    let mut text = String::new();
    const IN_PLACE: u16 = INPLACE_FUNCTION | NN_INPLACE;
    for (surface, form) in [(surfaces & !IN_PLACE, Form::Plain), (surfaces & IN_PLACE, Form::InPlace)] {
        for entry in if surface == 0 { Vec::new() } else { group(surface, form) } {
            let name = entry.name.to_string_lossy();
            if !TEMPLATE.contains(&format!("\ndef {name}(")) {
                render(&mut text, "", &name, &entry.overloads, false, form);
            }
        }
    }
    text
}

/// All overloads of one name.
fn render(out: &mut String, indent: &str, name: &str, overloads: &[&'static Op], method: bool, form: Form) {
    let mut lines: Vec<String> = Vec::new();
    for op in overloads {
        for &spread in spreads(op) {
            let line = signature(name, op, method, form, spread);
            if !lines.contains(&line) {
                lines.push(line);
            }
        }
    }
    let many = lines.len() > 1;
    for line in lines {
        if many {
            let _ = writeln!(out, "{indent}@overload");
        }
        let _ = writeln!(out, "{indent}{line}");
    }
}

/// Whether sizes may also come as separate integers.
fn spreads(op: &Op) -> &'static [bool] {
    let last = op.params.iter().rfind(|p| !p.keyword_only);
    if last.is_some_and(|p| matches!(p.kind, Kind::Ints | Kind::OptInts | Kind::VarTensors)) {
        &[false, true]
    } else {
        &[false]
    }
}

fn signature(name: &str, op: &Op, method: bool, form: Form, spread: bool) -> String {
    let mut parts: Vec<String> = Vec::new();
    let mut star = false;
    let last = op.params.iter().rposition(|p| !p.keyword_only);
    for (i, p) in op.params.iter().enumerate() {
        if i == 0 && method {
            parts.push("self".into());
            continue;
        }
        if p.keyword_only && !star && !spread {
            parts.push("*".into());
        }
        star |= p.keyword_only;
        if spread && Some(i) == last {
            let one = if p.kind == Kind::VarTensors { "Tensor" } else { "_int" };
            parts.push(format!("*{}: {one}", p.name));
            star = true;
        } else {
            parts.push(parameter(p));
        }
    }
    if op.surface.has(OUT) && form == Form::Plain && !method {
        if !star && !spread {
            parts.push("*".into());
        }
        parts.push("out: Tensor | None = ...".into());
    }
    let returns = match (form, op.returns) {
        (Form::InPlace, _) if method => "Self",
        (Form::InPlace, _) | (_, Returns::Tensor) => "Tensor",
        (_, Returns::Bool) => "_bool",
        (_, Returns::Tuple) => "tuple[Tensor, ...]",
        (_, Returns::Fields(_) | Returns::TupleIf(_)) => "Any",
    };
    format!("def {name}({}) -> {returns}: ...", parts.join(", "))
}

/// A parameter's name; `from` is a word that Python keeps to itself.
fn shown(name: &str) -> String {
    if name == "from" { "from_".into() } else { name.into() }
}

fn parameter(p: &Param) -> String {
    let ty = type_of(p.kind);
    let name = shown(p.name);
    match p.default {
        None => format!("{name}: {ty}"),
        Some(d) if matches!(p.kind, Kind::Ints | Kind::OptInts) || python_default(d).is_empty() => {
            format!("{name}: {ty} = ...")
        }
        Some(d) => format!("{name}: {ty} = {}", python_default(d)),
    }
}

fn type_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Tensor | Kind::Index => "Tensor",
        Kind::OptTensor => "Tensor | None",
        Kind::Operand => "Tensor | _Number",
        Kind::OptOperand => "Tensor | _Number | None",
        Kind::Number => "_Number",
        Kind::OptNumber => "_Number | None",
        Kind::Int => "_int",
        Kind::OptInt => "_int | None",
        Kind::Float => "_float",
        Kind::OptFloat => "_float | None",
        Kind::Bool => "_bool",
        Kind::OptBool => "_bool | None",
        Kind::Str => "_str",
        Kind::OptStr => "_str | None",
        Kind::Ints => "_int | Sequence[_int]",
        Kind::OptInts => "_int | Sequence[_int] | None",
        Kind::IntLists => "Sequence[_int | Sequence[_int]]",
        Kind::Dtype => "_dtype",
        Kind::OptDType => "_dtype | None",
        Kind::Tensors | Kind::VarTensors => "Sequence[Tensor]",
        Kind::OptDevice => "_device | _str | None",
        Kind::OptGenerator => "Generator | None",
        Kind::OptTensors => "Sequence[Tensor | None]",
    }
}
