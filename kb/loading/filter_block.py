r"""Filter the lines of a dump, a block at a time: keep, filter out or reject them.

Almost all lines have the form ``<subject>\t<predicate>\t<object>\t.``: polars handles them by
column, without holding the interpreter lock. The few others go one by one to
`kbqa.kb.loading.cleaning`. The tables for the side indexes are built here too.
"""

import io
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import polars as pl

from kbqa.kb.layout import LineCounts
from kbqa.kb.loading.cleaning import Cleaned, Rejected, Repaired, Skipped, clean_line
from kbqa.kb.loading.dump import Block
from kbqa.kb.loading.rules import FilterRules
from kbqa.kb.schema import SchemaBuilder
from kbqa.sparql.errors import DumpError
from kbqa.sparql.terms import FREEBASE_NS, NAME, TYPE

ALIAS = "common.topic.alias"

_NS_OPEN = f"<{FREEBASE_NS}"
_IS_NODE = pl.col("node").str.starts_with(_NS_OPEN)

# Predicates are compared by hashes: comparing texts takes several times as long.
_CODE = pl.col("predicate").hash(seed=1).alias("code")
_NOTED = [f"{_NS_OPEN}{name}>" for name in sorted(SchemaBuilder.PREDICATES | {NAME, ALIAS})]
_NOTED_CODES = pl.DataFrame({"predicate": _NOTED}).select(_CODE)["code"].implode()
_TYPE_CODE = pl.DataFrame({"predicate": [f"{_NS_OPEN}{TYPE}>"]}).select(_CODE).item()

_COLUMNS = dict.fromkeys(("subject", "predicate", "object", "dot"), pl.String)
_TRIPLE = dict.fromkeys(("subject", "predicate", "object"), pl.String)

# Stricter than N-Triples: a line that does not match goes to `clean_line`, and may be fine.
_PLAIN_IRI = r"<[A-Za-z][A-Za-z0-9+.-]*:[^<>\"{}|^`\\\x00-\x20\x7F]+>"
_PLAIN_LITERAL = (
    r'"(?:[^"\\\n\r]|\\[tbnrf"\'\\])*"'
    r"(?:@[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\^\^" + _PLAIN_IRI + r")?"
)
_IS_IRI = f"^{_PLAIN_IRI}$"
_IS_TERM = f"^(?:{_PLAIN_IRI}|{_PLAIN_LITERAL})$"

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LANGUAGE_TAG = '"@([A-Za-z0-9-]+)$'
_OTHER_LANGUAGE = "a literal in another language"

_LONG_RUN = 64  # triples in a row with one subject for which its relations are counted

REFUSED = "refused by the store's parser"

_HEADER = b"dump\tline\treason\ttext\n"


class RejectedLine(NamedTuple):
    """A line that is not a triple."""

    number: int  # in the dump, 1-based
    reason: str  # in a few stable words
    line: bytes  # without its end


@dataclass(frozen=True, slots=True)
class BlockTables:
    """Data for the side indexes, from the kept triples of a block."""

    relations: pl.DataFrame  # id, code (a hash of it), count of its triples
    types: pl.DataFrame  # id, count of the statements that an entity has it
    # Every node, maybe repeated: key (a hash of its IRI), node (id), out and in (triples).
    nodes: pl.DataFrame
    # Relations of those triples: key, code, out, in. All that enter a node are counted; of those
    # that leave it, only long runs.
    edges: pl.DataFrame
    # The triples for names and schema: key of the subject, subject and predicate as ids, object as
    # in the dump.
    noted: pl.DataFrame


@dataclass(frozen=True, slots=True)
class FilteredBlock:
    """The result of filtering a block."""

    counts: LineCounts
    content: bytes  # the kept triples, as canonical N-Triples in UTF-8
    rejected: Sequence[RejectedLine]
    tables: BlockTables


