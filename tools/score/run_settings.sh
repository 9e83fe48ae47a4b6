#!/usr/bin/env bash
# Run the settings of docs/evaluation.md on a question set, with paths already written.
#
#   bash tools/score/run_settings.sh QUESTIONS STORE BEAMS FOLDER [OPTION…]
#   LLM=http://127.0.0.1:8000/v1 bash tools/score/run_settings.sh QUESTIONS STORE BEAMS FOLDER [OPTION…]
#
# Paths that the graph constrained always exist and leave nothing to repair by reachability; for the
# paper's setting give paths written with --decoding none. Options such as --gold-entities are passed
# to every `kbqa eval`. Without LLM, the settings without a general model run; with it, the settings
# that ask the one there. Each run is FOLDER/SETTING.jsonl; finished runs are not repeated.
# `python -m tools.score.tabulate FOLDER/*.jsonl` puts them into a table.
set -euo pipefail
questions=$1 store=$2 beams=$3 folder=$4
shift 4
options=("$@")
mkdir -p "$folder"

run() {  # SETTING OPTION…
  local output=$folder/$1.jsonl
  shift
  kbqa eval --questions "$questions" --store "$store" --output "$output" --resume \
    "${options[@]}" "$@"
}

paper=(--beams "$beams" --method routerkgqa)
if [ -n "${LLM:-}" ]; then
  name=${LLM_NAME:-llm}
  run "$name" --beams "$beams" --llm "$LLM"
  run "$name.paper" "${paper[@]}" --llm "$LLM"
  for stop in blueprint judge; do
    run "$name.paper.$stop" "${paper[@]}" --llm "$LLM" --set "stop=$stop"
  done
  run "$name.paper.alone" --method routerkgqa --llm "$LLM" --set write=no --set stop=blueprint
else
  run specialised --beams "$beams"
  run paper "${paper[@]}"
  run paper.beam-first "${paper[@]}" --set order=beam-first
  for class in entity numeric string; do
    run "paper.no-$class" "${paper[@]}" --set "without=$class"
  done
  run paper.no-constraint "${paper[@]}" --set without=entity,numeric,string
  run paper.embedder "${paper[@]}" --set repair=embedder
  run embedder --beams "$beams" --set repair=embedder
  run embedder.alone --set write=no
fi
