// How to take the answer home: Python, C++, curl.

import { address, apiKey, SECRET } from "./api.js";
import { copyButton, h } from "./dom.js";

/** Of files and namespaces; `workload_name` of sparsesmith.artifacts. @param {import("./types.js").Workload} workload */
export function workloadName(workload) {
  const columns = workload.operation === "spmv" ? "" : `_${workload.num_dense_cols}`;
  const values = workload.values === null ? "" : `_values_${workload.values.slice(0, 12)}`;
  return `${workload.pattern.slice(0, 12)}_${workload.operation}_${workload.element_type}${columns}${values}`;
}

/** @param {string} jobId @param {import("./types.js").Report} report @returns {Record<string, string>} */
export function snippetsOf(jobId, report) {
  const name = workloadName(report.workload);
  const opens = apiKey() ? `-H "Authorization: Bearer $SPARSESMITH_KEY" ` : SECRET ? `-H "X-Job-Secret: ${SECRET}" ` : "";
  const file = (/** @type {string} */ kind) => `curl -fsS ${opens}-OJ "${address(`v1/kernels/${jobId}/artifact`)}?kind=${kind}"`;
  const part = report.workload.values === null ? "pattern" : "pattern and values";
  const element = report.workload.element_type === "float64" ? "double" : "float";
  const snippets = /** @type {Record<string, string>} */ ({
    Python: `# ${file("py")}
# pip install sparsesmith cupy-cuda13x
from kernel_${name} import load

kernel = load(A)  # SciPy, CuPy or torch sparse matrix with this ${part}
y = kernel(x)     # CuPy, torch or NumPy array
`,
    "C++": `// ${file("hpp")}
#include "kernel_${name}.hpp"

// host CSR: columns ascending in each row; std::vector<${element}> values
sparsesmith_${name}::Kernel kernel(num_rows, num_cols, row_offsets, col_indices, values);
kernel(x, y, stream);  // device pointers
`,
    curl: `${file("zip")}   # program, C++ header, Python loader, report, what was tried
curl -fsS ${opens}"${address(`v1/kernels/${jobId}`)}"   # the answer as JSON
`,
  });
  if (report.answer.kind === "library") delete snippets["C++"];
  return snippets;
}

/** @param {string} jobId @param {import("./types.js").Report} report */
export function snippetCards(jobId, report) {
  return h("div", { class: "snippets" }, Object.entries(snippetsOf(jobId, report)).map(([name, text]) =>
    h("div", {}, h("div", { class: "row spread" }, h("h3", {}, name), copyButton(() => text, `Copy ${name}`)),
      h("pre", { tabindex: 0, role: "region", "aria-label": name }, text))));
}
