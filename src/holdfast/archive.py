"""Archiving: declare the tables of the application whose old rows leave for Parquet files in an object store."""

from __future__ import annotations

from holdfast._archive.location import ArchiveError
from holdfast._archive.tables import Archive

__all__ = ["Archive", "ArchiveError"]
