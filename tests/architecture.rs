//! Holds the rooms of the house apart: which room of `src/` may name which, who may write `unsafe`, who may name pyo3, that
//! every file says what lives in it and stays readable in size. It reads the source as tokens (comments and strings do not
//! count, `#[cfg(test)]` items may use any room), so a new dependency between rooms is a decision made in the table below.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A room (a file or folder directly under `src/`) and the rooms it may name beside itself.
const ROOMS: &[(&str, &[&str])] = &[
    ("callsite", &[]),
    ("sync", &[]),
    ("error", &["callsite"]),
    ("few", &[]),
    ("dtype", &["error", "shape", "device", "scalar"]),
    ("shape", &["error", "dtype", "device", "scalar"]),
    ("device", &["error", "dtype", "shape", "scalar"]),
    ("scalar", &["error", "dtype", "shape", "device"]),
    ("threads", &["sync", "callsite", "error", "storage"]),
    ("storage", &["sync", "error", "dtype", "device"]),
    ("program", &["error", "dtype", "scalar"]),
    ("backend", &["sync", "threads", "error", "dtype", "shape", "device", "scalar", "storage", "program"]),
    // Tensors hold the knot of the graph (autograd), and their operators and methods call ops.
    (
        "tensor",
        &[
            "sync", "callsite", "error", "dtype", "shape", "device", "scalar", "storage", "program", "backend",
            "autograd", "ops",
        ],
    ),
    (
        "autograd",
        &["sync", "threads", "callsite", "error", "few", "dtype", "shape", "device", "scalar", "tensor", "ops"],
    ),
    (
        "ops",
        &[
            "sync", "threads", "callsite", "error", "few", "dtype", "shape", "device", "scalar", "storage", "program",
            "backend", "tensor", "autograd",
        ],
    ),
    ("python", EVERYTHING),
    // The crate root: declares the rooms and re-exports from them.
    ("lib", EVERYTHING),
];

const EVERYTHING: &[&str] = &[
    "sync", "threads", "callsite", "error", "few", "dtype", "shape", "device", "scalar", "storage", "program",
    "backend", "tensor", "autograd", "ops", "python",
];

/// Names that the crate root re-exports, and the rooms they stand for.
const REEXPORTS: &[(&str, &str)] = &[
    ("Error", "error"),
    ("Result", "error"),
    ("DType", "dtype"),
    ("Device", "device"),
    ("Scalar", "scalar"),
    ("Tensor", "tensor"),
];

/// Rooms that may write `unsafe`; that each block says why it is sound is clippy's part.
const UNSAFE_ROOMS: &[&str] = &["sync", "storage", "threads", "backend", "python"];

/// Rooms that may name pyo3. `lib` is not among them: it declares the room behind the feature and nothing more.
const PYO3_ROOMS: &[&str] = &["python"];

/// Longest file, in lines, that is not a table.
const LINES: usize = 600;

/// Files that may be longer because they are tables, each with what its rows are.
const TABLES: &[(&str, &str)] = &[
    // Families of the catalogue: a row an operation.
    ("ops/reduce.rs", "operations"),
    // Python's protocol for the class, one short method a row; pyo3 wants them in one block.
    ("python/tensor.rs", "the methods of the protocol"),
];

#[test]
fn rooms_use_only_what_they_may() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let files = rust_files(&root);
    assert!(!files.is_empty(), "no source under {}", root.display());
    let mut wrong = Vec::new();
    let mut long = BTreeSet::new();
    for file in &files {
        let path = file.strip_prefix(&root).unwrap().to_str().unwrap().replace('\\', "/");
        let text = fs::read_to_string(file).unwrap();
        if text.lines().count() > LINES {
            long.insert(path.clone());
        }
        wrong.extend(violations(&path, &text, TABLES));
    }
    for (path, _) in TABLES {
        if !long.contains(*path) {
            wrong.push(format!("{path}: listed in TABLES, but there is no such file of more than {LINES} lines"));
        }
    }
    assert!(wrong.is_empty(), "\n{}\n", wrong.join("\n"));
}

