"""What all pictures share: colours by kind, the words for a node, sizes in bytes."""

from __future__ import annotations

from rustgrad.graph._walk import Kind, Node

__all__ = ["COLOURS", "LEGEND", "lines_of", "size_text"]

COLOURS: dict[Kind, tuple[str, str]] = {
    "op": ("#eef1f5", "#7a8699"),
    "parameter": ("#cfe3fb", "#2f6fb7"),
    "leaf": ("#fbeed0", "#b8862f"),
    "result": ("#d5efd8", "#3f8f4d"),
    "cut": ("#ffffff", "#b3b3b3"),
}
LEGEND: dict[Kind, str] = {"parameter": "parameter", "leaf": "other leaf", "op": "operation", "result": "result"}


def size_text(count: int) -> str:
    """Bytes for people: `12 B`, `1.5 KiB`, `96.0 MiB`."""
    if count < 1024:
        return f"{count} B"
    size = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1023.95:
            return f"{size:.1f} {unit}"
    return f"{size / 1024:.1f} TiB"


def lines_of(node: Node) -> list[str]:
    """All that is known of a node, a line each."""
    lines = [node.detail or node.label]
    lines += [f"output {output}" for output in node.outputs]
    if node.module is not None:
        lines.append(f"in module {node.module or '(the model itself)'}")
    if node.line is not None:
        lines.append(f"at {node.line}")
    if node.saved:
        lines.append(f"keeps {size_text(node.saved_bytes)}")
        lines += [
            f"  {entry.name}: {list(entry.shape)} {entry.dtype}"
            + (", put away by hooks" if entry.storage is None else f", {size_text(entry.bytes)}")
            + (" of a leaf" if entry.owned else "")
            for entry in node.saved
        ]
    if node.freed:
        lines.append("has let go of what it kept: a backward has run")
    hooks = [f"{count} {name}" for name, count in node.hooks._asdict().items() if count]
    if hooks:
        lines.append("hooks: " + ", ".join(hooks))
    if node.retained:
        lines.append("retains the gradient of output " + ", ".join(map(str, node.retained)))
    return lines
