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

if [ -n "${LLM:-}" ]; then
  name=${LLM_NAME:-llm}
  from_beams=(--beams "$beams" --llm "$LLM")
  run "$name" "${from_beams[@]}"
  run "$name.confidence" "${from_beams[@]}" --set route=confidence
  for stop in blueprint judge; do
    run "$name.$stop" "${from_beams[@]}" --set "stop=$stop"
  done
  run "$name.alone" --llm "$LLM" --set write=no
else
  specialised=(--beams "$beams" --set repair=off)
  run specialised "${specialised[@]}"
  run specialised.full-first "${specialised[@]}" --method routerkgqa
  run specialised.beam-first "${specialised[@]}" --method routerkgqa --set order=beam-first
  for class in entity numeric string; do
    run "specialised.no-$class" "${specialised[@]}" --set "without=$class"
  done
  run specialised.no-constraint "${specialised[@]}" --set without=entity,numeric,string
  run embedder --beams "$beams" --set repair=embedder
  run embedder.confidence --beams "$beams" --set repair=embedder --set route=confidence
  run embedder.alone --set write=no
fi
