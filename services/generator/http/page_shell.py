"""What every view of the page shares: the frame, its headers, the files that it loads. Nothing from another host."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
"""All that the page loads, as it lies here: nothing is built."""

MEDIA_TYPES: Mapping[str, str] = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
    ".gz": "application/gzip",
    ".LICENSE": "text/plain; charset=utf-8",
}

HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-cache",
}

VIEWS = (("", "Tune"), ("fleet", "Fleet"), ("compare", "Compare"), ("docs", "API"))
"""Of the head line: address from the root, and words."""


@dataclass(frozen=True)
class StaticFile:
    """A file of the page."""

    content: bytes
    media_type: str
    tag: str
    """Changes with the content (an ETag)."""


def static_files() -> dict[str, StaticFile]:
    """By path within the folder."""
    return {
        path.relative_to(FOLDER).as_posix(): _static_file(path) for path in sorted(FOLDER.rglob("*")) if path.is_file()
    }


def shell(view: str, title: str, body: str, root: str = "./", refresh_s: int | None = None) -> str:
    """A whole document. `body`: HTML that says all there is to say without scripts; `root`: the way from its address to
    the root; `refresh_s`: without scripts it is loaded anew this often."""
    links = "".join(
        f'<a href="{root}{path}"{" aria-current=page" if path == view else ""}>{words}</a>' for path, words in VIEWS
    )
    refresh = "" if refresh_s is None else f'<noscript><meta http-equiv="refresh" content="{refresh_s}"></noscript>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>{refresh}
<link rel="icon" href="{root}page/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{root}page/vendor/uplot.css">
<link rel="stylesheet" href="{root}page/style.css">
<script src="{root}page/theme.js"></script>
<script src="{root}page/vendor/uplot.js" defer></script>
<script src="{root}page/main.js" type="module"></script>
</head>
<body data-view="{view or "start"}">
<a class="skip" href="#content">To the content</a>
<header class="top"><a class="brand" href="{root}"><img src="{root}page/icon.svg" alt="" width="24" height="24">
sparsesmith</a><nav aria-label="Pages">{links}</nav><div id="tools"></div></header>
<main id="content" tabindex="-1">{body}</main>
</body>
</html>
"""


def _static_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    return StaticFile(content, MEDIA_TYPES[path.suffix], f'"{hashlib.sha256(content).hexdigest()[:32]}"')
