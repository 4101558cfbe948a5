"""Takes the pictures of README.md and docs/read-a-report.md from the report of `make demo`: `make picture`.

    python docs/make_picture.py [build/demo/report.html]

Needs Debian's chromium, playwright and Pillow. README's picture shows the verdict, the key figures and the maps.
"""

import io
import sys
from pathlib import Path

from PIL import Image

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests.report.html.browser import chromium

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
WIDTH = 1260  # Pixels: all key figures are in one row.
HIDE = "for (const part of document.querySelectorAll('header dl, .steps-bar, .grid:has(> .whole)')) part.hidden = true"
BOTTOM = "() => document.querySelector('{}').closest('.grid').getBoundingClientRect().bottom + scrollY"
PICTURES = (("report", "light", None, "svg.floorline"), ("readme-light", "light", HIDE, "svg.map"),
            ("readme-dark", "dark", HIDE, "svg.map"))  # fmt: skip


def main() -> None:
    report = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "build" / "demo" / "report.html").resolve()
    with chromium() as browser:
        for name, theme, change, last in PICTURES:
            page = browser.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme=theme)
            page.goto(report.as_uri())
            if change is not None:
                page.evaluate(change)
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": page.evaluate(BOTTOM.format(last)) + 12}
            shot = Image.open(io.BytesIO(page.screenshot(full_page=True, clip=clip))).convert("RGB")
            file = IMAGES / f"{name}.png"
            shot.quantize(256, Image.Quantize.MEDIANCUT, kmeans=4, dither=Image.Dither.NONE).save(file, optimize=True)
            print(f"{file.relative_to(ROOT)}  {shot.width} x {shot.height}, {file.stat().st_size // 1000} kB")


if __name__ == "__main__":
    main()