class BlockFilter:
    """Filters blocks by rules. Threads may share one filter.

    If it is strict, the first line that needs repair or is rejected raises `DumpError`.
    """

    def __init__(self, rules: FilterRules, *, strict: bool = False) -> None:
        self._rules = rules
        self._strict = strict
        exact = [f"<{drop.iri}>" for drop in rules.drops if not drop.iri.endswith("*")]
        families = [re.escape(drop.iri[:-1]) for drop in rules.drops if drop.iri.endswith("*")]
        predicate = pl.col("predicate")
        self._is_unwanted = predicate.is_in(exact)
        if families:
            self._is_unwanted |= predicate.str.contains(f"^<(?:{'|'.join(families)})")

    def __call__(self, block: Block) -> FilteredBlock:
        """Filter the lines of a block."""
        table = _read_table(block.data)
        filtered: Counter[str] = Counter()
        rejected: list[RejectedLine] = []
        defects: Counter[str] = Counter()
        has_form = pl.col("dot").eq_missing(".")
        has_form &= pl.all_horizontal(pl.col(*_TRIPLE).is_not_null())
        formed, malformed = _split(table, has_form)
        formed = formed.with_columns(_CODE)
        predicates = _predicates(formed)
        # A line with an unwanted predicate is not checked any further.
        wanted = self._wanted(formed, predicates, filtered)
        plain, unclear = _split(wanted, _is_plain(wanted, predicates))
        numbers = sorted(pl.concat([malformed["line"], unclear["line"]]))
        triples = plain.drop("line", "dot")
        if numbers:
            cleaned = self._clean(block, numbers, filtered, rejected, defects).with_columns(_CODE)
            triples = pl.concat([triples, self._wanted(cleaned, _predicates(cleaned), filtered)])
        kept = self._in_chosen_language(triples, filtered)
        reasons = Counter(line.reason for line in rejected)
        counts = LineCounts(table.height, kept.height, filtered, reasons, defects)
        return FilteredBlock(counts, _write_lines(kept), rejected, _sum_up(kept))

    def _wanted(
        self, table: pl.DataFrame, predicates: pl.DataFrame, filtered: Counter[str]
    ) -> pl.DataFrame:
        """Drop the triples with unwanted predicates."""
        unwanted = predicates.filter(self._is_unwanted)
        for predicate, lines in unwanted.select("predicate", "count").iter_rows():
            reason = self._rules.reason_to_drop(predicate[1:-1])
            assert reason is not None, "the rules drop it"
            filtered[reason] += lines
        return table.filter(~pl.col("code").is_in(unwanted["code"].implode()))

    def _in_chosen_language(self, triples: pl.DataFrame, filtered: Counter[str]) -> pl.DataFrame:
        if not self._rules.languages:
            return triples
        may_have_tag = ~(pl.col("object").str.ends_with(">") | pl.col("object").str.ends_with('"'))
        tagged, untagged = _split(triples, may_have_tag)
        tags = tagged["object"].str.extract(_LANGUAGE_TAG)
        unwanted = [tag for tag in tags.unique() if not self._rules.keeps_language(tag)]
        if not unwanted:
            return triples
        spoken = tagged.filter(~tags.is_in(unwanted))
        filtered[_OTHER_LANGUAGE] += tagged.height - spoken.height
        return pl.concat([untagged, spoken])

    def _clean(
        self,
        block: Block,
        numbers: Sequence[int],
        filtered: Counter[str],
        rejected: list[RejectedLine],
        defects: Counter[str],
    ) -> pl.DataFrame:
        """Repair or reject the lines that polars does not recognise."""
        lines = block.data.split(b"\n")
        repaired: list[list[str]] = []
        for number in numbers:
            line = lines[number].removesuffix(b"\r")
            cleaned = clean_line(line)
            if self._strict:
                _check(cleaned, f"{block.dump}, line {block.first_line + number}")
            if isinstance(cleaned, Repaired):
                defects.update(cleaned.defects)
                repaired.append(cleaned.line.decode("utf-8").split("\t")[:3])
            elif isinstance(cleaned, Skipped):
                filtered[cleaned.reason] += 1
            else:
                rejected.append(RejectedLine(block.first_line + number, cleaned.reason, line))
        return pl.DataFrame(repaired, schema=_TRIPLE, orient="row")


def _check(cleaned: Cleaned, where: str) -> None:
    if isinstance(cleaned, Rejected):
        raise DumpError(f"{where}: {cleaned.reason}. Without --strict it would only be counted.")
    if isinstance(cleaned, Repaired) and cleaned.defects:
        defects = ", ".join(cleaned.defects)
        raise DumpError(f"{where}: {defects}. Without --strict it would be repaired.")


def _read_table(data: bytes) -> pl.DataFrame:
    """Split lines at tabs: one row for each line, with its number in the block."""
    if data.startswith(_BYTE_ORDER_MARK):
        data = _BYTE_ORDER_MARK + data  # polars drops one, but it must be counted.
    try:
        table = _read_csv(data)
    except (pl.exceptions.ComputeError, pl.exceptions.SchemaError):
        # Some line is not UTF-8 or has more tabs. `_clean` reads the original.
        lines = data.removesuffix(b"\n").split(b"\n")
        table = _read_csv(
            b"".join((line if _is_readable(line) else b"?") + b"\n" for line in lines)
        )
    return table.with_row_index("line")


def _read_csv(data: bytes) -> pl.DataFrame:
    return pl.read_csv(
        data,
        separator="\t",
        has_header=False,
        quote_char=None,
        schema=_COLUMNS,
        missing_columns="insert",
    )


