"""The docs site from `make docs`: tutorials run without warnings, and pages load nothing from other hosts."""

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import nwcompile as nw
from tests.report.html.browser import chromium

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
TUTORIALS = sorted((DOCS / "tutorials").glob("*.py"))
LOADED = {
    "script": "src",
    "link": "href",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "audio": "src",
    "video": "src",
}
FETCHED = re.compile(r"""@import|url\(\s*['"]?(?:https?:)?//""")
ELSEWHERE = re.compile(r"(?:https?:)?//")
PHONE, DESK = 400, 1400  # pixels

pytestmark = pytest.mark.long


def module_of(name: str):
    """Import a script of docs/."""
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(*arguments: str) -> subprocess.CompletedProcess:
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580
    )


class Loads(HTMLParser):
    """Requests of a page to other hosts."""

    def __init__(self, page: Path):
        super().__init__()
        self.elsewhere = []
        self.feed(page.read_text())

    def handle_starttag(self, tag, attributes):
        address = dict(attributes).get(LOADED.get(tag))
        if address is not None and ELSEWHERE.match(address):
            self.elsewhere.append(address)


@pytest.mark.parametrize("tutorial", [source.stem for source in TUTORIALS])
def test_tutorial_runs_without_a_warning(tutorial):
    done = run("docs/run_tutorials.py", tutorial)
    assert done.returncode == 0, done.stderr


def test_tutorials_unknown_names_are_refused():
    done = run("docs/run_tutorials.py", "first_minutes")
    assert (done.returncode, done.stderr.split(";")[0]) == (1, "no tutorial first_minutes")


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("1 / 0", "ZeroDivisionError: division by zero\nin the cell\n1 / 0"),
        ("import warnings\nwarnings.warn('old')", "tutorials/bad.py warns:"),
    ],
)
def test_tutorial_that_fails_or_warns_is_an_error_that_shows_the_cell(tmp_path, cell, text):
    (tmp_path / "bad.py").write_text(f"# %%\n{cell}\n")
    code = (
        "import sys; sys.path.insert(0, 'docs')\n"
        "import run_tutorials as r; from pathlib import Path\n"
        "r.KEPT = Path(sys.argv[1]) / 'kept'\n"
        "try: r.executed(Path(sys.argv[1]) / 'bad.py')\n"
        "except r.TutorialError as e: print(e)"
    )
    done = run("-c", code, str(tmp_path))
    assert text in done.stdout, done.stderr
    assert list((tmp_path / "kept").glob("*.ipynb")) == []


@pytest.mark.parametrize(
    ("docstring", "markdown"),
    [
        ("Stars 2*a*b and `a*b`, |x| < 1.", r"Stars 2\*a\*b and `a*b`, |x| &lt; 1."),
        ("It is one.\n`x`: the input.\nRaises ModelError.", "It is one.\n\n`x`: the input.\n\nRaises ModelError."),
        ("In a step:\n  v = beta*v\nand so on", "In a step:\n\n```text\nv = beta*v\n```\n\nand so on"),
        ("Two:\n- a*b,\n  on it goes\n- c\n\nEnd", "Two:\n\n- a\\*b,\n  on it goes\n- c\n\nEnd"),
    ],
)
def test_docstrings_become_markdown(docstring, markdown):
    assert module_of("docstrings").markdown(docstring) == markdown


def test_site_builds_without_a_warning_and_is_whole_offline(tmp_path):
    site = tmp_path / "site"
    done = run("-m", "mkdocs", "build", "--strict", "--site-dir", str(site))
    assert done.returncode == 0, done.stdout + done.stderr
    pages = sorted(site.rglob("*.html"))
    assert {page: Loads(page).elsewhere for page in pages if Loads(page).elsewhere} == {}
    assert [style for style in site.rglob("*.css") if FETCHED.search(style.read_text())] == []
    for tutorial in TUTORIALS:
        page = (site / "tutorials" / f"{tutorial.stem}.html").read_text()
        assert 'class="text result' in page or "shadowrootmode" in page
        assert "<!-- result" not in page
        assert (site / "tutorials" / f"{tutorial.stem}.ipynb").exists()
    gallery = module_of("make_gallery")
    opened = re.findall(r'<a href="(gallery/.*?)"', (site / "gallery.html").read_text())
    assert opened == [f"gallery/{name}/{page}" for name, page in gallery.PAGES.items()]
    assert all("<main" in (site / address).read_text() for address in opened)
    assert ("PilotNet is missing" in (site / "gallery.html").read_text()) != gallery.has_pilotnet()
    sweep = (site / "gallery" / "sweep" / "sweep.html").read_text()
    points = set(re.findall(r"points/\w+/report.html", sweep))
    assert len(points) > 3 and all((site / "gallery" / "sweep" / point).exists() for point in points)
    reference = "".join(page.read_text() for page in (site / "api").glob("*.html"))
    names = [f"nwcompile.{name}" for name in set(nw.__all__) - {"errors", "nn", "report", "__version__"}]
    names += [f"nwcompile.nn.{name}" for name in nw.nn.__all__]
    assert [name for name in sorted(names) if f'id="{name}"' not in reference] == []

    with chromium() as browser:
        for width in (PHONE, DESK):
            for name in ("index", "gallery", "mapping", "tutorials/first_minute", "api/network"):
                page = browser.new_page(viewport={"width": width, "height": 900})
                requests = []
                page.on("request", lambda request, seen=requests: seen.append(request.url))
                page.goto((site / f"{name}.html").as_uri())
                assert page.evaluate("document.documentElement.scrollWidth") <= width, (name, width)
                assert [url for url in requests if url.startswith("http")] == []
        page.locator("input[name=query]").press_sequentially("floorline")  # The theme reacts to keys, not to `fill`.
        page.wait_for_selector(".md-search-result__link")
        assert "matching documents" in page.inner_text(".md-search-result__meta")
