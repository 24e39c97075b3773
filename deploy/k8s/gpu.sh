#!/usr/bin/env bash
# Evaluators for one kind of GPU, of a cluster that has several: a Deployment on the nodes that have it, and its number after the jobs that it may take.
#
#   for gpu in NVIDIA-H200 NVIDIA-L40S; do deploy/k8s/gpu.sh $gpu; done | kubectl apply -f -
#   kubectl -n sparsesmith delete scaledobject/evaluator deployment/evaluator     # those of any kind
#
# The name is that of NVIDIA's feature discovery: kubectl get nodes -L nvidia.com/gpu.product
set -euo pipefail
product=${1:?names the kind, as the label nvidia.com/gpu.product of its nodes does}
if ! [[ $product =~ ^[A-Za-z0-9]([A-Za-z0-9_-]{0,40}[A-Za-z0-9])?$ ]]; then
  echo "gpu.sh: '$product' is no value of nvidia.com/gpu.product" >&2
  exit 2
fi
short=$(tr 'A-Z_' 'a-z-' <<<"$product")
cd "$(dirname "${BASH_SOURCE[0]}")"

named() {
  sed -e "s/^\( *\)name: evaluator$/\1name: evaluator-$short/" -e "s/NVIDIA-H200/$product/"
}

echo ---
named <evaluator.yaml | sed -e "s/^\( *\)app: evaluator$/&\n\1gpu: $product/" \
  -e "s/^\( *\)automountServiceAccountToken: false$/&\n\1nodeSelector:\n\1  nvidia.com\/gpu.product: $product/" \
  -e "s/^\( *\)- name: evaluator-$short$/\1- name: evaluator/"
echo ---
sed -n '/^kind: ScaledObject$/,$p' scaling.yaml | named | sed '1i apiVersion: keda.sh/v1alpha1'
