"""The documentation as a site: it builds without a word, needs no network, and can be searched from disk."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.documented import ROOT, pages

pytestmark = pytest.mark.slow
_FETCHES = {"link": "href", "use": "href", "object": "data", "form": "action"}
"""The attribute by which an element makes a browser fetch something, where it is not `src`."""


class Fetched(HTMLParser):
    """Collects what a browser fetches to show a page; links that a reader may follow are not among it."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("src", "srcset", "poster", _FETCHES.get(tag)):
                self.found.append(value)


def fetched(page: str) -> list[str]:
    parser = Fetched()
    parser.feed(page)
    return parser.found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder


def foreign(urls: list[str]) -> list[str]:
    return [url for url in urls if re.match(r"\s*([a-z]+:)?//", url, re.IGNORECASE)]


def test_a_page_of_the_site_fetches_nothing_from_elsewhere(site: Path) -> None:
    for page in site.glob("*.html"):
        text = page.read_text()
        urls = fetched(text)
        assert any(url.endswith(".css") for url in urls), page
        assert foreign(urls) == [], page
        assert 'class="mermaid"' not in text, "the theme would fetch the program that draws it"
    for sheet in site.rglob("*.css"):
        styles = sheet.read_text()
        assert foreign(re.findall(r"""(?:url\(|@import)\s*["']?([^"')]+)""", styles)) == [], sheet


def test_every_page_is_in_the_index_that_works_from_disk(site: Path) -> None:
    index = (site / "search" / "search_index.js").read_text()
    entries = json.loads(index.removeprefix("var __index = "))["docs"]
    found = {entry["location"].partition("#")[0] for entry in entries}
    assert found == {f"{page.stem}.html" for page in pages() if page.parent.name == "docs"}
    assert "commands.html#submit" in {entry["location"] for entry in entries}
    titles = [entry["title"] for entry in entries]
    assert [title for title in titles if "<" in re.sub("</?code>", "", title)] == []
