#!/usr/bin/env bash
# Debian's caddy or nginx, installed where it is missing and we may; prints its path. Says why not and ends with 1 otherwise.
set -euo pipefail
name=$1
command -v "$name" && exit 0
[ "$(id -u)" = 0 ] || { echo "no $name is here, and only root may install one" >&2; exit 1; }
command -v apt-get >/dev/null || { echo "no $name is here, and no apt-get" >&2; exit 1; }
export DEBIAN_FRONTEND=noninteractive
package=$name
[ "$name" = nginx ] && package=nginx-light
# What it would start by itself is not wanted.
export RUNLEVEL=1
{ apt-get update -qq && apt-get install -y -qq --no-install-recommends "$package"; } >/dev/null 2>&1 ||
  { echo "no $name is here, and apt-get could not install it" >&2; exit 1; }
command -v "$name"
