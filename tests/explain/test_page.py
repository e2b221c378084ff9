"""The page: one file, well-formed, named for those who do not see it, and alive in a browser."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from dtensor_registry.errors import MissingPackageError
from dtensor_registry.explanation import Explanation, ExplanationReport
from dtensor_registry.explanation.drawing import draw
from dtensor_registry.explanation.page import explanation_page
from dtensor_registry.pages import render
from tests.explain.pages import Element, browser, look, read_page

CALLS = {
    "chosen": ("aten.mm", "f32[8,6]@S(0),P", "f32[6,8]@S(0),R", "--mesh", "dp=2,tp=2"),
    "raises": ("aten.nonzero", "f32[8]@S(0)", "--mesh", "2"),
    "op alone": ("aten.mm",),
    "scalar and three mesh dims": ("aten.relu", "f32[]@R,P,R", "--mesh", "2x3x2"),
    "three tensor dims": ("aten.relu", "f32[4,6,8]@S(1),S(0)", "--mesh", "2x2"),
    "no elements": ("aten.relu", "f32[0,3]@S(0)", "--mesh", "2"),
}

needs_browser = pytest.mark.skipif(browser() is None, reason="no chromium is installed")


@pytest.fixture
def explained(run: Any) -> dict[str, Explanation]:
    return {
        name: ExplanationReport.model_validate_json(run(*call, "--json").out).root
        for name, call in CALLS.items()
    }


@pytest.fixture
def pages(explained: dict[str, Explanation]) -> dict[str, Element]:
    return {name: read_page(explanation_page(told)) for name, told in explained.items()}


def test_a_page_asks_for_nothing_from_anywhere(pages: dict[str, Element]) -> None:
    for page in pages.values():
        for element in page.every():
            for name in ("src", "href", "action", "srcset", "data"):
                assert (element.attributes.get(name) or "#").startswith("#")
        (policy,) = [m for m in page.all("meta") if "http-equiv" in m.attributes]
        assert "default-src 'none'" in (policy.attributes["content"] or "")
        assert re.findall(r"https?://|url\((?!#)", page.text) == []


def test_ids_are_unique_and_labels_are_there(pages: dict[str, Element]) -> None:
    for page in pages.values():
        ids = [e.attributes["id"] for e in page.every() if "id" in e.attributes]
        assert len(ids) == len(set(ids))
        labels = [e.attributes.get("aria-labelledby") for e in page.every()]
        assert {label for label in labels if label is not None} <= set(ids)
        assert page.all("html")[0].attributes["lang"] == "en"
        assert [heading.tag for heading in page.all("h1")] == ["h1"]


def test_tables_have_captions_scopes_and_at_most_one_sorted_column(
    pages: dict[str, Element],
) -> None:
    for page in pages.values():
        for table in page.all("table"):
            assert len(table.all("caption")) == 1
            assert all(th.attributes["scope"] in ("col", "row") for th in table.all("th"))
            order = [th.attributes.get("aria-sort") for th in table.all("thead")[0].all("th")]
            if table.attributes.get("class") == "sortable":
                assert sorted(map(str, order)) == ["ascending", *["none"] * (len(order) - 1)]
                assert all(len(th.all("button")) == 1 for th in table.all("thead")[0].all("th"))


def test_drawings_have_a_name_and_each_rank_a_description(pages: dict[str, Element]) -> None:
    page = pages["chosen"]
    figures = page.all("figure")
    assert [f.all("figcaption")[0].all("strong")[0].text for f in figures] == [
        "self",
        "mat2",
        "output 0",
    ]
    for figure in figures:
        (drawing,) = figure.all("svg")
        assert drawing.attributes["role"] == "img"
        assert drawing.attributes["aria-label"]
        assert len(drawing.all("g")) == len(figure.all("details")[0].all("li")) == 4
        assert (
            drawing.all("title")[1].text
            == "rank 1 at (0, 1): " + (figure.all("li")[1].text.partition(": ")[2])
        )


def test_a_piece_is_drawn_where_it_is(explained: dict[str, Explanation]) -> None:
    drawing = draw(explained["three tensor dims"])[0]
    assert drawing.note == "drawn: tensor dims 0 (down) and 1 (across)"
    boxes = [
        (
            round((r.piece.x - r.whole.x) / r.whole.width, 2),
            round((r.piece.y - r.whole.y) / r.whole.height, 2),
            round(r.piece.width / r.whole.width, 2),
            round(r.piece.height / r.whole.height, 2),
        )
        for r in drawing.ranks
    ]
    assert boxes == [(0, 0, 0.5, 0.5), (0, 0.5, 0.5, 0.5), (0.5, 0, 0.5, 0.5), (0.5, 0.5, 0.5, 0.5)]


def test_text_that_looks_like_markup_stays_text() -> None:
    page = read_page(render("page.html", title="<script>x</script>", summary="a & b"))
    assert page.all("h1")[0].text == "<script>x</script>"


def test_html_is_written_beside_the_text(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    outcome = run(*CALLS["chosen"], "--html", str(file))
    assert outcome.code == 0
    assert outcome.out == run(*CALLS["chosen"]).out
    assert read_page(file.read_text("utf-8")).all("h1")[0].text == "aten.mm.default"


def test_without_jinja2_it_says_what_to_install(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    outcome = run("aten.mm", "--html", str(tmp_path / "page.html"))
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err == (
        "error: writing a page needs jinja2, which is not installed.\n"
        "  pip install 'dtensor-registry[pages]'\n"
    )
    with pytest.raises(MissingPackageError):
        render("page.html", title="", summary="")


@needs_browser
def test_a_click_and_a_key_sort_the_table(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    run(*CALLS["chosen"], "--html", str(file))
    seen = look(
        file,
        """
        const button = document.querySelectorAll("#choices thead button")[1];
        const first = () => document.querySelector("#choices tbody tr").cells[1].dataset.value;
        const order = () => button.closest("th").getAttribute("aria-sort");
        const state = () => [order(), Number(first())];
        const all = [...document.querySelectorAll("#choices tbody tr")].map(
          (row) => Number(row.cells[1].dataset.value));
        const states = [state()];
        button.click(); states.push(state());
        button.focus();
        const focused = document.activeElement === button;
        button.click(); states.push(state());
        document.title = JSON.stringify({
          states, focused, least: Math.min(...all), most: Math.max(...all),
          told: document.getElementById("told").textContent,
          wide: document.documentElement.scrollWidth <= window.innerWidth,
        });
        """,
    )
    found = json.loads(seen.all("title")[0].text)
    assert found["states"] == [
        ["ascending", found["least"]],
        ["descending", found["most"]],
        ["ascending", found["least"]],
    ]
    assert found["most"] > found["least"]
    assert found["told"] == "sorted by microseconds, ascending"
    assert found["focused"]
    assert found["wide"]


@needs_browser
def test_every_text_can_be_read_in_light_and_in_dark(run: Any, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    run(*CALLS["chosen"], "--html", str(file))
    script = """
      const light = (color) => {
        const [r, g, b] = color.match(/[\\d.]+/g).map((v) => {
          const c = Number(v) / 255;
          return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
        });
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const behind = (element) => {
        for (let at = element; at !== null; at = at.parentElement) {
          const color = getComputedStyle(at).backgroundColor;
          if (!color.startsWith("rgba(0, 0, 0, 0")) return color;
        }
        return "rgb(255, 255, 255)";
      };
      let least = 21;
      for (const element of document.body.querySelectorAll("h1, h2, p, td, th, dt, dd, li, pre")) {
        const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
        least = Math.min(least, (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05));
      }
      document.title = JSON.stringify([least, light(behind(document.body))]);
    """
    contrasts = {
        dark: json.loads(look(file, script, dark=dark).all("title")[0].text)
        for dark in (False, True)
    }
    # Source: WCAG 2.2, 1.4.3: at least 4.5 for text.
    assert all(contrast >= 4.5 for contrast, _ in contrasts.values())
    assert contrasts[False][1] > 0.9 > 0.1 > contrasts[True][1]
