"""Kinds of paths and options that several tools take."""

from pathlib import Path

import click

FILE = click.Path(path_type=Path, exists=True, dir_okay=False)
FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
NEW_FILE = click.Path(path_type=Path, dir_okay=False)
NEW_FOLDER = click.Path(path_type=Path, file_okay=False)
STORE = click.option("--store", type=click.Path(path_type=Path), required=True, metavar="DIR")
