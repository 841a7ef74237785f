#!/usr/bin/env bash
# Installs what the peers need: Debian's PyTorch, and Fashion-MNIST. Does nothing if /usr/bin/python3 has them.
set -euo pipefail

packages=(python3-torch python3-numpy dataset-fashion-mnist)
missing=()
for package in "${packages[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null || {
            echo "as root, run: apt-get update && apt-get install --no-install-recommends ${missing[*]}" >&2
            exit 1
        }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get -qq update || echo "apt-get update failed; going on with the lists that are there" >&2
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}"
fi
/usr/bin/python3 -c 'import numpy, torch; print("PyTorch", torch.__version__, "is there")'