/// All `.rs` files below a folder, in order.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// What is wrong with one file; `path` is relative to `src/`.
fn violations(path: &str, text: &str, tables: &[(&str, &str)]) -> Vec<String> {
    let mut wrong = Vec::new();
    let modules = module_path(path);
    let room = modules.first().map_or("lib", String::as_str);
    let Some((_, may)) = ROOMS.iter().find(|(name, _)| *name == room) else {
        return vec![format!("{path}: the room `{room}` is not in the table of tests/architecture.rs")];
    };

    if !text.starts_with("//! ") {
        wrong.push(format!("{path}:1: a file opens with a `//!` paragraph: what lives here, what must not"));
    }
    let lines = text.lines().count();
    if lines > LINES && !tables.iter().any(|(name, _)| *name == path) {
        wrong.push(format!("{path}: {lines} lines; a file of more than {LINES} that is not a table becomes two"));
    }
    if modules.iter().skip(1).any(|name| name == "tests") {
        return wrong; // a test module in files of its own
    }

    let tokens = without_tests(tokens(text));
    for token in &tokens {
        let line = token.line;
        if token.text == "unsafe" && !UNSAFE_ROOMS.contains(&room) {
            wrong.push(format!("{path}:{line}: `unsafe` in the room `{room}`; it belongs to {UNSAFE_ROOMS:?}"));
        }
        if token.text == "pyo3" && !PYO3_ROOMS.contains(&room) {
            wrong.push(format!("{path}:{line}: only `python` may name pyo3"));
        }
    }
    for (line, name) in named_rooms(&tokens, modules.len()) {
        let used = REEXPORTS.iter().find(|(short, _)| *short == name).map_or(name.as_str(), |(_, room)| room);
        if used == room || may.contains(&used) {
            continue;
        }
        let known = ROOMS.iter().any(|(known, _)| *known == used);
        let why = if known { "which it may not" } else { "which is no room: name the room it lives in" };
        wrong.push(format!("{path}:{line}: the room `{room}` uses `crate::{name}`, {why}"));
    }
    wrong
}

/// `tensor/view.rs` is the module `tensor::view`, `tensor/mod.rs` is `tensor`, `lib.rs` the root.
fn module_path(path: &str) -> Vec<String> {
    let mut parts: Vec<String> = path.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
    if parts.last().is_some_and(|last| last == "mod" || (parts.len() == 1 && last == "lib")) {
        parts.pop();
    }
    parts
}

/// The names directly behind `crate::` or behind enough `super::` to reach the crate root, in `use` items and in paths.
fn named_rooms(tokens: &[Token<'_>], depth: usize) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    // For each open brace, whether it belongs to an inline `mod`, which is one step further from the root.
    let mut braces: Vec<bool> = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let inner = braces.iter().filter(|inline| **inline).count();
        match tokens[at].text {
            "{" => {
                braces.push(at >= 2 && tokens[at - 2].text == "mod");
                at += 1;
            }
            "}" => {
                braces.pop();
                at += 1;
            }
            "crate" if follows(tokens, at, "::") => at = heads(tokens, at + 2, &mut found),
            "super" => {
                let mut steps = 0;
                while at < tokens.len() && tokens[at].text == "super" && follows(tokens, at, "::") {
                    steps += 1;
                    at += 2;
                }
                if steps == 0 {
                    at += 1; // `pub(super)`
                } else if steps == depth + inner {
                    at = heads(tokens, at, &mut found);
                }
            }
            _ => at += 1,
        }
    }
    found
}

fn follows(tokens: &[Token<'_>], at: usize, text: &str) -> bool {
    tokens.get(at + 1).is_some_and(|next| next.text == text)
}

/// Notes the first name of a path, or of each path of a group `{a::b, c}`; returns where to go on reading. The rest of a
/// group is stepped over, since its inner names are not heads.
fn heads(tokens: &[Token<'_>], at: usize, found: &mut Vec<(usize, String)>) -> usize {
    let Some(first) = tokens.get(at) else { return at };
    if first.text != "{" {
        found.push((first.line, first.text.to_owned()));
        return at + 1;
    }
    let (mut nesting, mut at, mut head) = (1, at + 1, true);
    while at < tokens.len() && nesting > 0 {
        match tokens[at].text {
            "{" => nesting += 1,
            "}" => nesting -= 1,
            "," => head = nesting == 1,
            name if head => {
                found.push((tokens[at].line, name.to_owned()));
                head = false;
            }
            _ => {}
        }
        at += 1;
    }
    at
}

/// Leaves out every item behind `#[cfg(test)]`: up to its closing brace or its semicolon.
fn without_tests(tokens: Vec<Token<'_>>) -> Vec<Token<'_>> {
    const MARK: [&str; 7] = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::with_capacity(tokens.len());
    let mut at = 0;
    while at < tokens.len() {
        let marked = tokens[at..].iter().map(|t| t.text).take(MARK.len()).eq(MARK);
        if !marked {
            kept.push(tokens[at]);
            at += 1;
            continue;
        }
        at += MARK.len();
        let mut nesting = 0;
        while at < tokens.len() {
            let text = tokens[at].text;
            at += 1;
            match text {
                "{" | "(" | "[" => nesting += 1,
                "}" | ")" | "]" => nesting -= 1,
                _ => {}
            }
            if nesting == 0 && (text == "}" || text == ";") {
                break;
            }
        }
    }
    kept
}

/// A word, a `::`, or a single other character.
#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    text: &'a str,
    line: usize,
}

/// The tokens of a source text; comments, strings, characters and the quotes of lifetimes are left out.
fn tokens(text: &str) -> Vec<Token<'_>> {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let rest = &text[at..];
        let length = match bytes[at] {
            b'/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            b'/' if rest.starts_with("/*") => block_comment(rest),
            b'"' => string(rest, 1),
            b'b' | b'c' if rest[1..].starts_with('"') => string(rest, 2),
            b'r' | b'b' | b'c' if raw_string(rest).is_some() => raw_string(rest).unwrap(),
            b'\'' => character(rest),
            byte if byte.is_ascii_alphanumeric() || byte == b'_' => {
                let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
                out.push(Token { text: &rest[..word], line });
                word
            }
            b':' if rest.starts_with("::") => {
                out.push(Token { text: "::", line });
                2
            }
            byte if byte.is_ascii_whitespace() => 1,
            _ => {
                let length = rest.chars().next().map_or(1, char::len_utf8);
                out.push(Token { text: &rest[..length], line });
                length
            }
        };
        line += rest[..length].matches('\n').count();
        at += length;
    }
    out
}

