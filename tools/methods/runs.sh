#!/usr/bin/env bash
# Run the walking methods on a question set, each with every chooser, as in docs/methods.md.
#
#   bash tools/methods/runs.sh QUESTIONS STORE FOLDER [OPTION…]
#   PERFECT=http://127.0.0.1:8900/v1 bash tools/methods/runs.sh QUESTIONS STORE FOLDER [OPTION…]
#   LLM=http://127.0.0.1:8000/v1 bash tools/methods/runs.sh QUESTIONS STORE FOLDER [OPTION…]
#   BUDGETS="5 10 20 40" PATHS=beams.jsonl bash tools/methods/runs.sh …
#
# Options such as --gold-entities are passed to every `kbqa eval`. Without PERFECT and LLM, the
# choosers that need no server decide: the embedder and chance. PERFECT is a server started with
# tools.methods.perfect_chooser, LLM one of a general model; with it `io` and `cot` run, too.
# With BUDGETS, each method runs once for each number of calls, and so does kbqa, on PATHS that
# `kbqa crp generate` wrote. METHODS chooses the methods; `random` is the control of `bpc` in which
# chance walks and the chooser only answers. Each run is FOLDER/METHOD.CHOOSER.jsonl, or
# FOLDER/METHOD.CHOOSER.N.jsonl with a budget of N calls; finished runs are not repeated.
# `python -m tools.score.tabulate FOLDER/*.jsonl` puts them into a table.
set -euo pipefail
questions=$1 store=$2 folder=$3
shift 3
options=("$@")
mkdir -p "$folder"
read -ra methods <<<"${METHODS:-bpc knowpath trace tog pog}"

run() {  # METHOD CHOOSER OPTION…
  local name=$1.$2 method=$1
  shift 2
  [ "$method" != random ] || { method=bpc && set -- --set control=random "$@"; }
  for budget in ${BUDGETS:-none}; do
    local output=$folder/$name.jsonl limit=()
    [ "$budget" = none ] || { output=$folder/$name.$budget.jsonl limit=(--call-budget "$budget"); }
    [ -e "$output.done" ] && continue
    kbqa eval --questions "$questions" --store "$store" --output "$output" --resume \
      --method "$method" "${limit[@]}" "${options[@]}" "$@"
    touch "$output.done"
  done
}

run_all() {  # CHOOSER OPTION…
  local chooser=$1
  shift
  for method in "${methods[@]}"; do
    run "$method" "$chooser" "$@"
  done
  [ -z "${PATHS:-}" ] || run kbqa "$chooser" --beams "$PATHS" "$@"
}

if [ -n "${PERFECT:-}" ]; then
  run_all perfect --llm "$PERFECT" --no-llm-cache
elif [ -n "${LLM:-}" ]; then
  [ -n "${METHODS:-}" ] || methods+=(io cot)
  run_all llm --llm "$LLM"
else
  run_all embedder --chooser embedder
  run_all random --chooser random
fi
