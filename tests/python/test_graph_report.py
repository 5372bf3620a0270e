"""What the writers of `rustgrad.graph` write: DOT, Mermaid and JSON are well formed and say what the graph holds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

import rustgrad as torch
from rustgrad import _core, graph
from rustgrad.graph import _json
from rustgrad.graph._walk import functions

pytestmark = pytest.mark.row("B2.graph_report")


def mlp() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    return model, model(torch.ones(5, 3)).pow(2).sum()


def awkward() -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    names = ['a "quoted" <b> & \\back\\', "end", "x;y|z]}", "Ω→ü `code` #35; -->", "line\nbreak", "%% comment"]
    leaves = {name: torch.ones(2, requires_grad=True) for name in names}
    largest, where = torch.stack(list(leaves.values())).max(dim=0)
    return leaves, (largest.unbind()[1] * where.sum()) + 1


GRAPHS = [mlp, awkward]


def walked(loss: torch.Tensor) -> int:
    """Nodes behind a result, found without the module that is tested."""
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [source for source, _ in node.next_functions]
    return len(seen)


# ---- DOT -----------------------------------------------------------------------------------------------------------

# The part of the DOT language that may be written, token by token.
_DOT = re.compile(r'\s*(?:(digraph|node|->|[{}\[\]=,])|([A-Za-z_][A-Za-z_0-9]*|-?\d+)|"((?:[^"\\]|\\.)*)")', re.DOTALL)


def dot_tokens(text: str) -> list[str]:
    tokens, at = [], 0
    while text[at:].strip():
        found = _DOT.match(text, at)
        assert found is not None, f"no DOT from here: {text[at : at + 60]!r}"
        tokens.append(found[1] or found[2] or f'"{found[3]}"')
        at = found.end()
    return tokens


def parse_dot(text: str) -> tuple[dict[str, dict[str, str]], list[tuple[str, str]]]:
    """Nodes with their attributes, and edges; an assertion fails where the text is no DOT."""
    tokens = dot_tokens(text)
    assert tokens[:2] == ["digraph", "{"] and tokens[-1] == "}"
    nodes: dict[str, dict[str, str]] = {}
    edges: list[tuple[str, str]] = []
    rest = tokens[2:-1]

    def take() -> str:
        return rest.pop(0)

    def attributes() -> dict[str, str]:
        found: dict[str, str] = {}
        assert take() == "["
        while True:
            key, equals, value, end = take(), take(), take(), take()
            assert equals == "=" and end in ",]"
            found[key] = value
            if end == "]":
                return found

    while rest:
        name = take()
        if rest and rest[0] == "->":
            take()
            edges.append((name, take()))
        elif name == "node":
            attributes()
        else:
            nodes[name] = attributes()
    assert {end for edge in edges for end in edge} <= set(nodes)
    return nodes, edges


@pytest.mark.parametrize("make", GRAPHS)
def test_dot_parses_and_has_the_nodes_of_the_walk(make: Callable[[], tuple[Any, torch.Tensor]]) -> None:
    names, loss = make()
    nodes, edges = parse_dot(graph.dot(loss, names))
    found = graph.trace(loss, names)
    assert len(nodes) == walked(loss) + 1  # and the result itself
    assert edges == [(f"n{source}", f"n{target}") for source, target in found.edges]


def test_the_check_of_dot_refuses_what_is_none() -> None:
    for wrong in ['digraph { n0 [label="a"b"] }', "digraph { n0 -> n1 }", 'digraph { n0 [label="a\\"] }']:
        with pytest.raises((AssertionError, IndexError)):
            parse_dot(wrong)


# ---- Mermaid -------------------------------------------------------------------------------------------------------

_MERMAID = {
    "node": re.compile(
        r'  (n\d+)(?:\["([^"]*)"\]|\("([^"]*)"\)|\(\["([^"]*)"\]\)|\(\("([^"]*)"\)\)):::(op|parameter|leaf|result|cut)'
    ),
    "edge": re.compile(r"  (n\d+) -->(?:\|(\d+)\|)? (n\d+)"),
    "class": re.compile(r"  classDef (\w+) fill:#\w{6},stroke:#\w{6},color:#\w{6}"),
}
# Inside quotes: plain characters, character codes, line breaks.
_MERMAID_LABEL = re.compile(r"(?:[\w .×-]|[^\x00-\x7f]|#\d+;|<br/>)*")


@pytest.mark.parametrize("make", GRAPHS)
def test_mermaid_is_a_flowchart_of_the_same_graph(make: Callable[[], tuple[Any, torch.Tensor]]) -> None:
    names, loss = make()
    first, *lines = graph.mermaid(loss, names).splitlines()
    assert first == "flowchart TD"
    found: dict[str, list[re.Match[str]]] = {kind: [] for kind in _MERMAID}
    for line in lines:
        kinds = [(kind, match) for kind, pattern in _MERMAID.items() if (match := pattern.fullmatch(line))]
        assert len(kinds) == 1, line
        found[kinds[0][0]].append(kinds[0][1])
    labels = {match[1]: next(filter(None, match.groups()[1:5])) for match in found["node"]}
    assert len(labels) == walked(loss) + 1
    assert all(_MERMAID_LABEL.fullmatch(label) for label in labels.values()), labels
    assert {match[6] for match in found["node"]} <= {match[1] for match in found["class"]}
    drawn = [(match[1], match[3]) for match in found["edge"]]
    assert drawn == [(f"n{source}", f"n{target}") for source, target in graph.trace(loss, names).edges]


def test_mermaid_labels_come_back_as_they_were() -> None:
    leaves, loss = awkward()
    text = graph.mermaid(loss, leaves)
    for name in leaves:
        escaped = "".join(c if c.isalnum() or c in " ._-" or ord(c) > 127 else f"#{ord(c)};" for c in name)
        assert f'("{escaped}<br/>2"):::parameter' in text
        assert re.sub(r"#(\d+);", lambda code: chr(int(code[1])), escaped) == name


def test_the_number_of_an_output_is_drawn_where_there_are_several() -> None:
    x = torch.ones(3, 2, requires_grad=True)
    parts = x.unbind()
    assert "-->|2| n" in graph.mermaid(parts[2] * 2)
    assert [edge.output for edge in graph.trace(parts[2] * parts[0]).numbered_edges] == [0, 2, 0, 0]


# ---- JSON ----------------------------------------------------------------------------------------------------------


def check(value: Any, schema: dict[str, Any], where: str = "$") -> None:
    """Whether a value is as a JSON Schema says, for the words that ours uses."""
    assert set(schema) <= {
        "$schema", "title", "type", "properties", "required", "additionalProperties", "items", "enum", "const", "minimum"
    }  # fmt: skip
    kinds = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool, "null": type(None)}
    allowed = schema.get("type")
    if allowed is not None:
        allowed = [allowed] if isinstance(allowed, str) else allowed
        fits = any(
            isinstance(value, kinds[kind]) and (kind == "boolean") == isinstance(value, bool) for kind in allowed
        )
        assert fits, f"{where}: {value!r} is no {allowed}"
    assert "const" not in schema or value == schema["const"], where
    assert "enum" not in schema or value in schema["enum"], f"{where}: {value!r}"
    if isinstance(value, int) and not isinstance(value, bool):
        assert value >= schema.get("minimum", value), where
    if isinstance(value, dict):
        assert set(schema["required"]) <= set(value) <= set(schema["properties"]), where
        for key, item in value.items():
            check(item, schema["properties"][key], f"{where}.{key}")
    if isinstance(value, list):
        for place, item in enumerate(value):
            check(item, schema["items"], f"{where}[{place}]")


@pytest.mark.parametrize("make", GRAPHS)
def test_json_is_as_its_schema_says(make: Callable[[], tuple[Any, torch.Tensor]]) -> None:
    names, loss = make()
    data = json.loads(graph.json(loss, names))
    check(data, graph.JSON_SCHEMA)
    assert data == _json.as_data(graph.trace(loss, names, limit=None))
    ids = [node["id"] for node in data["nodes"]]
    assert len(ids) == len(set(ids)) == walked(loss) + 1
    outputs = {node["id"]: len(node["outputs"]) for node in data["nodes"]}
    assert all(edge["output"] < outputs[edge["from"]] and edge["to"] in outputs for edge in data["edges"])


def test_the_check_of_the_schema_refuses() -> None:
    data = json.loads(graph.json(mlp()[1]))
    for path, wrong in [("kind", "box"), ("sequence", "1"), ("saved_bytes", -1), ("freed", 0), ("outputs", [{}])]:
        broken = json.loads(json.dumps(data))
        broken["nodes"][1][path] = wrong
        with pytest.raises(AssertionError):
            check(broken, graph.JSON_SCHEMA)


def test_json_is_the_same_in_every_run_but_for_sequence_numbers() -> None:
    def written() -> str:
        model, loss = mlp()
        return re.sub(r'"sequence": \d+', '"sequence": 0', graph.json(loss, model))

    assert written() == written()


def test_saved_values_say_what_they_are_and_who_shares_them() -> None:
    w = torch.ones(3, requires_grad=True)
    y = w.exp()
    loss = (y * w * torch.ones(3)).sum()
    found = {node["label"]: node for node in json.loads(graph.json(loss, {"w": w}))["nodes"] if node["saved"]}
    (result,) = found["Exp"]["saved"]
    assert (result["name"], result["shape"], result["dtype"], result["origin"]) == ("result", [3], "float32", "result")
    assert (result["bytes"], result["shared"], result["owned"]) == (12, True, False)
    product = [entry for node in json.loads(graph.json(loss))["nodes"] for entry in node["saved"]]
    assert {(e["origin"], e["owned"]) for e in product} == {
        ("result", False), ("value", False), ("leaf", True), ("constant", False)
    }  # fmt: skip
    # The result of exp is an operand of the product: one memory.
    assert len({e["storage"] for e in product if e["shared"]}) == 1


# ---- what a node says ------------------------------------------------------------------------------------------------


def one(loss: torch.Tensor, label: str, **options: Any) -> graph.Node:
    (found,) = [node for node in graph.trace(loss, **options).nodes if node.label == label]
    return found


def test_pictures_tell_dtypes_and_on_pointing_all_else() -> None:
    x = torch.ones(2, 3, dtype=torch.float64, requires_grad=True)
    y = x.exp()
    y.register_hook(lambda g: None)
    picture = graph.svg(y.to(torch.float16).max(dim=1).values)
    for text in (
        "2×3<tspan> f64</tspan>",
        "2×3<tspan> f16</tspan>",
        "keeps 48 B",
        "hooks: 1 tensor",
        "output 2×3 float64",
    ):
        assert text in picture


def test_memory_is_known_without_being_kept() -> None:
    x = torch.ones(10)
    known, same = _core._storage_of(x), _core._storage_of(x[2:])
    assert (known.bytes, known.id, known.alive) == (40, same.id, True)
    del x
    assert not known.alive
    assert _core._storage_of(torch.ones(10)).id != known.id  # while it is known, no other memory has its number


def test_hooks_and_retained_gradients_are_counted() -> None:
    x = torch.ones(2, requires_grad=True)
    y = x.exp()
    y.retain_grad()
    handles = [y.register_hook(lambda g: None), y.register_hook(lambda g: None)]
    assert y.grad_fn is not None
    y.grad_fn.register_prehook(lambda g: None)
    y.grad_fn.register_hook(lambda a, b: None)
    x.register_hook(lambda g: None)
    x.register_post_accumulate_grad_hook(lambda p: None)
    loss = y.sum()
    assert one(loss, "Exp").hooks == graph.Hooks(tensor=2, pre=1, post=1)
    assert one(loss, "Exp").retained == [0]
    assert one(loss, "leaf").hooks == graph.Hooks(tensor=1, accumulate=1)
    handles[0].remove()
    assert one(loss, "Exp").hooks.total == 3
    del y
    assert one(loss, "Exp").retained == []  # nobody is left to read it


def test_what_backward_let_go_of_is_shown_as_freed() -> None:
    x = torch.ones(2, requires_grad=True)
    loss = x.exp().sum()
    assert not one(loss, "Exp").freed and one(loss, "Exp").saved_bytes == 8
    loss.backward()
    assert one(loss, "Exp").freed and one(loss, "Exp").saved_bytes == 0
    assert not one(loss, "Sum").freed  # it keeps nothing, and can be walked again


class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, None, by)
        ctx.extra = [torch.ones(10)]
        return x * by

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> Any:
        x, _, by = ctx.saved_tensors
        return g * by, g * x


def test_custom_functions_show_what_they_save_and_what_their_context_holds() -> None:
    x, by = torch.ones(3, requires_grad=True), torch.ones(3)
    node = one(Scale.apply(x, by), "Scale")
    assert [(e.name, e.shape, e.origin, e.bytes, e.owned) for e in node.saved] == [
        ("tensors[0]", (3,), "leaf", 12, True),
        ("tensors[2]", (3,), "constant", 12, False),
        ("ctx.extra", (10,), "context", 40, False),
    ]
    function = Scale.apply(x, by).grad_fn
    assert not [name for name in dir(function) if name.startswith("_saved_")]


def test_values_that_hooks_put_away_are_shown_and_not_unpacked() -> None:
    def never(packed: Any) -> torch.Tensor:
        raise AssertionError("brought back")

    x = torch.ones(3, requires_grad=True)
    for pack, bytes_ in [(lambda t: t.clone(), 12), (lambda t: ("cpu", t.clone()), 12), (lambda t: "gone", 0)]:
        with torch.autograd.graph.saved_tensors_hooks(pack, never):
            loss = x.exp().sum()
        (entry,) = one(loss, "Exp").saved
        assert (entry.origin, entry.bytes, entry.storage is None) == ("packed", bytes_, bytes_ == 0)


def test_a_part_written_in_place_shows_what_the_writing_keeps() -> None:
    base = torch.zeros(4, requires_grad=True).clone()
    base[:2].mul_(torch.full((2,), 3.0))
    node = one(base.sum(), "CopySlices")
    assert [(entry.name, entry.shape) for entry in node.saved] == [("other", (2,))]
    assert base.grad_fn is not None and not [n for n in dir(base.grad_fn) if n.startswith("_saved_")]


def test_modules_are_named_if_they_were_recorded() -> None:
    model, _ = mlp()
    with graph.record_modules(model) as modules:
        loss = model(torch.ones(5, 3)).pow(2).sum()
    found = graph.trace(loss, modules=modules)
    assert [(n.label, n.module) for n in found.nodes if n.kind == "op"] == [
        ("Sum", None), ("Pow", None), ("Addmm", "2"), ("Tanh", "1"), ("T", "2"), ("Addmm", "0"), ("T", "0")
    ]  # fmt: skip
    assert {n.label for n in found.nodes if n.kind == "parameter"} == {"0.weight", "0.bias", "2.weight", "2.bias"}


@pytest.mark.row("B2.deep_graphs")
def test_a_million_nodes_are_walked_and_drawn_up_to_the_limit() -> None:
    y = torch.ones(1, requires_grad=True)
    for _ in range(1_000_000):
        y = y + 1
    for write in (graph.dot, graph.mermaid, graph.svg, graph.html):
        assert "..." in write(y) or "#46;#46;" in write(y)
    assert graph.saved_memory(y).nodes == []
    assert sum(1 for _ in functions([y.grad_fn])) == 1_000_001
    assert len(graph.trace(y, limit=100_000).nodes) == 100_002
