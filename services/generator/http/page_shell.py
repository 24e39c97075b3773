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
}
OF_PAGES: Mapping[str, str] = {**HEADERS, "Cache-Control": "no-cache"}
OF_FILES: Mapping[str, str] = {**HEADERS, "Cache-Control": "public, max-age=31536000, immutable"}
"""Their address holds the version of them all: what changes has another."""

VIEWS = (("", "Tune"), ("fleet", "Fleet"), ("compare", "Compare"), ("docs", "API"))
"""Of the head line: address from the root, and words."""


MODULES = sorted(
    path.relative_to(FOLDER).as_posix()
    for path in FOLDER.rglob("*.js")
    if path.name not in ("theme.js", "types.js", "uplot.js")
)
"""Asked for at once, not one after the other as each names the next."""


@dataclass(frozen=True)
class StaticFile:
    """A file of the page."""

    content: bytes
    media_type: str


def static_files() -> dict[str, StaticFile]:
    """By path within the folder."""
    return {
        path.relative_to(FOLDER).as_posix(): StaticFile(path.read_bytes(), MEDIA_TYPES[path.suffix])
        for path in sorted(FOLDER.rglob("*"))
        if path.is_file()
    }


def version_of(files: Mapping[str, StaticFile]) -> str:
    """Differs where any name or content does."""
    sha = hashlib.sha256()
    for name, file in files.items():
        sha.update(f"{name} {len(file.content)}\n".encode() + file.content)
    return sha.hexdigest()[:16]


FILES = static_files()
VERSION = version_of(FILES)


def shell(view: str, title: str, body: str, root: str = "./", refresh_s: int | None = None) -> str:
    """A whole document. `body`: HTML that says all there is to say without scripts; `root`: the way from its address to
    the root; `refresh_s`: without scripts it is loaded anew this often."""
    links = "".join(
        f'<a href="{root}{path}"{" aria-current=page" if path == view else ""}>{words}</a>' for path, words in VIEWS
    )
    files = f"{root}page/{VERSION}"
    modules = "".join(f'<link rel="modulepreload" href="{files}/{path}">' for path in MODULES)
    refresh = "" if refresh_s is None else f'<noscript><meta http-equiv="refresh" content="{refresh_s}"></noscript>'
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(title)}</title>{refresh}
<link rel="icon" href="{files}/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="{files}/vendor/uplot.css">
<link rel="stylesheet" href="{files}/style.css">
{modules}
<script src="{files}/theme.js"></script>
<script src="{files}/vendor/uplot.js" defer></script>
<script src="{files}/main.js" type="module"></script>
</head>
<body data-view="{view or "start"}">
<a class="skip" href="#content">To the content</a>
<header class="top"><a class="brand" href="{root}"><img src="{files}/icon.svg" alt="" width="24" height="24">
sparsesmith</a><nav aria-label="Pages">{links}</nav><div id="tools"></div></header>
<main id="content" tabindex="-1">{body}</main>
</body>
</html>
"""
