"""How fast the page is, in a real browser: from an upload to its spy plot, from an event to the screen.

    python -m benchmarks.service.page [--out benchmarks/results/cpu/page.json] [--chromium chromium] [--nnz 1000000] [--runs 5]

Starts Valkey, a generator without a policy and an evaluator (PTX interpreter). An upload is timed from the click on the form's
button until the density of the whole matrix is painted; an event from its arrival in the page until the frame after what it told
was painted, as the page itself measures it. The server's processor seconds stand beside the clock's, and the machine's load: on a
busy machine the clock counts the neighbours as well.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import httpx
import numpy as np
import scipy.io
import scipy.sparse

from benchmarks.origin import RESULTS, ROOT, machine, source_commit, write_result
from sparsesmith.runtime.embedded_valkey import EmbeddedValkey
from sparsesmith.runtime.ports import free_port
from sparsesmith.runtime.processes import start, stop

if TYPE_CHECKING:
    from playwright.sync_api import Page

EXAMPLE = ROOT / "examples" / "jagmesh7.mtx"
READY_S = 180.0
SEARCH_MS = 600_000


@dataclass(frozen=True)
class Upload:
    """From the click to the spy plot."""

    file: str
    file_bytes: int
    median_s: float
    worst_s: float
    server_processor_s: float
    """Median, of the generator alone."""


@dataclass(frozen=True)
class Events:
    """From an event's arrival to the screen."""

    count: int
    median_ms: float
    worst_ms: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=RESULTS / "cpu" / "page.json")
    parser.add_argument("--chromium", default="chromium")
    parser.add_argument("--nnz", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="sparsesmith-page-") as folder, _service(Path(folder)) as server:
        version, uploads, events = measure(server, options.chromium, matrices(Path(folder), options.nnz), options.runs)
    result = {
        "kind": "page",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": source_commit(),
        "command": f"python -m benchmarks.service.page --nnz {options.nnz} --runs {options.runs}",
        "machine": machine(),
        "browser": f"Chromium {version}",
        "load_average": {"before": load_before, "after": os.getloadavg()[0]},
        "nnz": options.nnz,
        "runs": options.runs,
        "uploads": [asdict(upload) for upload in uploads],
        "event_to_pixel": asdict(events),
    }
    write_result(options.out, result)


def matrices(folder: Path, nnz: int) -> list[Path]:
    """One square pattern of about ten nonzeros a row, as both kinds of file."""
    size = max(1, nnz // 10)
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, size, nnz), rng.integers(0, size, nnz)
    matrix = scipy.sparse.coo_matrix((np.ones(nnz, np.float32), (rows, cols)), shape=(size, size)).tocsr()
    npz, mtx = folder / "random.npz", folder / "random.mtx"
    scipy.sparse.save_npz(npz, matrix)
    scipy.io.mmwrite(mtx, matrix, field="pattern")
    return [npz, mtx]


def measure(server: "Server", chromium: str, files: list[Path], runs: int) -> tuple[str, list[Upload], Events]:
    """The browser's version, uploads, events."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        path = shutil.which(chromium) or chromium
        browser = driver.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        uploads = [_upload(page, server, file, runs) for file in files]
        events = _events(page, server.url)
        return browser.version, uploads, events


def _upload(page: "Page", server: "Server", file: Path, runs: int) -> Upload:
    seconds, processor = [], []
    for _ in range(runs):
        _fill(page, server.url, file, candidates=1)
        before, began = server.processor_s(), time.perf_counter()
        page.get_by_role("button", name="Tune", exact=True).click()
        page.wait_for_selector("canvas[data-painted]", timeout=SEARCH_MS)
        seconds.append(time.perf_counter() - began)
        processor.append(server.processor_s() - before)
        page.get_by_role("button", name="Cancel").click()
        page.wait_for_selector(".verdict[data-state=cancelled], .verdict[data-state=finished]", timeout=SEARCH_MS)
    upload = Upload(file.name, file.stat().st_size, median(seconds), max(seconds), median(processor))
    print(upload, flush=True)
    return upload


def _events(page: "Page", url: str) -> Events:
    _fill(page, url, EXAMPLE, candidates=64)
    page.get_by_role("button", name="Tune", exact=True).click()
    page.wait_for_selector("#repaid", timeout=SEARCH_MS)
    found = page.evaluate("performance.getEntriesByName('event to pixel').map((each) => each.duration)")
    events = Events(len(found), median(found), max(found))
    print(events, flush=True)
    return events


def _fill(page: "Page", url: str, file: Path, candidates: int) -> None:
    page.goto(url)
    page.set_input_files("#file", file)
    page.select_option("[name=search]", "families")
    page.fill("[name=budget_candidates]", str(candidates))


@dataclass(frozen=True)
class Server:
    """A generator that runs."""

    url: str
    pid: int

    def processor_s(self) -> float:
        """Of its process so far (Linux)."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _service(folder: Path) -> Iterator[Server]:
    """One that has an evaluator."""
    valkey = EmbeddedValkey(folder / "valkey")
    valkey.start()
    port = free_port()
    environment = {
        **os.environ,
        "SPARSESMITH_REDIS_URL": valkey.address,
        "SPARSESMITH_GENERATOR_PORT": str(port),
        "SPARSESMITH_GENERATOR_POLICY_DIR": "",
        "SPARSESMITH_GENERATOR_EXCHANGE_DIR": str(folder),
        "SPARSESMITH_EVALUATOR_DEVICE": "interpreter",
    }
    services = [
        start([sys.executable, "-m", f"services.{name}"], folder / f"{name}.log", environment)
        for name in ("generator", "evaluator")
    ]
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url)
        yield Server(url, services[0].pid)
    finally:
        for service in services:
            stop(service, 20)
        valkey.stop()


def _wait(url: str) -> None:
    """Until an evaluator has told of itself."""
    end = time.monotonic() + READY_S
    while True:
        try:
            if httpx.get(f"{url}/v1/fleet").json().get("evaluators"):
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > end:
            raise SystemExit("the services did not start")
        time.sleep(0.2)


if __name__ == "__main__":
    main()
