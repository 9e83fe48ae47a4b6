"""Kinds of paths and options that several tools take."""

from pathlib import Path

import click

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
NEW_FILE = click.Path(path_type=Path, dir_okay=False)
NEW_FOLDER = click.Path(path_type=Path, file_okay=False)
STORE = click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
QUESTIONS = click.option("--questions", "question_file", type=FILE, required=True)
GOLD_ENTITIES = click.option(
    "--gold-entities", is_flag=True, help="Bind names to the questions' topics first."
)
