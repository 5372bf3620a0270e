"""The page that `rustgrad.graph.html` writes, opened in a browser without a window: what it shows, and what it does."""

from __future__ import annotations

import functools
import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import rustgrad as torch
from rustgrad import graph

pytestmark = pytest.mark.row("B2.graph_report")

# Before the page's own scripts: what goes wrong is noted.
_WATCH = """<script>
window.wrong = [];
addEventListener("error", (event) => wrong.push(String(event.message)), true);
addEventListener("unhandledrejection", (event) => wrong.push(String(event.reason)));
addEventListener("securitypolicyviolation", (event) => wrong.push(`wants ${event.blockedURI}`));
for (const kind of ["error", "warn"]) console[kind] = (...args) => wrong.push(args.join(" "));
</script>"""
# After them: tools for the steps of a test, whose answer is written into the page, where it is read.
_STEPS = """<script>
const all = (what) => [...document.querySelectorAll(what)], one = (what) => document.querySelector(what);
const box = (label) => all(".node").find((box) => box.querySelector("text").textContent === label);
const viewed = () => { const v = one("#stage > svg").viewBox.baseVal; return [v.x, v.y, v.width, v.height]; };
const centre = (what) => { const r = what.getBoundingClientRect(); return [r.left + r.width / 2, r.top + r.height / 2]; };
const point = (kind, target, [clientX, clientY] = centre(target)) =>
  target.dispatchEvent(new PointerEvent(kind, { bubbles: true, pointerId: 1, clientX, clientY }));
const key = (target, key) => target.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
const type = (text) => { one("#search").value = text; one("#search").dispatchEvent(new Event("input")); };
addEventListener("load", () => {
  const answer = (() => { %s })();
  const loaded = performance.getEntriesByType("resource").map((entry) => entry.name);
  const made = document.createElement("pre");
  made.id = "answer";
  made.textContent = JSON.stringify({ answer, wrong, loaded });
  document.body.append(made);
});
</script>"""


@functools.cache
def browser() -> str:
    for name in ("chromium", "google-chrome", "chromium-browser"):
        found = shutil.which(name)
        if found:
            return found
    if os.environ.get("RUSTGRAD_BROWSER") == "required":
        pytest.fail("RUSTGRAD_BROWSER=required, but there is no chromium and no google-chrome on the PATH")
    pytest.skip("no browser: neither chromium nor google-chrome is on the PATH")


