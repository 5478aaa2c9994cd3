"""Reads the rows of a CSV file as a stream, with file and line in every error."""

import csv
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

from lrtrace.errors import BadInput
from lrtrace.jsonl import open_trace_input


def read_csv_rows(
    path: Path, columns: Sequence[str], *, delimiter: str = ","
) -> Iterator[tuple[int, dict[str, str]]]:
    """(line, row) of a CSV file with these columns.

    Raises:
        BadInput: unreadable, not a CSV file, a column is absent or there twice, or a row is short or long; names file
            and line.
    """
    with open_trace_input(path) as raw, TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
        reader = csv.DictReader(text, strict=True, delimiter=delimiter)
        try:
            for name in columns:
                if name not in (reader.fieldnames or ()):
                    raise BadInput(f"column {name!r} is missing", where=f"{path}:1")
                if (reader.fieldnames or ()).count(name) > 1:
                    raise BadInput(f"column {name!r} is there twice", where=f"{path}:1")
            for row in reader:
                if None in row or None in row.values():
                    raise BadInput(
                        f"expected {len(reader.fieldnames or ())} fields", where=f"{path}:{reader.line_num}"
                    )
                yield reader.line_num, row
        except csv.Error as error:
            raise BadInput(f"not valid CSV: {error}", where=f"{path}:{reader.reader.line_num}") from error
        except UnicodeDecodeError as error:
            raise BadInput("not UTF-8 text", where=f"{path}:{reader.line_num + 1}") from error