/// Length of a block comment, which may hold others.
fn block_comment(rest: &str) -> usize {
    let (mut nesting, mut at) = (0, 0);
    while at < rest.len() {
        if rest.as_bytes()[at..].starts_with(b"/*") {
            (nesting, at) = (nesting + 1, at + 2);
        } else if rest.as_bytes()[at..].starts_with(b"*/") {
            (nesting, at) = (nesting - 1, at + 2);
            if nesting == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// Length of a string literal whose text begins at `from`.
fn string(rest: &str, from: usize) -> usize {
    let bytes = rest.as_bytes();
    let mut at = from;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// Length of `r"..."`, `br#"..."#` and their like, if one begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix(['b', 'c']).unwrap_or(rest).strip_prefix('r')?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let body = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let prefix = rest.len() - body.len();
    Some(body.find(&end).map_or(rest.len(), |found| prefix + found + end.len()))
}

/// Length of a character literal; of a lifetime, the quote alone.
fn character(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    match chars.next() {
        Some((_, '\\')) => rest[3.min(rest.len())..].find('\'').map_or(rest.len(), |end| 3 + end + 1),
        Some(_) => match chars.next() {
            Some((end, '\'')) => end + 1,
            _ => 1,
        },
        None => 1,
    }
}

// ---- that the checker can fail ---------------------------------------------------------------------------------------

/// Violations of a text that has its opening paragraph, without file name and line.
fn found(path: &str, body: &str) -> Vec<String> {
    violations(path, &format!("//! A room.\n{body}"), &[])
        .into_iter()
        .map(|v| v.split_once(": ").unwrap().1.to_owned())
        .collect()
}

#[test]
fn a_forbidden_room_is_found_in_every_way_of_naming_it() {
    for body in [
        "use crate::tensor::Tensor;",
        "use crate::{dtype::DType, tensor::Tensor};",
        "pub use crate::{dtype::{DType, Category}, tensor};",
        "fn f(t: &crate::tensor::Tensor) {}",
        "use super::tensor::Tensor;",
        "mod inner { use super::super::tensor::Tensor; }",
        "macro_rules! m { () => { $crate::tensor::f() } }",
        "/* a comment */ use crate /* here */ :: tensor::Tensor;",
        "const C: char = '\"'; use crate::tensor::Tensor;",
        "fn f<'a>(x: &'a u8) -> crate::tensor::T<'a> {}",
        "const S: &str = r#\"a\"b\"#; use crate::tensor::Tensor;",
        "const B: u8 = b'\\''; use crate::tensor::Tensor;",
    ] {
        assert_eq!(found("storage.rs", body), ["the room `storage` uses `crate::tensor`, which it may not"], "{body}");
    }
    let deep = "use super::super::tensor::Tensor;";
    assert_eq!(found("backend/cpu.rs", deep), ["the room `backend` uses `crate::tensor`, which it may not"]);
}

#[test]
fn what_is_allowed_passes() {
    for (path, body) in [
        ("storage.rs", "use crate::{dtype::{DType, tensor}, error::{Error, Result}};"),
        ("storage.rs", "// use crate::tensor::Tensor;\nconst S: &str = \"crate::tensor \\\" crate::ops\";"),
        ("storage.rs", "#[cfg(test)]\nmod tests { use crate::tensor::Tensor; fn f() { unsafe {} } }"),
        ("storage.rs", "#[cfg(test)] use crate::tensor::Tensor;"),
        ("tensor/tests.rs", "use crate::python::Anything;"),
        ("tensor/format/tests/cases.rs", "use crate::python::Anything;"),
        ("backend/cpu/mod.rs", "use super::tensor::x; use crate::backend::y; pub(super) fn f() {}"),
        ("backend/mod.rs", "pub(crate) fn f() { unsafe { g() } }"),
        ("python/mod.rs", "use pyo3::prelude::*; use crate::{ops, tensor, autograd};"),
        ("lib.rs", "pub mod tensor; pub use crate::tensor::Tensor;"),
    ] {
        assert_eq!(found(path, body), [""; 0], "{path}: {body}");
    }
}

#[test]
fn unsafe_and_pyo3_stay_in_their_rooms() {
    let unsafe_outside =
        "`unsafe` in the room `ops`; it belongs to [\"sync\", \"storage\", \"threads\", \"backend\", \"python\"]";
    assert_eq!(found("ops/apply.rs", "fn f() { unsafe { g() } }"), [unsafe_outside]);
    assert_eq!(found("ops/apply.rs", "unsafe impl Send for X {}"), [unsafe_outside]);
    assert_eq!(found("tensor/mod.rs", "use pyo3::Python;"), ["only `python` may name pyo3"]);
    assert_eq!(found("lib.rs", "#[pyo3::pymodule] fn m() {}"), ["only `python` may name pyo3"]);
}

#[test]
fn code_after_a_test_item_is_read_again() {
    let body = "#[cfg(test)]\nmod tests { fn f() { let a = [1; 2]; } }\nuse crate::tensor::Tensor;";
    assert_eq!(found("storage.rs", body), ["the room `storage` uses `crate::tensor`, which it may not"]);
    let lines = violations("storage.rs", &format!("//! A room.\n{body}"), &[]);
    assert!(lines[0].starts_with("storage.rs:4: "), "{lines:?}");
}

#[test]
fn unknown_rooms_and_root_names_are_refused() {
    assert_eq!(found("kitchen.rs", ""), ["the room `kitchen` is not in the table of tests/architecture.rs"]);
    let why = "the room `ops` uses `crate::Anything`, which is no room: name the room it lives in";
    assert_eq!(found("ops/apply.rs", "use crate::Anything;"), [why]);
    let why = "the room `storage` uses `crate::Tensor`, which it may not";
    assert_eq!(found("storage.rs", "use crate::{DType, Tensor};"), [why]);
}

#[test]
fn files_say_what_they_are_and_stay_short() {
    assert_eq!(violations("shape.rs", "use std::fmt;\n", &[]).len(), 1);
    assert_eq!(violations("shape.rs", "// Not a paragraph.\n", &[]).len(), 1);
    let long = format!("//! A room.\n{}", "\n".repeat(LINES));
    assert_eq!(violations("shape.rs", &long, &[]).len(), 1);
    assert_eq!(violations("shape.rs", &long, &[("shape.rs", "a row a shape")]).len(), 0);
    assert_eq!(violations("shape.rs", &long[..long.len() - 1], &[]).len(), 0);
}

#[test]
fn every_room_of_the_table_is_spelled_right() {
    let names: BTreeSet<&str> = ROOMS.iter().map(|(name, _)| *name).collect();
    for (short, room) in REEXPORTS {
        assert!(names.contains(room), "`crate::{short}` is said to live in `{room}`, which is no room");
    }
    for (room, may) in ROOMS {
        for other in *may {
            assert!(names.contains(other), "the room `{room}` may use `{other}`, which is no room");
        }
    }
}

/// Frames of Python are looked at by threads that hold the interpreter; those that let go of it say so, in one place.
#[test]
fn the_interpreter_is_let_go_of_in_one_place() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/python");
    let doors = ["callsite.rs", "module.rs"]; // the one place, and waiting without doing anything
    for file in rust_files(&folder) {
        let text = fs::read_to_string(&file).unwrap();
        let detaches = text.contains("py.detach(") || text.contains("py().detach(") || text.contains("allow_threads");
        let name = file.file_name().unwrap().to_str().unwrap();
        assert!(!detaches || doors.contains(&name), "{}: use collector::detached", file.display());
    }
}
