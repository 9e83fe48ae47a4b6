#!/usr/bin/env bash
# Run the settings of docs/evaluation.md on a question set, with paths written before.
#
#   bash tools/run_settings.sh QUESTIONS STORE BEAMS FOLDER [OPTION…]
#   LLM=http://127.0.0.1:8000/v1 bash tools/run_settings.sh QUESTIONS STORE BEAMS FOLDER [OPTION…]
#
# BEAMS that the graph constrained leave nothing to repair where only what does not exist is
# repaired; for the paper's setting give paths written with --decoding none. Options, such as
# --gold-entities, are handed on to every `kbqa eval`. Without LLM the settings run that need no
# general model, with it those that ask the one there. Each leaves FOLDER/SETTING.jsonl; what is
# done is not done again. `tools/tabulate_runs.py FOLDER/*.jsonl` puts them into a table.
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
  run "$name.confidence" "${from_beams[@]}" --route confidence
  for stop in blueprint judge; do
    run "$name.$stop" "${from_beams[@]}" --stop "$stop"
  done
  run "$name.alone" --llm "$LLM" --method general
else
  specialised=(--beams "$beams" --method specialised)
  run specialised "${specialised[@]}"
  run specialised.full-first "${specialised[@]}" --order full-first
  run specialised.beam-first "${specialised[@]}" --order beam-first
  for class in entity numeric string; do
    run "specialised.no-$class" "${specialised[@]}" --without "$class"
  done
  run specialised.no-constraint "${specialised[@]}" --without entity --without numeric \
    --without string
  run embedder --beams "$beams" --repair embedder
  run embedder.confidence --beams "$beams" --repair embedder --route confidence
  run embedder.alone --repair embedder --method general
fi
