#!/usr/bin/env bash
# Makes Redis's password and stores what goes with it, once: an existing secret is left as it is.
set -euo pipefail
if kubectl --namespace sparsesmith get secret redis > /dev/null 2>&1; then
  echo "the secret redis is there already" >&2
  exit 0
fi
password=${REDIS_PASSWORD:-$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')}
kubectl --namespace sparsesmith create secret generic redis \
  --from-literal=password="$password" \
  --from-literal=redis.conf="requirepass $password" \
  --from-literal=SPARSESMITH_REDIS_URL="redis://:$password@redis:6379/0"