def visit(page: str, steps: str, folder: Path) -> Any:
    """What the steps, the body of a JavaScript function, return when run in the page, which must not complain."""
    text = page.replace("<head>", "<head>" + _WATCH, 1)
    head, end, tail = text.rpartition("</body>")
    file = folder / "page.html"
    file.write_text(head + _STEPS % steps + end + tail, encoding="utf-8")
    command = [
        browser(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--window-size=1200,800", f"--user-data-dir={folder / 'profile'}", "--virtual-time-budget=5000", "--dump-dom",
        file.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", timeout=120, check=True)
    found = re.search(r'<pre id="answer">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found is not None, done.stdout[-2000:] + done.stderr[-2000:]
    outcome = json.loads(html.unescape(found[1]))
    assert outcome["wrong"] == []
    assert outcome["loaded"] == []
    return outcome["answer"]


def example() -> tuple[torch.nn.Module, torch.Tensor]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(3, 60), torch.nn.Tanh(), torch.nn.Linear(60, 2))
    return model, model(torch.ones(5, 3)).pow(2).sum()


@pytest.fixture
def page() -> str:
    model, loss = example()
    return graph.html(loss, model, title="</title><script>alert(1)</script>")


def test_all_nodes_and_their_sizes_are_there(page: str, tmp_path: Path) -> None:
    model, loss = example()
    found = graph.trace(loss, model)
    shown = visit(
        page,
        """return {
            title: document.title, boxes: all(".node").length, edges: all(".edge").length,
            heavy: all("#heavy tr").map((row) => [row.dataset.id, row.querySelector(".size").textContent]),
            inside: all(".node rect").every((rect) => {
              const [r, s] = [rect.getBoundingClientRect(), one("#stage").getBoundingClientRect()];
              return r.left >= s.left && r.right <= s.right && r.top >= s.top && r.bottom <= s.bottom;
            }),
        };""",
        tmp_path,
    )
    assert shown["title"] == "</title><script>alert(1)</script>"
    assert (shown["boxes"], shown["edges"]) == (len(found.nodes), len(found.edges))
    assert shown["inside"]  # a small graph is seen whole
    sizes = sorted((node.saved_bytes for node in found.nodes if node.saved_bytes), reverse=True)
    assert [size for _, size in shown["heavy"]] == [f"{n / 1024:.1f} KiB" if n >= 1024 else f"{n} B" for n in sizes]
    assert sizes[0] == 5 * 60 * 4
    assert all(
        found.nodes[int(name[1:])].saved_bytes == size for (name, _), size in zip(shown["heavy"], sizes, strict=True)
    )


def test_pointing_shows_details_and_choosing_keeps_them(page: str, tmp_path: Path) -> None:
    shown = visit(
        page,
        """const tanh = box("Tanh"), before = one("#tip").hidden;
        point("pointerover", tanh); point("pointermove", tanh);
        const tip = one("#tip").innerText, at = one("#tip").getBoundingClientRect().left;
        const near = all(".node.near text:not(.caption)").map((text) => text.textContent);
        point("pointerdown", tanh); point("pointerup", tanh); point("click", tanh);
        point("pointerleave", one("#stage"));
        return { before, tip, at, near, gone: one("#tip").hidden, kept: one("#chosen").innerText,
                 chosen: box("Tanh").classList.contains("chosen") };""",
        tmp_path,
    )
    assert shown["before"] and shown["gone"] and shown["chosen"] and shown["at"] > 0
    for text in (shown["tip"], shown["kept"]):
        assert "TanhBackward0" in text and "5×60 float32" in text and "keeps result" in text and "1.2 KiB" in text
    assert sorted(shown["near"]) == ["Addmm", "Addmm", "Tanh"]


def test_search_finds_by_name_shape_and_dtype(page: str, tmp_path: Path) -> None:
    shown = visit(
        page,
        """const names = () => all(".node.hit text:not(.caption)").map((label) => label.textContent).sort();
        const hits = (text) => { type(text); return names(); };
        const found = ["tanh", "0.w", "60×3", "float32", "nothing like it"].map(hits);
        type("addmm");
        const before = viewed(), said = one("#found").value;
        key(one("#search"), "Enter");
        const first = one(".chosen").dataset.id, after = viewed();
        key(one("#search"), "Enter");
        const second = one(".chosen").dataset.id;
        key(one("#search"), "Escape");
        return { found, said, first, second, moved: String(before) !== String(after),
                 over: one("#stage > svg").classList.contains("searching"), left: all(".hit").length };""",
        tmp_path,
    )
    tanh, weight, shape, everything, nothing = shown["found"]
    assert tanh == ["Tanh"] and weight == ["0.weight"] and shape == ["0.weight"] and nothing == []
    assert len(everything) == len(graph.trace(*reversed(example())).nodes)
    assert shown["said"].startswith("2 found") and shown["moved"]
    assert shown["first"] != shown["second"]
    assert not shown["over"] and shown["left"] == 0


def test_the_picture_is_moved_enlarged_fitted_and_darkened(page: str, tmp_path: Path) -> None:
    shown = visit(
        page,
        """const stage = one("#stage"), views = [viewed()], colour = () => getComputedStyle(document.body).backgroundColor;
        const [x, y] = centre(stage);
        stage.dispatchEvent(new WheelEvent("wheel", { deltaY: -300, clientX: x, clientY: y, cancelable: true }));
        views.push(viewed());
        point("pointerdown", stage, [x, y]); point("pointermove", stage, [x + 3, y]);
        point("pointermove", stage, [x + 4, y]);
        point("pointerup", stage, [x + 4, y]);
        views.push(viewed());
        one("#fit").click(); views.push(viewed());
        one("#in").click(); key(document.body, "-"); views.push(viewed());
        one("#heavy tr").click();
        const colours = [colour()];
        one("#theme").click(); colours.push(colour());
        return { views, colours, chosen: one(".chosen").dataset.id, heaviest: one("#heavy tr").dataset.id };""",
        tmp_path,
    )
    start, enlarged, moved, fitted, again = shown["views"]
    assert enlarged[2] < start[2] * 0.8
    # The point under the wheel stays where it is.
    assert enlarged[0] + enlarged[2] / 2 == pytest.approx(start[0] + start[2] / 2, abs=1)
    scale = 850 / enlarged[2]  # the stage is the window without the column of 350
    assert moved[0] == pytest.approx(enlarged[0] - 4 / scale, abs=0.01)
    assert fitted == pytest.approx(start, abs=0.01) and again == pytest.approx(fitted, abs=0.01)
    assert shown["chosen"] == shown["heaviest"]
    light, dark = shown["colours"]
    assert light != dark


def test_a_notebook_shows_the_page_in_a_frame(tmp_path: Path) -> None:
    model, loss = example()
    found = graph.trace(loss, model)
    cell = found._repr_html_()
    assert not hasattr(loss, "_repr_html_")  # a tensor prints as PyTorch's does
    shown = visit(
        f"<!doctype html><html><head></head><body>{cell}</body></html>",
        """const inside = one("iframe").contentDocument;
        return { boxes: inside.querySelectorAll(".node").length, rows: inside.querySelectorAll("#heavy tr").length,
                 seen: inside.querySelector(".node rect").getBoundingClientRect().width > 0 };""",
        tmp_path,
    )
    assert shown["boxes"] == len(found.nodes) and shown["rows"] > 0 and shown["seen"]


def test_large_graphs_begin_at_their_inputs_at_a_legible_size(tmp_path: Path) -> None:
    y = torch.ones(1, requires_grad=True)
    for _ in range(100):
        y = y.sin()
    shown = visit(graph.html(y), 'return { view: viewed(), leaf: box("leaf").getBoundingClientRect() };', tmp_path)
    assert shown["view"][3] < 1100  # of 6,500
    assert shown["leaf"]["top"] > 0 and shown["leaf"]["height"] >= 25
