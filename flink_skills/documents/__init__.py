"""YAML documents of users: their values with lines, and all problems of a document together."""

from typing import TYPE_CHECKING

from flink_skills.lazy import lazy_names

if TYPE_CHECKING:
    from flink_skills.documents.document import Document as Document
    from flink_skills.documents.document import DocumentError as DocumentError
    from flink_skills.documents.document import Path as Path
    from flink_skills.documents.document import Place as Place
    from flink_skills.documents.document import Problem as Problem
    from flink_skills.documents.document import path_text as path_text
    from flink_skills.documents.document import read_document as read_document
    from flink_skills.documents.schema_validation import known_keys as known_keys
    from flink_skills.documents.schema_validation import schema_problems as schema_problems
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__)
