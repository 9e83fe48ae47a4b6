#!/usr/bin/env bash
# Make the tables of docs/results.md about linking, paths and answers, from a store and the official
# test files (or any question sets that kbqa reads).
#
#   bash tools/score/all_tables.sh STORE WebQSP.test.json ComplexWebQuestions_test.json FOLDER
#   LLM=http://127.0.0.1:8000/v1 bash tools/score/all_tables.sh …    # also the runs with that model
#
# Run it from the root of the repository, in the environment that kbqa is installed in.
# Leaves FOLDER/tables.md. The rest of FOLDER is the paths that were written and the runs.
# After an interruption, run the same command again: nothing that is finished is done twice.
# SAMPLE (300) is the number of questions of each set for the runs that write without constraints.
set -euo pipefail
store=$1 folder=$4
declare -A official=([webqsp]=$2 [cwq]=$3)
sample=${SAMPLE:-300}
here=$(dirname "$0")
mkdir -p "$folder"

make_file() {  # FILE COMMAND…: keep what a command prints, unless the file is there already
  local file=$1
  shift
  [ -e "$file" ] && return
  echo "making $file" >&2
  "$@" >"$file.part"
  mv "$file.part" "$file"
}

write_paths() {  # QUESTIONS OUTPUT OPTION…: `kbqa crp generate` resumes by itself
  local questions=$1 output=$2
  shift 2
  [ -e "$output.done" ] && return
  kbqa crp generate --questions "$questions" --store "$store" --batch-size 32 --output "$output" "$@"
  touch "$output.done"
}

run_settings() {  # those without a general model, then those with it if there is one
  LLM='' bash "$here/run_settings.sh" "$@"
  [ -z "${LLM:-}" ] || bash "$here/run_settings.sh" "$@"
}

coverage() { kbqa doctor --store "$store" --questions "$1" || true; }  # 1 if it advises anything

for set in webqsp cwq; do
  questions=$folder/$set.jsonl
  make_file "$questions" python -m tools.fit.take_questions "${official[$set]}"
  make_file "$folder/$set.ids" python -m tools.fit.take_questions "$questions" --draw "$sample"
  make_file "$folder/$set.sample.jsonl" \
    python -m tools.fit.take_questions "$questions" "$folder/$set.ids"

  make_file "$folder/$set.coverage.txt" coverage "$questions"
  make_file "$folder/$set.linking.md" python -m tools.score.linking --store "$store" "$questions"
  make_file "$folder/$set.gold-crps.md" \
    python -m tools.convert.gold_crps --store "$store" --questions "$questions"

  for entities in gold linked; do
    given=()
    [ "$entities" = gold ] && given=(--gold-entities)
    write_paths "$questions" "$folder/$set.$entities.paths.jsonl" "${given[@]}"
    run_settings "$questions" "$store" "$folder/$set.$entities.paths.jsonl" \
      "$folder/$set.$entities" "${given[@]}"
  done

  questions=$folder/$set.sample.jsonl
  for level in none schema; do
    write_paths "$questions" "$folder/$set.$level.paths.jsonl" --decoding "$level"
  done
  for entities in gold linked; do
    given=()
    [ "$entities" = gold ] && given=(--gold-entities)
    run_settings "$questions" "$store" "$folder/$set.none.paths.jsonl" \
      "$folder/$set.sample.none.$entities" "${given[@]}"
    mkdir -p "$folder/$set.sample.schema.$entities"
    kbqa eval --questions "$questions" --store "$store" --resume "${given[@]}" \
      --beams "$folder/$set.schema.paths.jsonl" --set repair=off \
      --output "$folder/$set.sample.schema.$entities/specialised.jsonl"
  done
done

{
  for set in webqsp cwq; do
    printf '# %s\n\n## What the graph holds\n\n```text\n' "$set"
    cat "$folder/$set.coverage.txt"
    printf '```\n\n## Entity linking\n\n'
    cat "$folder/$set.linking.md"
    printf '\n## Paths from the gold queries\n\n'
    cat "$folder/$set.gold-crps.md"
    printf '\n## Answers\n\n'
    python -m tools.score.tabulate "$folder/$set".{gold,linked}/*.jsonl
    for level in none schema; do
      printf '\n## Answers on the sample, paths written with --decoding %s\n\n' "$level"
      python -m tools.score.tabulate "$folder/$set.sample.$level".*/*.jsonl
    done
    echo
  done
} >"$folder/tables.md"
echo "the tables are in $folder/tables.md"
