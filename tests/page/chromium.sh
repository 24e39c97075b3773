#!/usr/bin/env bash
# Debian's Chromium, installed where it is missing and we may; prints its path. Says why not and ends with 1 otherwise.
set -euo pipefail
for name in chromium chromium-browser google-chrome; do
  command -v "$name" && exit 0
done
[ "$(id -u)" = 0 ] || { echo "no Chromium is here, and only root may install one" >&2; exit 1; }
command -v apt-get >/dev/null || { echo "no Chromium is here, and no apt-get" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
for pause in 5 20 0; do # A mirror may be away for a moment.
  { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-dejavu-core; } >/dev/null 2>&1 &&
    { command -v chromium; exit 0; }
  sleep "$pause"
done
echo "no Chromium is here, and apt-get could not install it" >&2
exit 1