def _is_readable(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return line.count(b"\t") < len(_COLUMNS)


def _split(table: pl.DataFrame, claim: pl.Expr) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows for which a claim is true, and the others; fast if it is true of all."""
    mask = table.select(claim.alias("claim")).to_series()
    if mask.all():
        return table, table.clear()
    return table.filter(mask), table.filter(~mask)


def _predicates(table: pl.DataFrame) -> pl.DataFrame:
    return table.group_by("code").agg(pl.col("predicate").first(), pl.len().alias("count"))


def _is_plain(table: pl.DataFrame, predicates: pl.DataFrame) -> pl.Expr:
    """Select the triples that need no cleaning. Subjects come in runs, each checked once."""
    subjects = table["subject"]
    subjects = subjects.filter(subjects.ne_missing(subjects.shift()))
    is_plain = pl.col("object").str.contains(_IS_TERM)
    for terms, column in (
        (subjects, pl.col("subject")),
        (predicates["predicate"], pl.col("predicate")),
    ):
        strange = terms.filter(~terms.str.contains(_IS_IRI))
        if not strange.is_empty():
            is_plain &= ~column.is_in(strange.implode())
    return is_plain


def _write_lines(triples: pl.DataFrame) -> bytes:
    content = io.BytesIO()
    triples.select(*_TRIPLE).write_csv(
        content,
        separator="\t",
        line_terminator="\t.\n",
        include_header=False,
        quote_style="never",
    )
    return content.getvalue()


def _sum_up(triples: pl.DataFrame) -> BlockTables:
    types = triples["object"].filter(triples["code"] == _TYPE_CODE).alias("id")
    types = types.filter(types.str.starts_with("<"))
    noted = triples.filter(pl.col("code").is_in(_NOTED_CODES))
    nodes_left, edges_left = _leaving(triples)
    nodes_entered, edges_entered = _entering(triples)
    return BlockTables(
        relations=_predicates(triples).select(_id("predicate").alias("id"), "code", "count"),
        types=types.value_counts(name="count").select(_id("id"), "count"),
        nodes=pl.concat([nodes_left, nodes_entered], how="diagonal"),
        edges=pl.concat([edges_left, edges_entered], how="diagonal"),
        noted=noted.select(_key("subject"), _id("subject"), _id("predicate"), "object"),
    )


def _leaving(triples: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Count the triples that leave each node, run by run, and those of each relation."""
    runs = triples["subject"].rle().struct.unnest()
    runs = runs.select(pl.col("value").alias("node"), pl.col("len").alias("out"))
    runs = runs.filter(_IS_NODE)
    long = runs.filter(pl.col("out") >= _LONG_RUN)["node"]
    edges = (
        triples.filter(pl.col("subject").is_in(long.implode()))
        .group_by(_key("subject"), "code")
        .agg(pl.len().alias("out"))
    )
    return runs.select(_key("node"), _id("node"), "out"), edges


def _entering(triples: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Count the triples that enter each node, by hashes: five times as fast as by ids."""
    edges = (
        triples.select(pl.col("object").alias("node"), "code")
        .filter(_IS_NODE)
        .with_columns(_key("node"))
        .with_columns(edge=pl.col("key") ^ pl.col("code"))
        .group_by("edge")
        .agg(pl.col("key", "code", "node").first(), pl.len().alias("in"))
    )
    nodes = edges.group_by("key").agg(pl.col("node").first(), pl.col("in").sum())
    return nodes.with_columns(_id("node")), edges.select("key", "code", "in")


def _key(column: str) -> pl.Expr:
    return pl.col(column).hash(seed=0).alias("key")


def _id(column: str) -> pl.Expr:
    """Shorten Freebase's IRIs to ids; other IRIs stay."""
    return pl.col(column).str.strip_suffix(">").str.strip_prefix(_NS_OPEN).str.strip_prefix("<")


class RejectsFile:
    """The file of rejected lines: tab-separated values, in the order of the dumps.

    The last column is the text as in the dump: it may contain tabs or bytes that are not UTF-8. An
    existing file is cut to `size_bytes`, which the checkpoint names.
    """

    def __init__(self, path: Path, size_bytes: int = 0) -> None:
        self._file = path.open("r+b" if size_bytes else "wb")
        self._file.truncate(size_bytes)
        self._file.seek(size_bytes)
        if not size_bytes:
            self._file.write(_HEADER)

    def add(self, dump: str, lines: Iterable[RejectedLine]) -> None:
        """Add rejected lines of a dump."""
        for number, reason, text in lines:
            self._file.write(f"{dump}\t{number}\t{reason}\t".encode(errors="surrogateescape"))
            self._file.write(text + b"\n")

    def add_refused(self, lines: Iterable[str]) -> None:
        """Add lines that the store's parser refused, as text."""
        self._file.writelines(f"\t\t{REFUSED}\t{line}\n".encode() for line in lines)

    def sync(self) -> int:
        """Flush everything to disk, and return the size of the file in bytes."""
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._file.tell()

    def close(self) -> None:
        """Close the file."""
        self._file.close()
