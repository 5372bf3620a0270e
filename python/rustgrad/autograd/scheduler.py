"""Who did what when in a backward that several threads shared: a trace, as data, as a file for Chrome, as a picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Self

from rustgrad import _core

if TYPE_CHECKING:
    import os
    from types import TracebackType

__all__ = ["SchedulerTrace", "Span", "scheduler_trace"]

# What a thread does, with the colour it has in the picture.
_COLOURS = {"compute": "#4c78a8", "retire": "#72b7b2", "wait": "#e45756", "slices": "#f2a541"}
_WIDTH, _LABEL, _LANE, _TOP = 1000, 90, 26, 30


class Span(NamedTuple):
    """What a thread did for a while; times are nanoseconds from the beginning of the trace."""

    lane: int
    """The thread; 0 is the one that traced."""
    kind: str
    """`compute` (a node), `retire` (taking over a node that another thread computed), `wait`, `slices` (of a kernel)."""
    what: str
    """Which node, or how many slices."""
    begin: int
    """When it began."""
    end: int
    """When it ended."""


class SchedulerTrace:
    """Notes, inside a `with` statement, who does what when in backwards and in kernels that threads share.

    Raises:
        RuntimeError: another trace is under way.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        """In the order in which they ended."""

    def __enter__(self) -> Self:
        if not _core._trace_begin():
            raise RuntimeError("scheduler_trace: another trace is under way")
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        me, events = _core._trace_end()
        others = sorted({lane for lane, *_ in events} - {me})
        lanes = {me: 0, **{lane: k for k, lane in enumerate(others, 1)}}
        self.spans = [Span(lanes[lane], kind, what, begin, end) for lane, kind, what, begin, end in events]

    def _lane_name(self, lane: int) -> str:
        return "caller" if lane == 0 else f"thread {lane}"

    def chrome(self) -> dict[str, Any]:
        """The trace in the Trace Event Format, which `chrome://tracing` and Perfetto show: a lane for each thread."""
        names = [
            {"ph": "M", "pid": 1, "tid": lane, "name": "thread_name", "args": {"name": self._lane_name(lane)}}
            for lane in sorted({span.lane for span in self.spans})
        ]
        spans = [
            {
                "ph": "X",
                "pid": 1,
                "tid": span.lane,
                "name": span.what,
                "cat": span.kind,
                "ts": span.begin / 1000,
                "dur": (span.end - span.begin) / 1000,
            }
            for span in self.spans
        ]
        return {"traceEvents": [*names, *spans], "displayTimeUnit": "ns"}

    def svg(self) -> str:
        """A picture: each thread a lane, time from left to right, colours by what the thread did."""
        from html import escape

        start = min((span.begin for span in self.spans), default=0)
        stop = max((span.end for span in self.spans), default=1)
        scale = (_WIDTH - _LABEL - 10) / max(stop - start, 1)
        lanes = max((span.lane for span in self.spans), default=0) + 1
        height = _TOP + lanes * _LANE + 24
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        ]
        for k, (kind, colour) in enumerate(_COLOURS.items()):
            parts.append(f'<rect x="{_LABEL + 90 * k}" y="8" width="12" height="12" fill="{colour}"/>')
            parts.append(f'<text x="{_LABEL + 90 * k + 17}" y="18">{kind}</text>')
        for lane in range(lanes):
            y = _TOP + lane * _LANE
            parts.append(f'<text x="6" y="{y + 16}">{self._lane_name(lane)}</text>')
            parts.append(
                f'<rect x="{_LABEL}" y="{y}" width="{_WIDTH - _LABEL - 10}" height="{_LANE - 4}" fill="#f3f3f3"/>'
            )
        # Waiting lies behind what the thread does meanwhile.
        for span in sorted(self.spans, key=lambda span: (span.kind != "wait", span.begin)):
            x, y = _LABEL + (span.begin - start) * scale, _TOP + span.lane * _LANE
            width = max((span.end - span.begin) * scale, 0.2)
            title = escape(f"{span.kind} {span.what}: {(span.end - span.begin) / 1000:.1f} us")
            colour = _COLOURS.get(span.kind, "#999999")
            parts.append(
                f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{_LANE - 4}" fill="{colour}">'
                f"<title>{title}</title></rect>"
            )
        total = (stop - start) / 1000
        parts.append(f'<text x="{_LABEL}" y="{height - 8}">0</text>')
        parts.append(f'<text x="{_WIDTH - 10}" y="{height - 8}" text-anchor="end">{total:.1f} us</text>')
        parts.append("</svg>")
        return "\n".join(parts)

    def _repr_html_(self) -> str:
        return self.svg()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the trace for Chrome (`.json`) or the picture (`.svg`).

        Raises:
            ValueError: the name ends otherwise.
        """
        import json
        from pathlib import Path

        path = Path(path)
        if path.suffix == ".json":
            path.write_text(json.dumps(self.chrome()), encoding="utf-8")
        elif path.suffix == ".svg":
            path.write_text(self.svg(), encoding="utf-8")
        else:
            raise ValueError(f"scheduler_trace: expected a file that ends in .json or .svg, got {path.name!r}")


def scheduler_trace() -> SchedulerTrace:
    """Traces the backward scheduler.

    >>> x = rustgrad.ones(2, requires_grad=True)
    >>> with rustgrad.autograd.scheduler_trace() as trace:
    ...     (x * x).sum().backward()
    >>> [span.what.split()[0] for span in trace.spans]
    ['SumBackward0', 'MulBackward0', 'AccumulateGrad']

    Raises:
        RuntimeError: on entry, if another trace is under way.
    """
    return SchedulerTrace()
