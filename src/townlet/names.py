"""Names: what a config, a sample, an arm or a checkpoint may be called, so that a name can be a file's name and nothing more.

Everything that comes from a file or a command line and becomes part of a path is a `Name`; a path that comes from a file goes
through `files.safe_join`. Nothing else joins paths with words it was given.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from townlet.errors import TownletError, UsageError

LONGEST = 128
PATTERN = r"^[a-z0-9][a-z0-9_-]*(\.[a-z0-9_-]+)*$"
EXPECTED = f"lower-case letters, digits, _, - and single dots, a letter or digit first, at most {LONGEST}"
_NAME = re.compile(PATTERN.removeprefix("^").removesuffix("$"))
_OTHER = re.compile(r"[^a-z0-9_-]+")


def is_name(text: object) -> bool:
    return isinstance(text, str) and len(text) <= LONGEST and _NAME.fullmatch(text) is not None


def _checked(text: str) -> str:
    if not is_name(text):
        raise ValueError(f"{text!r:.60} cannot be a name; expected {EXPECTED}")
    return text


_SCHEMA = {"type": "string", "pattern": PATTERN, "maxLength": LONGEST}
Name = Annotated[str, AfterValidator(_checked), WithJsonSchema(_SCHEMA)]
NameOrNothing = Annotated[str, AfterValidator(lambda text: text and _checked(text)), WithJsonSchema({"type": "string"})]


def check_name(text: object, what: str, *, error: type[TownletError] = UsageError) -> str:
    """The name itself; one sentence that begins with `what` when it is none."""
    if not isinstance(text, str) or not is_name(text):
        raise error(f"{what}: {text!r:.60} cannot be a name; expected {EXPECTED}")
    return text


def name_from(text: str) -> str:
    """A name as close as can be to any words, such as those of a file: `My Town` → `my_town`."""
    return _OTHER.sub("_", text.lower()).strip("_-")[:LONGEST].rstrip("_-") or "unnamed"
