"""Time of a cold decision by mesh dims, as a PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.figure import Figure

MISSING = "no plot: it needs matplotlib (pip install matplotlib)"


def draw(figures: Sequence[Figure], file: Path) -> str:
    """Draw whole decisions of every op on bare torch and on the registry.

    Returns:
        What was done, for people.
    """
    try:
        import matplotlib
    except ImportError:
        return MISSING
    matplotlib.use("agg")
    from matplotlib import pyplot

    names = dict.fromkeys(f.what for f in figures if f.what.endswith("whole decision"))
    plot, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    for colour, name in enumerate(names):
        found = [figure for figure in figures if figure.what == name]
        bare = [figure for figure in found if figure.bare is not None]
        style = {"color": f"C{colour}", "marker": "o"}
        op = name.removesuffix(": whole decision")
        axes.plot([f.mesh_ndim for f in bare], [f.bare for f in bare], linestyle="--", **style)
        axes.plot([f.mesh_ndim for f in found], [f.registry for f in found], label=op, **style)
    axes.set(
        title="One cold sharding decision (dashed: bare torch)",
        xlabel="mesh dims",
        ylabel="median ms",
        yscale="log",
        xticks=sorted({figure.mesh_ndim for figure in figures if figure.mesh_ndim}),
    )
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    plot.savefig(file, dpi=120)
    pyplot.close(plot)
    return f"plot in {file}"
