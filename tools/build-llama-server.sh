#!/bin/sh
# Build llama-server and llama-batched-bench into .cache/llama-server/bin, from the source that the llama-cpp-python
# sdist carries; about 7 minutes on two cores, once. Prints the server's path at the end.
# Needs python3 with pip, cmake, ninja and a C++ compiler; one download, the sdist, by pip.
set -eu
cd "$(dirname "$0")/.."

version=0.3.36
# Without the last three the build would fetch a web interface and look for OpenSSL.
flags="-DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DLLAMA_BUILD_SERVER=ON \
-DLLAMA_BUILD_TOOLS=ON -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_UI=OFF \
-DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF"
target=$PWD/.cache/llama-server
stamp=$target/.built
wanted="llama-cpp-python $version $flags"

if [ -x "$target/bin/llama-server" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    echo "$target/bin/llama-server"
    exit 0
fi

python=.venv/bin/python
[ -x "$python" ] || python=python3
again() { "$@" || { echo "retrying: $1" >&2; sleep 3; "$@"; }; }
for tool in cmake ninja; do
    command -v "$tool" >/dev/null || { echo "$tool is needed: pip install $tool, or your system's package" >&2; exit 1; }
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
again "$python" -m pip --disable-pip-version-check download -q --no-deps --no-binary llama-cpp-python -d "$work" \
    "llama-cpp-python==$version" >&2
tar -xzf "$work"/llama_cpp_python-$version.tar.gz -C "$work"
source=$work/llama_cpp_python-$version/vendor/llama.cpp

# shellcheck disable=SC2086 # the flags are words
cmake -S "$source" -B "$work/build" -G Ninja $flags >&2
cmake --build "$work/build" --target llama-server llama-batched-bench >&2

mkdir -p "$target/bin"
cp "$work/build/bin/llama-server" "$work/build/bin/llama-batched-bench" "$target/bin/"
echo "$wanted" > "$stamp"
echo "$target/bin/llama-server"
