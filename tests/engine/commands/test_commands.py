import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kbqa.engine.cli import main
from kbqa.engine.files import claimed
from kbqa.engine.writing.generate import ModelChoice
from kbqa.sparql.errors import GraphError, ModelError, SpendingLimitReached

MONEY = [("Main Path:\n Jamaica -[location , country , currency used]-> ?x", -0.5)]
SEAT = [("Main Path:\n Jamaica -[location , country , capital]-> ?x", -0.5)]
NONSENSE = [("nonsense", -9.0)]
QUESTION = "what jamaican money called?"
UNKNOWN = "what money does Atlantis use?"


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, scripted):
    """Put a scripted model in the place of the one that the options choose."""

    def model(*replies):
        generator = scripted(*replies)
        monkeypatch.setattr(ModelChoice, "load", lambda *_: generator)
        return generator

    return model


@pytest.fixture
def no_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail where a model is loaded."""

    def load(*_: object) -> None:
        raise AssertionError("the model was loaded")

    monkeypatch.setattr(ModelChoice, "load", load)


def _run(*arguments: str | Path, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(main, [str(argument) for argument in arguments], input=stdin)


def _ends_in_one_line(result: Result, code: int, message: str) -> bool:
    *_, last = result.stderr.splitlines()
    return (
        result.exit_code == code
        and result.stdout == ""
        and last.startswith("Error: ")
        and message in last
        and "Traceback" not in result.stderr
    )


def _workers() -> set[str]:
    """List the query processes that this process has started and not ended."""
    children = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {
        child
        for file in children
        for child in file.read_text().split()
        if b"kb/worker_process.py" in Path(f"/proc/{child}/cmdline").read_bytes()
    }


@pytest.mark.parametrize("where", ["store", "endpoint"])
def test_ask_prints_the_answer_and_its_proof(
    where: str, small_store: Path, small_endpoint: str, model
) -> None:
    model(MONEY)
    graph = small_store if where == "store" else small_endpoint
    result = _run("ask", QUESTION, f"--{where}", graph)
    assert (result.exit_code, result.stderr) == (0, "")
    assert re.match(r"Jamaican dollar  \(m\.04xc2m\)\nConfidence: (0\.\d\d|1\.00)\n", result.stdout)
    assert "Jamaica  location.country.currency_used  Jamaican dollar\n" in result.stdout
    assert "relaxation: full." in result.stdout


def test_ask_prints_json(small_store: Path, model) -> None:
    model(MONEY)
    result = _run("ask", QUESTION, "--store", small_store, "--json")
    record = json.loads(result.stdout)
    assert record["question"] == QUESTION
    sure = {"confidence": record["confidence"]}
    money = {"mid": "m.04xc2m", "name": "Jamaican dollar", "origin": "graph", **sure}
    assert record["answers"] == [money]
    assert result.stderr == ""


def test_a_question_without_an_answer_fails_and_says_why(small_store: Path, model) -> None:
    model(NONSENSE)
    result = _run("ask", UNKNOWN, "--store", small_store)
    assert (result.exit_code, result.stderr) == (1, "")
    assert result.stdout.startswith("No answer: the model wrote nothing that can be read")
    assert "1. unreadable:" in result.stdout


def test_a_question_that_fails_among_many_does_not_end_the_others(small_store: Path, model) -> None:
    model(MONEY, ModelError("out of memory"), SEAT)
    stdin = f"{QUESTION}\nwhat?\ncapital of Jamaica"
    result = _run("ask", "-", "--store", small_store, "--json", stdin=stdin)
    assert (result.exit_code, result.stderr) == (1, "Error: what?: out of memory\n")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [len(row["answers"]) for row in rows] == [1, 0, 1]
    assert rows[1] == {"question": "what?", "answers": [], "error": "out of memory"}


AREA = [("Main Path:\n Kingston -[location , location , area]-> ?x", -0.5)]
NO_AREA = [("Main Path:\n Jamaica -[location , location , area]-> ?x", -0.5)]


def test_a_follow_up_at_the_command_line_knows_the_question_before(
    small_store: Path, model
) -> None:
    written = model(SEAT, AREA)
    result = _run(
        "ask", "how large is it?", "--after", "capital of jamaica?", "--store", small_store
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("Understood as: how large is Kingston?\n480\n")
    assert written.questions == ["capital of jamaica?", "how large is Kingston?"]


def test_two_questions_in_one_are_headed_and_answered_in_order(small_store: Path, model) -> None:
    model(MONEY, AREA)
    both = "what is jamaican money called? And how large is kingston?"
    only_written = ("--set", "judge=confidence")
    result = _run("ask", both, "--store", small_store, *only_written)
    assert result.exit_code == 0
    first, _, second = result.stdout.partition("\n\n\n2. how large is kingston?\n480\n")
    assert first.startswith("1. what is jamaican money called?\nJamaican dollar  (m.04xc2m)\n")
    assert "SPARQL:" in first
    assert second.count("SPARQL:") == second.count("\nTime: ") == 1


@pytest.mark.parametrize(("first", "code"), [(SEAT, 0), (NO_AREA, 1)])
def test_a_question_fails_only_if_none_of_its_parts_has_an_answer(
    small_store: Path, model, first, code
) -> None:
    model(first, NO_AREA)
    asked = "what is the capital of jamaica and how large is it?"
    only_written = ("--set", "judge=confidence")
    result = _run("ask", asked, "--store", small_store, "--json", *only_written)
    record = json.loads(result.stdout)
    assert result.exit_code == code
    assert [part["status"] == "none" for part in record["parts"]] == [code == 1, True]
    assert record.get("partial") == (code == 0 or None)


@pytest.mark.parametrize("question", [[], ["-"]])
def test_questions_before_go_with_one_question(question: list[str]) -> None:
    result = _run("ask", *question, "--after", "capital of jamaica?")
    assert result.exit_code == 2


def test_a_question_ends_at_its_deadline(small_store: Path, model) -> None:
    model(MONEY)
    result = _run("ask", QUESTION, "--store", small_store, "--deadline", "0.000001")
    assert _ends_in_one_line(result, 1, "no answer within 1e-06 s. Raise --deadline.")


@pytest.mark.parametrize(
    ("flags", "shown", "hidden"),
    [
        ((), "", "linked"),
        (("-v",), "linked 'what is jamaican money called?': Jamaica (m.03_r3, ", "SELECT"),
        (("-vv",), "SELECT DISTINCT ?x", "nobody"),
    ],
)
def test_verbose_shows_what_is_done(
    small_store: Path, model, caplog, flags: tuple[str, ...], shown: str, hidden: str
) -> None:
    model(MONEY)
    _run(*flags, "ask", "what is jamaican money called?", "--store", small_store)
    assert shown in caplog.text
    assert hidden not in caplog.text


def test_many_questions_are_asked_with_one_model(small_store: Path, model) -> None:
    generator = model(MONEY, NONSENSE, SEAT)
    stdin = f"{QUESTION}\n\n  what?  \ncapital of Jamaica"
    result = _run("ask", "-", "--store", small_store, stdin=stdin)
    assert (result.exit_code, result.stderr) == (0, "")
    assert generator.questions == [QUESTION, "what?", "capital of Jamaica"]
    heads = [line for line in result.stdout.splitlines() if line.startswith("# ")]
    assert heads == [f"# {question}" for question in generator.questions]
    assert "Kingston  (m.03yl7)" in result.stdout


def test_many_answers_are_json_lines(small_store: Path, model) -> None:
    model(MONEY, NONSENSE)
    result = _run("ask", "-", "--store", small_store, "--json", stdin="a?\nb?\n")
    records = [json.loads(line) for line in result.stdout.splitlines()]
    assert [len(record["answers"]) for record in records] == [1, 0]
    assert result.exit_code == 0


@pytest.mark.parametrize("question", ["é\udcff?", "-"], ids=["argument", "standard input"])
def test_bytes_that_are_no_text_do_no_harm(question: str, small_store: Path, model) -> None:
    model(MONEY)
    result = _run("ask", question, "--store", small_store, "--json", stdin=b"\xc3\xa9\xff?\n")
    assert json.loads(result.stdout)["question"] in ("é??", "é\ufffd?")


def test_a_given_topic_is_used(small_store: Path, model) -> None:
    model([(MONEY[0][0].replace("Jamaica", "Atlantis"), 0.0)])
    result = _run("ask", "what money?", "--store", small_store, "--topic", "m.03_r3")
    understood = "Understood as: what money of Jamaica\n"
    assert result.stdout.startswith(f"{understood}Jamaican dollar")
    assert "From Jamaica, follow" in result.stdout


def test_no_more_than_n_paths_are_tried(small_store: Path, model) -> None:
    model([*NONSENSE, *MONEY])
    only_written = ("--set", "judge=confidence")
    assert _run("ask", QUESTION, "--store", small_store, "--n", "1", *only_written).exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((" ",), 2, "the question is empty"),
        (("why?", "--topic", "Jamaica"), 2, "--topic Jamaica: not a mid"),
        (("why?", "--store", "none"), 1, "there is no store at none"),
        (("why?", "--store", "."), 1, "is not a finished store"),
        (("why?", "--endpoint", "http://127.0.0.1:9/"), 1, "127.0.0.1:9"),
        (("why?", "--endpoint", "localhost"), 2, "an endpoint is an http"),
    ],
    ids=["empty", "topic", "no store", "not loaded", "endpoint down", "no URL"],
)
@pytest.mark.usefixtures("no_model")
def test_what_cannot_work_is_told_before_the_model_is_loaded(
    arguments: Sequence[str], code: int, message: str
) -> None:
    assert _ends_in_one_line(_run("ask", *arguments), code, message)


@pytest.mark.usefixtures("no_model")
def test_an_empty_endpoint_is_told(empty_endpoint: str) -> None:
    result = _run("ask", "why?", "--endpoint", empty_endpoint)
    assert _ends_in_one_line(result, 1, f"endpoint {empty_endpoint} holds no triples")


def test_without_a_runtime_for_the_model_it_is_told_how_to_install_one(
    small_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = _run("ask", QUESTION, "--store", small_store)
    assert _ends_in_one_line(result, 1, "kbqa[cpu]")


def test_a_missing_adapter_is_told(small_store: Path) -> None:
    result = _run("ask", QUESTION, "--store", small_store, "--adapter", "none")
    assert _ends_in_one_line(result, 1, "there is no adapter at none")


def test_a_model_folder_without_weights_is_told(small_store: Path, tmp_path: Path) -> None:
    (tmp_path / "config.json").touch()
    (tmp_path / "kbqa_prompt.json").write_text('{"template": "", "crp_format": ""}')
    (tmp_path / "adapter_model.safetensors").touch()
    result = _run(
        "ask", QUESTION, "--store", small_store, "--adapter", tmp_path, "--model", tmp_path
    )
    assert _ends_in_one_line(result, 1, f"{tmp_path} holds no weights")


@pytest.mark.parametrize(
    ("reply", "code"),
    [(MONEY, 0), (NONSENSE, 1), (GraphError("gone"), 1), (KeyboardInterrupt(), 130)],
    ids=["answered", "unanswered", "failed", "interrupted"],
)
def test_no_process_is_left(reply, code: int, small_store: Path, model) -> None:
    before = _workers()
    generator = model(reply)
    if isinstance(reply, KeyboardInterrupt):

        def interrupt(*_: object, **__: object) -> None:
            raise reply

        generator.generate = interrupt
    assert _run("ask", UNKNOWN, "--store", small_store).exit_code == code
    assert _workers() <= before


@pytest.fixture
def questions(tmp_path: Path) -> Path:
    path = tmp_path / "questions.jsonl"
    rows = [
        {
            "id": "a",
            "question": QUESTION,
            "answers": [{"arg": "m.04xc2m"}],
            "evidence": "annotated",
        },
        {"id": "b", "question": "seat?", "answers": [{"arg": "m.03yl7"}], "evidence": "none"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


@pytest.fixture
def evaluate(questions: Path, small_store: Path) -> Iterator[object]:
    """Run `kbqa eval` over the questions and the small graph."""

    def evaluate(*arguments: str | Path, store: str | Path = small_store) -> Result:
        chosen = ("--questions", questions, "--output", "run.jsonl", "--store", store)
        return _run("eval", *chosen, *arguments)

    return evaluate


def test_eval_writes_rows_and_prints_the_scores(evaluate, model) -> None:
    model(MONEY, NONSENSE)
    result = evaluate()
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("| tier (linked entities) | n |")
    assert [line.split(" | ")[0] for line in lines[2:5]] == [
        "| all",
        "| annotated",
        "| none",
    ]
    assert lines[-1].endswith("0 failed, 0 not scored.")
    rows = [json.loads(line) for line in Path("run.jsonl").read_text("utf-8").splitlines()]
    assert [row["scores"]["f1"] for row in rows] == [1.0, 0.0]
    assert Path("run.manifest.json").is_file()


def test_eval_prints_json(evaluate, model) -> None:
    model(MONEY, SEAT)
    record = json.loads(evaluate("--json", "--gold-entities").stdout)
    assert (record["entities"], record["tiers"]["all"]["f1"]["mean"]) == ("gold", 1.0)


def test_eval_goes_on_after_a_failure(evaluate, model) -> None:
    model(RuntimeError("a bug"), SEAT)
    result = evaluate("--batch-size", "1")
    assert result.exit_code == 0
    assert "1 failed" in result.stdout


def test_eval_tells_how_much_is_left_where_the_money_ends(evaluate, model) -> None:
    model(MONEY, SpendingLimitReached("1 USD is spent"))
    result = evaluate("--batch-size", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == ("Error: 1 USD is spent\n1 of 2 questions are left. Use --resume.\n")
    model(SEAT)
    assert evaluate("--batch-size", "1", "--resume").exit_code == 0


def test_eval_says_first_that_nothing_has_gold(evaluate, model, questions: Path) -> None:
    model([])
    questions.write_text('{"question": "which money?", "answer": ["Dollar"]}\n', encoding="utf-8")
    result = evaluate()
    assert result.exit_code == 0
    assert result.stderr.startswith(
        f"Warning: 1 of 1 questions in {questions} have no gold and are not scored: "
        '"answer" is not read. Write "answers": [{"arg", "name"}] with mids'
    )


def test_eval_says_first_that_gold_is_by_name_alone(evaluate, model, questions: Path) -> None:
    model([])
    record = {"question": "which money?", "answer": ["Dollar"], "q_entity": ["Jamaica"]}
    questions.write_text(json.dumps(record), encoding="utf-8")
    result = evaluate()
    assert result.exit_code == 0
    assert result.stderr.startswith(
        f"Warning: 1 of 1 questions in {questions} have gold by name alone. "
    )
    assert "0 failed, 1 not scored" in result.stdout
    report = CliRunner().invoke(main, ["report", "run.jsonl", "--names"])
    assert "Scores by the names of answers" in report.stdout


def test_eval_draws_a_sample(evaluate, model) -> None:
    model(MONEY)
    evaluate("--sample", "1", "--seed", "7", "--no-timings", "--concurrency", "2")
    [row] = [json.loads(line) for line in Path("run.jsonl").read_text("utf-8").splitlines()]
    assert "seconds" not in row
    manifest = json.loads(Path("run.manifest.json").read_text("utf-8"))
    assert (manifest["sample"], manifest["seed"], manifest["timings"]) == (1, 7, False)
    assert (manifest["model"], manifest["decoding"]) == ("scripted", "graph")
    assert manifest["store"]["dumps_sha256"]


@pytest.mark.usefixtures("no_model")
def test_eval_needs_no_model_where_all_beams_are_written(evaluate) -> None:
    rows = [
        {"id": id_, "crps": [{"routerkgqa": text, "logprob": logprob, "tokens": 9}]}
        for id_, [(text, logprob)] in (("a", MONEY), ("b", SEAT))
    ]
    Path("beams.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = evaluate("--beams", "beams.jsonl", "--json")
    assert json.loads(result.stdout)["tiers"]["all"]["f1"]["mean"] == 1.0


@pytest.mark.usefixtures("no_model")
def test_an_official_file_and_written_paths_give_tokens_prices_and_right_paths(
    evaluate,
) -> None:
    gold = "SELECT ?x { FILTER (?x != ns:m.03_r3) ns:m.03_r3 ns:location.country.%s ?x . }"
    annotated = {"QuestionQuality": "Good", "ParseQuality": "Complete"}
    official = [
        {
            "QuestionId": id_,
            "RawQuestion": "money?",
            "Parses": [
                {
                    "Sparql": gold % relation,
                    "TopicEntityMid": "m.03_r3",
                    "TopicEntityName": "Jamaica",
                    "Answers": [{"AnswerArgument": "m.04xc2m", "EntityName": "Jamaican dollar"}],
                    "AnnotatorComment": annotated,
                }
            ],
        }
        for id_, relation in (("WebQTest-1", "currency_used"), ("WebQTest-2", "capital"))
    ]
    Path("test.json").write_text(json.dumps({"Questions": official}), encoding="utf-8")
    crps = [
        {"routerkgqa": text, "logprob": logprob, "tokens": tokens}
        for [(text, logprob)], tokens in ((MONEY, 40), (NONSENSE, 90))
    ]
    rows = [{"id": f"WebQTest-{at}", "crps": crps, "input_tokens": 60} for at in (1, 2)]
    Path("beams.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    written_by = {"model": "meta-llama/Llama-2-7b-hf + adapter 1a2b3c4d, decoding none"}
    Path("beams.manifest.json").write_text(json.dumps(written_by))
    chosen = ("--questions", "test.json", "--beams", "beams.jsonl")
    result = evaluate(*chosen)
    assert (result.exit_code, result.stderr) == (0, "")
    report = json.loads(_run("report", "run.jsonl", "--json").stdout)
    costs = report["costs"]
    assert [costs[name]["mean"] for name in ("input_tokens", "output_tokens", "tokens")] == [
        60,
        40,
        100,
    ]
    paid = (60 * 0.05 + 40 * 0.25) / 1e6 * 10_000
    assert report["writer_usd_per_10_000"] == pytest.approx(paid)
    parts = {part: mean["mean"] for part, mean in report["first_paths"].items()}
    assert parts == {"depth": 1.0, "main_path": 0.5, "skeleton": 0.5, "exact": 0.5}
    assert report["gold_answers"] == {"n": 2, "mean": 1.0, "single": 1.0}
    text = " ".join(_run("report", "run.jsonl").stdout.split())
    assert "Cost per 10,000 questions: 0.13 US dollars, 0.13 of it for the small model." in text
    assert "times, wall s" in text


@pytest.mark.parametrize("output", ["questions.jsonl", "./link.jsonl", "hard.jsonl", "run.jsonl"])
def test_a_file_that_is_read_is_not_replaced_by_the_run(
    evaluate, questions: Path, output: str
) -> None:
    Path("link.jsonl").symlink_to(questions)
    Path("hard.jsonl").hardlink_to(questions)
    before = questions.read_bytes()
    options = ["--output", output]
    if output == "run.jsonl":  # whose manifest it is
        questions = questions.rename(questions.with_name("run.manifest.json"))
        options += ["--questions", str(questions)]
    result = evaluate(*options, "--overwrite")
    assert _ends_in_one_line(result, 2, f"would overwrite {questions}, which is read (--questions)")
    assert questions.read_bytes() == before


def test_a_run_is_neither_replaced_nor_continued_unasked(evaluate, model) -> None:
    model(MONEY, NONSENSE)
    evaluate()
    before = Path("run.jsonl").read_bytes()
    assert _ends_in_one_line(evaluate(), 2, "Add --resume to continue it")
    assert _ends_in_one_line(evaluate("--resume", "--overwrite"), 2, "choose one")
    assert _ends_in_one_line(evaluate("--resume", "--n", "3"), 2, "other settings (n)")
    assert evaluate("--resume").exit_code == 0
    assert Path("run.jsonl").read_bytes() == before
    assert _ends_in_one_line(evaluate("--overwrite", store="none"), 1, "there is no store")
    assert Path("run.jsonl").read_bytes() == before
    with claimed(Path("run.jsonl"), {}, {}):
        assert _ends_in_one_line(evaluate("--overwrite"), 2, "another process is writing")
    assert Path("run.jsonl").read_bytes() == before
    model(MONEY, SEAT)
    assert evaluate("--overwrite", "--n", "3").exit_code == 0
    assert Path("run.jsonl").read_bytes() != before


@pytest.mark.usefixtures("no_model")
@pytest.mark.parametrize(
    ("text", "message"),
    [("", "has no questions"), ('{"question": "a?"}\nnonsense', "line 2: not JSON")],
    ids=["empty", "no JSON"],
)
def test_a_bad_question_file_is_told(evaluate, questions: Path, text: str, message: str) -> None:
    questions.write_text(text, encoding="utf-8")
    assert _ends_in_one_line(evaluate(), 2, message)
    assert not Path("run.jsonl").exists()


@pytest.mark.usefixtures("no_model")
def test_a_missing_folder_is_told(evaluate) -> None:
    assert _ends_in_one_line(evaluate("--output", "none/run.jsonl"), 2, "there is no folder none")
