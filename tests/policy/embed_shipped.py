"""Run in a process of its own: prompts as the shipped policy's embeddings, as of now or with more ids than it knows.

python -m tests.policy.embed_shipped            what was there when it was trained
python -m tests.policy.embed_shipped more       beside an operation of another package (on the path), an element type
                                                and an architecture that came later

Prints one JSON object: prompt -> sum and first numbers of its embeddings.
"""

import json
import sys
from pathlib import Path

from sparsesmith.matrix.pattern import pattern_from_indices
from sparsesmith.policy.embedding import load_embedder
from sparsesmith.prompts import header
from sparsesmith.prompts.arrays import prompt_inputs
from sparsesmith_proto.kernel import Prompt, Workload

SHIPPED = Path(__file__).parents[2] / "models" / "sparsesmith-28m"
KNOWN = (("spmv", "float32", 1, "sm_90"), ("spmm", "float64", 32, "sm_120"), ("spmv", "float64", 1, "sm_70"))
LATER = (("absolute_product", "float32", 1, "sm_90"), ("spmv", "float16", 1, "sm_90"), ("spmv", "float32", 1, "sm_130"))


def main() -> None:
    is_later = "more" in sys.argv
    if is_later:  # As its line would read after an edit.
        header.ARCHITECTURES = (*header.ARCHITECTURES, "sm_130")
    embedder = load_embedder(SHIPPED)
    pattern = pattern_from_indices(50, 40, range(40), range(40))
    told = {}
    for operation, element_type, columns, architecture in (*KNOWN, *(LATER if is_later else ())):
        workload = Workload.model_validate(
            {"pattern": pattern.digest, "operation": operation, "element_type": element_type, "num_dense_cols": columns}
        )
        prompt = Prompt(encoder="profiled", sample_seed=3, architecture=architecture)
        (embedded,) = embedder.embed([prompt_inputs(pattern, workload, prompt)])
        told[f"{operation} {element_type} {architecture}"] = [
            float(embedded.sum()),
            *embedded[:4, :3].flatten().tolist(),
        ]
    print(json.dumps(told))


if __name__ == "__main__":
    main()
