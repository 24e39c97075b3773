"""Writers: what stands behind `search="refine"` and makes new programs of those that were graded."""

from services.generator.writing.account import WritingAccount
from services.generator.writing.writer import Ask, Attempt, NoAnswer, NothingNew, Writer
from services.generator.writing.writers import Writers

__all__ = ["Ask", "Attempt", "NoAnswer", "NothingNew", "Writer", "Writers", "WritingAccount"]
