"""The columns of a file: each has the type of Parquet that holds its values exactly, or PostgreSQL's text."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

_NUMERIC = re.compile(r"numeric\((\d+),(\d+)\)")
# The most digits of a decimal number in Parquet.
_DIGITS = 38
_TYPES = {
    "boolean": "bool",
    "smallint": "int16",
    "integer": "int32",
    "bigint": "int64",
    "real": "float32",
    "double precision": "float64",
    "date": "date32",
}


class FileColumn(NamedTuple):
    """A column of a table and of its file."""

    name: str
    type: str
    """In PostgreSQL."""
    as_text: bool = False
    """Whether it has a value that the type of Parquet does not hold, such as `infinity`."""

    @property
    def is_document(self) -> bool:
        """Whether its values are JSON: long, and each one different."""
        return self.type in {"json", "jsonb"}

    @property
    def arrow(self) -> pa.DataType:
        """The type in the file. JSON, and every type that Parquet does not have, is text as PostgreSQL writes it."""
        import pyarrow as pa

        if self.as_text:
            return pa.string()
        if name := _TYPES.get(self.type):
            return pa.type_for_alias(name)
        if self.type.startswith("timestamp"):
            return pa.timestamp("us", tz="UTC" if self.type.endswith("with time zone") else None)
        if (number := _NUMERIC.fullmatch(self.type)) and int(number[1]) <= _DIGITS:
            return pa.decimal128(int(number[1]), int(number[2]))
        return pa.string()


def schema_of(columns: Sequence[FileColumn], metadata: dict[str, str]) -> pa.Schema:
    """Return the schema of the file, with `metadata` and the type of each column in PostgreSQL."""
    import pyarrow as pa

    fields = [pa.field(column.name, column.arrow, metadata={"postgresql": column.type}) for column in columns]
    return pa.schema(fields, metadata=metadata)


def encoding_of(columns: Sequence[FileColumn]) -> dict[str, Any]:
    """Return how the columns are encoded, as options of Arrow's writer.

    A dictionary of values pays where they repeat: ids, times, fractions and documents are written without, which takes
    two thirds of the time, and of the space.
    """
    import pyarrow as pa

    whole = [
        column.name for column in columns if pa.types.is_int64(column.arrow) or pa.types.is_timestamp(column.arrow)
    ]
    repeating = [
        column.name
        for column in columns
        if not column.is_document and (pa.types.is_string(column.arrow) or pa.types.is_int16(column.arrow))
    ]
    return {"use_dictionary": repeating, "column_encoding": dict.fromkeys(whole, "DELTA_BINARY_PACKED")}


def columns_of(schema: pa.Schema) -> list[FileColumn]:
    return [FileColumn(field.name, (field.metadata or {}).get(b"postgresql", b"text").decode()) for field in schema]
