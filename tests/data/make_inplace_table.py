"""Records which operands and results PyTorch refuses to find changed in backward.

`python make_inplace_table.py > inplace_table.txt`. Needs PyTorch; the tests need only the text. A line: row and arguments
as in edge_cases.txt, `:`, the operands that require a gradient, `:`, and for each operand (`0`, `1`, ...) and the result
(`y`) `!` if backward fails after it was changed in place, `.` if it does not.
"""

import sys

import torch
from make_edge_cases import ROWS


def fails(function, n: int, needs: list[bool], target: str) -> bool:
    leaves = [torch.full((4,), 0.3 + 0.2 * k, dtype=torch.float64).requires_grad_(need) for k, need in enumerate(needs)]
    # Modified tensors may not be leaves.
    operands = [x * 1 if x.requires_grad else x for x in leaves]
    y = function(*operands)
    if not y.requires_grad:
        return False
    with torch.no_grad():
        changed = y if target == "y" else operands[int(target)]
        changed.mul_(1)
    try:
        torch.autograd.grad(y, [x for x in leaves if x.requires_grad], torch.ones_like(y), allow_unused=True)
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        return True
    return False


def main() -> None:
    out = sys.stdout
    out.write(f"# Recorded by make_inplace_table.py from PyTorch {torch.__version__}, CPU.\n")
    for name, n, arguments, function in ROWS:
        masks = [[True] * n] + ([[k == only for k in range(n)] for only in range(n)] if n > 1 else [])
        for needs in masks:
            targets = [*map(str, range(n)), "y"]
            answers = " ".join(t + ("!" if fails(function, n, needs, t) else ".") for t in targets)
            required = " ".join(str(k) for k in range(n) if needs[k])
            out.write(f"{name} {arguments} : {required} : {answers}\n")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
