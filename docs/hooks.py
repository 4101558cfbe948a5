"""Hooks of mkdocs: tutorials become pages with their results, the change log a page, and sample reports are added.

A result in HTML goes into a shadow root, so that neither its style nor the site's changes the other.
"""

import base64
import re
from concurrent.futures import ThreadPoolExecutor
from html import escape
from pathlib import Path

import nbformat
from make_gallery import PAGES, GalleryError, build_gallery, has_pilotnet
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from run_tutorials import TutorialError, all_executed

CHANGELOG = Path(__file__).resolve().parents[1] / "CHANGELOG.md"
TUTORIAL = re.compile(r"(\]\((?:[\w./-]*/)?)([\w-]+)\.py\)")  # how GitHub finds one; here it is a page
MARK = "<!-- result {} -->"  # stands for a result in HTML until Markdown has been read
SAMPLE = re.compile(r"<!-- sample (\w+) -->")  # where a sample report is shown
NO_PILOTNET = """!!! note "PilotNet is missing here"
    This site was built without lava-dl's files (`NWCOMPILE_REFERENCE`). The report below is that of the demo network of
    42 neurons on Loihi 2."""
STYLE = (Path(__file__).parent / "assets" / "result.css").read_text()

results: dict[str, str] = {}  # HTML by its mark


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Pages that are no files of docs/."""
    try:
        with ThreadPoolExecutor(1) as pool:
            samples = pool.submit(build_gallery)
            notebooks = all_executed()
            gallery = samples.result()
    except (TutorialError, GalleryError) as e:
        raise PluginError(str(e)) from None
    for page in sorted(gallery.rglob("*.html")):
        files.append(File.generated(config, f"gallery/{page.relative_to(gallery)}", content=page.read_text()))
    for name, notebook in notebooks.items():
        files.append(File.generated(config, f"tutorials/{name}.md", content=_page(name, notebook)))
        files.append(File.generated(config, f"tutorials/{name}.ipynb", content=_without_results(notebook)))
    changes = CHANGELOG.read_text().replace("](docs/", "](")
    files.append(File.generated(config, "changelog.md", content=changes))
    return files


def on_page_markdown(markdown: str, **_) -> str:
    """Links to the source of a tutorial, which GitHub shows, lead to its page; samples of the gallery are shown."""
    return SAMPLE.sub(lambda mark: _sample(mark[1]), TUTORIAL.sub(r"\1\2.md)", markdown))


def on_page_content(html: str, **_) -> str:
    """Results in HTML, put where their marks are."""
    return re.sub(r"<!-- result [\w-]+ -->", lambda mark: results[mark[0]], html)


def _sample(name: str) -> str:
    """A small view of a sample report, which opens it."""
    address = f"gallery/{name}/{PAGES[name]}"
    view = f'<iframe src="{address}" title="{name}" loading="lazy" tabindex="-1"></iframe>'
    shown = f'<div class="sample">{view}<a href="{address}" target="_blank"><span>Open the report</span></a></div>'
    return f"{NO_PILOTNET}\n\n{shown}" if name == "loihi2" and not has_pilotnet() else shown


def _page(name: str, notebook: nbformat.NotebookNode) -> str:
    """A notebook as Markdown; the first cell is its title and says what it is about."""
    parts = []
    for i, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
        elif cell.cell_type == "code":
            parts.append(f"```python\n{cell.source}\n```")
            parts += [_shown(cell, output, f"{name}-{i}-{k}") for k, output in enumerate(cell.outputs)]
    return "\n\n".join([*parts, f"[This page as a notebook]({name}.ipynb)"])


def _shown(cell: nbformat.NotebookNode, output: nbformat.NotebookNode, where: str) -> str:
    """A result of a cell in the richest form that it has."""
    if output.output_type == "stream":
        return _text(output.text)
    if "image/svg+xml" in output.data:
        if "alt" not in cell.metadata:
            raise PluginError(f'tutorial {where}: a picture needs words for those who cannot see it: `# %% alt="..."`')
        picture = base64.b64encode(output.data["image/svg+xml"].encode()).decode()
        alt = escape(cell.metadata["alt"])
        return _marked(where, f'<div class="output"><img alt="{alt}" src="data:image/svg+xml;base64,{picture}"></div>')
    if "text/html" in output.data:
        html = f"<style>{STYLE}</style>{output.data['text/html']}"
        return _marked(where, f'<div class="output"><template shadowrootmode="open">{html}</template></div>')
    return _text(output.data["text/plain"])


def _text(text: str) -> str:
    return f"``` {{.text .result}}\n{text.rstrip()}\n```"


def _marked(where: str, html: str) -> str:
    mark = MARK.format(where)
    results[mark] = html
    return mark


def _without_results(notebook: nbformat.NotebookNode) -> str:
    """The notebook that a reader takes along and runs."""
    bare = nbformat.from_dict(notebook)
    for cell in bare.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    return nbformat.writes(bare)
