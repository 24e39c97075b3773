"""`/`, `/compare`, `/fleet`: what they say before a script runs, or without one."""

from collections.abc import Mapping
from string import Template
from typing import get_args

from services.generator.http.page_shell import shell
from sparsesmith_proto.words import ElementType, SearchStrategy, ValuesOption

WORDS: Mapping[str, str] = {
    "auto": "families and policy (auto)",
    "families": "kernel families",
    "sample": "policy alone",
    "any": "any (the pattern counts)",
    "fixed": "fixed (this matrix's own)",
}
"""Of choices that do not say enough by themselves."""

_START = Template("""
<h1>Post a sparse matrix, get back a CUDA kernel tuned for it</h1>
<p class="lead">Compiled, checked on random inputs against a float64 reference, timed beside every routine of the
vendor's library. If nothing better is found, you are told so.</p>
<form id="tune" action="./jobs" method="post" enctype="multipart/form-data" class="card">
<label class="drop" for="file"><span>A matrix file: .mtx, .mtx.gz or SciPy .npz</span>
<input id="file" name="file" type="file" accept=".mtx,.gz,.npz" required></label>
<div class="fields">
<label>Operation <select name="operation"><option value="spmv">y = A x (spmv)</option>
<option value="spmm">C = A B (spmm)</option></select></label>
<label>Columns of B <input name="num_dense_cols" type="number" min="1" max="1024" value="1"></label>
<label>Element type <select name="element_type">$types</select></label>
<label>Search <select name="search">$searches</select></label>
<label>Candidates <input name="budget_candidates" type="number" min="1" max="4096" value="64"></label>
<label>Seconds <input name="budget_seconds" type="number" min="1" max="3600" value="120"></label>
<label>Values <select name="values">$values</select></label>
<label>GPU <select name="gpu"><option value="">any</option></select></label>
</div>
<p><button class="primary">Tune</button></p>
</form>
<noscript><p>Without JavaScript this form works and leads to a plain report; spy plot, charts and live progress need it.
All that the page shows is at <a href="./docs">the HTTP interface</a> as JSON.</p></noscript>
<div id="more"></div>
""")

_FLEET = """
<h1>Fleet</h1>
<p>Who works and what waits. Without JavaScript: <a href="./v1/fleet">the same as JSON</a>,
<a href="./v1/policy">the policy's versions</a>, <a href="./metrics">metrics for Prometheus</a>.</p>
"""

_COMPARE = """
<h1>Compare two jobs</h1>
<form class="card fields" method="get" action="./compare">
<label>Job A <input name="a" required maxlength="128"></label>
<label>Job B <input name="b" required maxlength="128"></label>
<button class="primary">Compare</button>
</form>
<noscript><p>Comparing needs JavaScript; each job's page is readable without it.</p></noscript>
<div id="more"></div>
"""


def start_page() -> str:
    """Upload, examples, earlier jobs."""
    form = _START.substitute(
        types=_options(get_args(ElementType)),
        searches=_options(get_args(SearchStrategy)),
        values=_options(get_args(ValuesOption)),
    )
    return shell("", "sparsesmith: a CUDA kernel for your sparse matrix", form)


def fleet_page() -> str:
    """For those who operate the service."""
    return shell("fleet", "Fleet - sparsesmith", _FLEET)


def compare_page() -> str:
    """Two jobs side by side."""
    return shell("compare", "Compare two jobs - sparsesmith", _COMPARE)


def _options(values: tuple[str, ...]) -> str:
    return "".join(f'<option value="{value}">{WORDS.get(value, value)}</option>' for value in values)
