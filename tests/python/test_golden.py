"""Every operator rustgrad has, against what PyTorch answered: results, gradients and gradients of gradients.

One test per operator and variant, which reports all of its failing samples at once. `tests/data/golden/absent.txt` says
which operators are missing and is held to the truth; `make absent` writes it.
"""

from __future__ import annotations

import fnmatch
import os
import pathlib
from typing import Any

import pytest

import golden_compare
import golden_reader
import rustgrad as torch

DATA = pathlib.Path(golden_reader.__file__).parent
GOLDEN = golden_reader.load(str(DATA))
ABSENT = DATA / "absent.txt"
WANTED_TIER_1 = 120


def label(op: dict[str, Any]) -> str:
    return f"{op['name']}/{op['variant']}".rstrip("/")


def read_table(path: pathlib.Path) -> list[str]:
    lines = (line.strip() for line in path.read_text().splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def read_differences() -> dict[tuple[str, str], str]:
    table = {}
    for line in read_table(DATA / "differs.txt"):
        key, _, reason = line.partition(": ")
        name, _, sample = key.partition(" ")
        if not (name and sample and reason.strip()):
            raise ValueError(f"differs.txt: {line!r} is not NAME[/VARIANT] SAMPLE: REASON")
        table[name, sample] = reason
    return table


PRESENT = [op for op in GOLDEN.ops if golden_compare.resolves(torch, op)]
MISSING = sorted({label(op) for op in GOLDEN.ops} - {label(op) for op in PRESENT})
DIFFERS = read_differences()


@pytest.mark.parametrize("op", PRESENT, ids=label)
def test_operator(op: dict[str, Any]) -> None:
    patterns = {sample: reason for (name, sample), reason in DIFFERS.items() if name == label(op)}
    report, unused = [], set(patterns)
    for sample in op["samples"]:
        wrong = golden_compare.failures(torch, GOLDEN, op, sample)
        known = [pattern for pattern in patterns if fnmatch.fnmatchcase(sample["id"], pattern)]
        if wrong and known:
            unused.difference_update(known)
        elif wrong:
            call = f"args {sample['args']} kwargs {sample['kwargs']}"
            shapes = [t["shape"] for t in sample["tensors"]]
            report.append(f"{sample['id']}: {'; '.join(wrong)}\n    {call} shapes {shapes}"[:600])
        elif known:
            report.append(f"{sample['id']} agrees, but differs.txt says that it does not")
    report += [f"differs.txt names {label(op)} {pattern}, and no such sample fails" for pattern in sorted(unused)]
    if report:
        pytest.fail(f"{label(op)}: {len(report)} of {len(op['samples'])} samples\n" + "\n".join(report), pytrace=False)


def test_enough_everyday_operators_are_there() -> None:
    names = {op["name"] for op in PRESENT if op["tier"] == 1}
    assert len(names) >= WANTED_TIER_1, f"{len(names)} everyday operators, {WANTED_TIER_1} wanted"


def test_absent_list_is_current() -> None:
    if os.environ.get("RUSTGRAD_WRITE_ABSENT"):
        head = "# Operators of the golden data that rustgrad does not have. Written by `make absent`; do not edit.\n"
        ABSENT.write_text(head + "".join(f"{name}\n" for name in MISSING))
    listed = read_table(ABSENT)
    assert listed == MISSING, (
        f"no longer absent: {sorted(set(listed) - set(MISSING))}; lost: {sorted(set(MISSING) - set(listed))}; "
        "run `make absent` if that is meant"
    )


def test_differences_name_operators_that_exist() -> None:
    unknown = {name for name, _ in DIFFERS} - {label(op) for op in PRESENT}
    assert not unknown
