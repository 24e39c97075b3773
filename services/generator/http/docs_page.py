"""`/docs`: the interface for people, a page made of the OpenAPI document. No script, nothing from another host."""

import json
from collections.abc import Iterator
from html import escape
from typing import Any

Document = dict[str, Any]

HEADERS = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'", "X-Frame-Options": "DENY"}
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1a1a1a; }
code, pre { font: 0.875rem/1.45 ui-monospace, monospace; }
pre { background: #f5f5f2; padding: 0.75rem; overflow: auto; border-radius: 4px; }
section { border-top: 1px solid #ddd; margin-top: 1.5rem; padding-top: 0.5rem; }
h2 code { font-size: 1.1rem; } .method { display: inline-block; min-width: 4.5rem; font-weight: 700; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; }
details { margin: 0.4rem 0; } summary { cursor: pointer; }
@media (prefers-color-scheme: dark) {
  body { background: #161616; color: #e6e6e6; } pre { background: #222; }
  section { border-color: #333; } a { color: #8ab4f8; }
}
"""


def docs_page(document: Document) -> str:
    """The whole page."""
    info = document["info"]
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(info['title'])}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>",
            f"<p>{escape(info['description'])}</p>",
            '<p>As a document for programs: <a href="openapi.json">openapi.json</a>.</p>',
            "<ul>",
            *(f'<li><a href="#{_anchor(method, path)}"><code>{method.upper()} {escape(path)}</code></a></li>'
              for method, path, _ in _operations(document)),
            "</ul>",
            *(_operation(document, method, path, operation) for method, path, operation in _operations(document)),
            *_schemas(document),
            "</body></html>",
        ]
    )  # fmt: skip


def _operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield method, path, operation


def _anchor(method: str, path: str) -> str:
    return escape(f"{method}{path}".replace("/", "-").replace("{", "").replace("}", ""))


def _operation(document: Document, method: str, path: str, operation: Document) -> str:
    parts = [
        f'<section id="{_anchor(method, path)}"><h2><code><span class="method">{method.upper()}</span> '
        f"{escape(path)}</code></h2><p>{escape(operation.get('description', ''))}</p>",
        _table(
            "parameter",
            [
                (f"{parameter['name']} ({parameter['in']})", _content(parameter["schema"]))
                for parameter in operation.get("parameters", ())
            ],
        ),
        _table(
            "body",
            [
                (media_type, _content(content["schema"]))
                for media_type, content in operation.get("requestBody", {}).get("content", {}).items()
            ],
        ),
        _table(
            "answer",
            [
                (status, escape(response["description"]) + "<br>" + _media(response))
                for status, response in operation["responses"].items()
            ],
        ),
    ]
    return "".join(parts) + "</section>"


def _media(response: Document) -> str:
    kinds = response.get("content", {})
    return "<br>".join(
        f"<code>{escape(kind)}</code> {_content(content.get('schema', {}))}" for kind, content in kinds.items()
    )


def _content(schema: Document) -> str:
    """A link to what is named, the schema itself where it says more than its type."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#schema-{escape(name)}">{escape(name)}</a>'
    if schema.keys() <= {"type", "title", "format"}:
        return escape(str(schema.get("type", "")))
    return f"<details><summary>schema</summary><pre>{_json(schema)}</pre></details>"


def _table(title: str, rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    body = "".join(f"<tr><td><code>{escape(name)}</code></td><td>{content}</td></tr>" for name, content in rows)
    return f"<table><tr><th>{title}</th><th></th></tr>{body}</table>"


def _schemas(document: Document) -> Iterator[str]:
    yield "<section><h2>Messages</h2>"
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield (
            f'<details id="schema-{escape(name)}"><summary><code>{escape(name)}</code> '
            f"{escape(schema.get('description', ''))}</summary><pre>{_json(schema)}</pre></details>"
        )
    yield "</section>"


def _json(schema: Document) -> str:
    return escape(json.dumps(schema, indent=2, ensure_ascii=False))
