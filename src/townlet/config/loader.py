"""Reading configs: YAML 1.2, `extends`, overrides. The only module that knows YAML.

PyYAML's parser in C gives the events, the rules of YAML 1.2 are ours: ruamel.yaml, which knows them, takes 46 times as long
(129 ms against 2.8 for the shipped scenarios).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from townlet.config.models import SimulationConfig
from townlet.config.problems import sentences
from townlet.config.tree import MAX_DEPTH, MAX_NODES, Node, SourceLine, merge, plain, replace
from townlet.errors import ConfigError, TownletError, did_you_mean
from townlet.files import read_bytes, real_path, safe_join
from townlet.names import name_from

SHIPPED = Path(__file__).resolve().parent.parent / "configs"
FOLDERS = ("scenarios", "examples", "training")
MAX_BYTES = 4 << 20
MAX_ANCHORS = 1_000
MAX_CHAIN = 16  # files in a row that extend each other
MAX_FILES = 64  # … and in all
_PARSER: Any = yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader
_INT = re.compile(r"[-+]?[0-9]+")
_OTHER_INT = re.compile(r"0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_SPECIAL = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_TAGS = {"tag:yaml.org,2002:" + name for name in ("str", "int", "float", "bool", "null", "map", "seq")}

RUN_CONFIG = "config.json"  # in the folder of a run: its config, resolved


class GivenAs(str):
    """An override that somebody gave in other words than `--set`: errors name these."""

    words: str

    @classmethod
    def of(cls, override: str, words: str) -> GivenAs:
        found = cls(override)
        found.words = words
        return found


def override_words(override: str) -> str:
    """How an override was given on the command line."""
    return override.words if isinstance(override, GivenAs) else f"--set {override:.200}{'…' * (len(override) > 200)}"


def load_config(path_or_name: str | Path, overrides: Sequence[str] = (), *, recipe: str | None = None) -> SimulationConfig:
    """The config of a file, or of a shipped name such as `town_day`, with `a.b=c` overrides on top.

    `recipe` is the name of a shipped training config (`demo`): its settings go over the town's, and the overrides over both.
    """
    tree = _read_chain(find_config(path_or_name))
    return _build(tree if recipe is None else merge(tree, _recipe(recipe)), overrides)


def _recipe(name: str) -> Node:
    """What a training config says itself, and the one it extends: not the town, and not its name."""
    known = shipped_configs("training")
    if name not in known:
        hint = _nearest(name, known, f"choose from {', '.join(known)}")
        raise ConfigError(f"there is no recipe called {name!r:.80}{hint}")
    tree = read_tree(known[name])
    own = Node({key: node for key, node in tree.value.items() if key not in ("extends", "config_id")}, tree.source)
    below = tree.value["extends"].value
    return merge(_recipe(below), own) if below in known else own


def config_of_text(text: str) -> SimulationConfig:
    """The config of a text; it may extend a shipped name, and no other file is read."""
    if len(text) > MAX_BYTES:
        raise ConfigError(f"the text is {len(text)} characters long, at most {MAX_BYTES} are read")
    tree = parse_yaml(text, "scenario")
    extends = _sections(tree, "scenario")
    if extends is None:
        return _build(tree, ())
    known, below = _all_shipped(), []
    for part in _parts(extends):
        name = str(part.value).removesuffix(".yaml")  # as shipped files write it of one another
        if name not in known:
            raise ConfigError(f"{part.source}: `extends` names a shipped config here, found {part.value!r:.60}")
        below.append(_read_chain(known[name]))
    return _build(reduce(merge, [*below, tree]), ())


def default_config(overrides: Sequence[str] = ()) -> SimulationConfig:
    """All defaults, with the shipped affordances and an empty town."""
    return _build(Node({}, SourceLine("the defaults")), overrides)


def shipped_configs(folder: str = "scenarios") -> dict[str, Path]:
    """Configs that come with Townlet, by name."""
    return {path.stem: path for path in sorted((SHIPPED / folder).glob("*.yaml"))}


def _all_shipped() -> dict[str, Path]:
    return {name: path for folder in reversed(FOLDERS) for name, path in shipped_configs(folder).items()}


def find_config(path_or_name: str | Path) -> Path:
    """The file meant by a path, by the folder of a run, or by the name of a shipped config."""
    text = str(path_or_name)
    path = Path(text)
    if _there(path, Path.is_file):
        return path
    if _there(path, Path.is_dir):
        if (path / RUN_CONFIG).is_file():
            return path / RUN_CONFIG
        raise ConfigError(f"{text} is a folder without {RUN_CONFIG}; name a config file or the folder of a run")
    if not path.suffix and len(path.parts) == 1:
        names = _all_shipped()
        if text in names:
            return names[text]
        here = {file.stem: str(file) for file in Path().glob("*.yaml") if file.stem not in names}
        hint = _nearest(text, {**here, **names}, "`townlet scenarios list` shows all", show=lambda name: here.get(name, name))
        raise ConfigError(f"there is no scenario called {text!r:.80}{hint}")
    if path.parts[:1] == ("configs",) and SHIPPED.joinpath(*path.parts[1:]).is_file():
        return SHIPPED.joinpath(*path.parts[1:])
    beside = path.parent.glob("*.yaml") if _there(path.parent, Path.is_dir) else ()
    shipped = {name: name for name in _all_shipped()} if len(path.parts) == 1 else {}
    known = shipped | {found.stem: str(found) for found in beside}
    hint = _nearest(path.stem, known, "`townlet scenarios new` writes one", show=known.__getitem__)
    raise ConfigError(f"there is no config file {text:.300}{hint}")


def read_yaml(path: str | Path, *, limit: int = MAX_BYTES, error: type[TownletError] = ConfigError) -> Any:
    """Plain values of a YAML 1.2 file, read as carefully as a config."""
    try:
        return plain(read_tree(Path(path), limit=limit))
    except ConfigError as reason:
        raise error(str(reason)) from None


def _there(path: Path, kind: Callable[[Path], bool]) -> bool:
    try:
        return kind(path)
    except OSError:  # a name too long
        return False


def _nearest(word: str, known: Iterable[str], more: str = "", show: Callable[[str], str] = str) -> str:
    """What to add to a sentence about an unknown word: the nearest known one, then `more`."""
    hint = " ".join(part for part in (did_you_mean(word, known, cutoff=0.5, show=show), more) if part)
    return hint and f"; {hint}"


# --- from tree to config ------------------------------------------------------------------------------------------------


def _build(tree: Node, overrides: Sequence[str]) -> SimulationConfig:
    if isinstance(overrides, str | Mapping):
        raise ConfigError("overrides are a list of texts, such as ['ppo.learning_rate=1e-4']; found " + type(overrides).__name__)
    for override in overrides:
        tree = _override(tree, override)
    tree = _with_affordances(tree)
    try:
        return SimulationConfig.model_validate(plain(tree))
    except ValidationError as found:
        raise ConfigError(sentences(found, SimulationConfig, tree)) from None


def _override(tree: Node, text: str) -> Node:
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or any(not part for part in key.strip().split(".")):
        raise ConfigError(f"the override {text!r:.200} is not of the form section.key=value, such as ppo.learning_rate=1e-4")
    named = override_words(text)
    parts = key.strip().split(".")
    if len(parts) > MAX_DEPTH:
        raise ConfigError(f"{named}: a key of {len(parts)} parts; at most {MAX_DEPTH} are read")
    return replace(tree, parts, parse_yaml(value, named, numbered=False))


def _with_affordances(tree: Node) -> Node:
    section = tree.value.get("affordances", Node({}, tree.source))
    if not isinstance(section.value, dict) or "specs" in section.value:
        return tree
    file = section.value.get("file", Node("core.yaml", SourceLine("the defaults")))
    if not isinstance(file.value, str):
        return tree  # the model says what is wrong with it
    folders = [folder for folder in (file.source.folder, SHIPPED / "affordances") if folder is not None]
    try:
        found = [path for folder in folders if (path := safe_join(folder, file.value, error=ConfigError)).is_file()]
    except ConfigError as reason:
        raise ConfigError(f"{file.source}: {reason}") from None
    if not found:
        known = [path.name for path in (SHIPPED / "affordances").glob("*.yaml")]
        raise ConfigError(
            f"{file.source}: there is no affordance file {file.value!r} beside the config or shipped{_nearest(file.value, known)}"
        )
    specs = read_tree(found[0])
    if not isinstance(specs.value, dict) or set(specs.value) != {"affordances"}:
        raise ConfigError(f"{found[0]}: an affordance file holds one key, `affordances`, with a list")
    core, own = specs.value["affordances"], section.value.get("add", Node([], section.source))
    both = Node([*core.value, *own.value], core.source) if isinstance(core.value, list) and isinstance(own.value, list) else core
    filled = Node({**section.value, "specs": both}, section.source)
    return Node({**tree.value, "affordances": filled}, tree.source)


def _read_chain(path: Path, chain: tuple[Path, ...] = (), read: list[Path] | None = None) -> Node:
    """A file merged over what it extends; `read` are the files read so far, in all chains."""
    read = [] if read is None else read
    read.append(path)
    if len(read) > MAX_FILES:
        raise ConfigError(f"{path} is one of more than {MAX_FILES} files that extend each other; write some as one")
    here = real_path(path)
    if here in chain:
        way = " → ".join(str(step) for step in (*chain[chain.index(here) :], here))
        raise ConfigError(f"{path} extends itself: {way}; remove one `extends`")
    if len(chain) >= MAX_CHAIN:
        raise ConfigError(
            f"{path} is the end of a chain of more than {MAX_CHAIN} files that extend each other; write some as one"
        )
    tree = read_tree(path)
    extends = _sections(tree, name_from(path.stem))
    scenario = tree.value.get("scenario")
    if extends is None:
        if scenario is not None and isinstance(scenario.value, dict):
            scenario.value.setdefault("name", Node(name_from(path.stem), scenario.source))
        return tree
    below = [_read_chain(_extended(path, part), (*chain, here), read) for part in _parts(extends)]
    return reduce(merge, [*below, tree])


def _sections(tree: Node, name: str) -> Node | None:
    """Take `extends` out of a tree, which has sections, and a name of its own or this one."""
    if not isinstance(tree.value, dict):
        raise ConfigError(f"{tree.source}: expected sections such as `scenario:` at the top, found {_kind(tree.value)}")
    tree.value.setdefault("config_id", Node(name, tree.source))
    extends: Node | None = tree.value.pop("extends", None)
    return extends


def _parts(extends: Node) -> list[Node]:
    """The files that `extends` names, one or a list; each is merged over the one before."""
    parts = extends.value if isinstance(extends.value, list) else [extends]
    for part in parts:
        if not isinstance(part.value, str):
            raise ConfigError(f"{part.source}: `extends` names a file or a list of files, found {_kind(part.value)}")
    if not 1 <= len(parts) <= MAX_CHAIN:
        raise ConfigError(f"{extends.source}: `extends` names {len(parts)} files, expected 1 to {MAX_CHAIN}")
    return parts


def _extended(path: Path, extends: Node) -> Path:
    try:
        beside = safe_join(path.parent, extends.value, error=ConfigError)
        return beside if beside.is_file() else find_config(extends.value)
    except ConfigError as missing:
        raise ConfigError(f"{extends.source}: {missing}") from None


def _kind(value: object) -> str:
    return {dict: "a mapping", list: "a list", type(None): "nothing"}.get(type(value), f"the value {value!r:.60}")


# --- YAML 1.2 ------------------------------------------------------------------------------------------------------------


def read_tree(path: Path, *, limit: int = MAX_BYTES) -> Node:
    """The values of a YAML 1.2 file, each with its line."""
    data = read_bytes(path, limit=limit, error=ConfigError)
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as reason:
        raise ConfigError(
            f"{path} is not a text file in UTF-8 (byte {reason.start} is {data[reason.start]:#04x}); expected YAML"
        ) from None
    node = parse_yaml(text, str(path), path.parent)
    if node.value is None:
        raise ConfigError(f"{path} is empty; expected YAML such as `extends: town_day`")
    return node


_INDENT = "keys of one section begin in the same column"
_COLON = "after the colon of a key comes a space; a text with a colon needs quotes"
_YAML_HINTS = {  # what the reader of YAML says, and what it is mostly about
    "did not find expected key": f"{_INDENT}, here or in the line above",
    "did not find expected <document start>": _INDENT,
    "did not find expected '-' indicator": "every entry of a list begins with a - in the same column",
    "mapping values are not allowed in this context": f"{_COLON}, and {_INDENT}; look at the line above, too",
    "could not find expected ':'": f"{_COLON}; look at the line above, too",
    "did not find expected ',' or '}'": "entries between { and } have a comma between them; look at the line above, too",
    "did not find expected ',' or ']'": "entries between [ and ] have a comma between them; look at the line above, too",
    "found unexpected end of stream": "a quote is opened and never closed",
    "found character that cannot start any token": "put the text into quotes",
}


def parse_yaml(text: str, name: str, folder: Path | None = None, *, numbered: bool = True) -> Node:
    """One YAML 1.2 document as a tree. No recursion, no objects, no repeated keys."""
    try:
        return _compose(text, name, folder, numbered)
    except yaml.MarkedYAMLError as reason:
        mark = reason.problem_mark or reason.context_mark
        where = f"{name}:{mark.line + 1}" if mark is not None and numbered else name
        line = text.splitlines()[mark.line] if mark is not None and mark.line < len(text.splitlines()) else ""
        tab = "\t" in line[: len(line) - len(line.lstrip())]
        problem = "a tab at the beginning of a line; indent with spaces" if tab else reason.problem or reason.context
        hint = "; " + _YAML_HINTS[problem] if problem in _YAML_HINTS else ""
        raise ConfigError(f"{where}: this is not valid YAML: {problem}{hint}") from None
    except yaml.reader.ReaderError as reason:
        raise ConfigError(f"{name}: this is not valid YAML: {reason.reason} (at character {reason.position})") from None
    except UnicodeEncodeError as reason:  # an argument that is not UTF-8
        raise ConfigError(f"{name!r}: this is not a text in UTF-8 (at character {reason.start})") from None


def _compose(text: str, name: str, folder: Path | None, numbered: bool) -> Node:
    anchors: dict[str, Node] = {}
    root: Node | None = None
    stack: list[tuple[Node, str | None, list[object]]] = []  # container, its anchor, [key waiting for its value] or []
    count = 0
    events: Iterable[Any] = yaml.parse(text, Loader=_PARSER)  # its stubs have lines that may be missing
    for event in events:
        source = SourceLine(name, event.start_mark.line + 1 if numbered else 0, folder)
        if isinstance(event, yaml.DocumentStartEvent):
            if root is not None:
                raise ConfigError(f"{source}: a second YAML document begins here; a file holds one")
            continue
        if isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            node, anchor, _ = stack.pop()
            if anchor is not None:
                anchors[anchor] = node
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in anchors:
                raise ConfigError(f"{source}: *{event.anchor} is used inside or before the value it refers to")
            node = anchors[event.anchor]
        elif isinstance(event, yaml.ScalarEvent):
            node = Node(_scalar(event, source), source)
            if event.anchor is not None:
                anchors[event.anchor] = node
                if len(anchors) > MAX_ANCHORS:
                    raise ConfigError(f"{source}: more than {MAX_ANCHORS} anchors")
        elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            if event.tag is not None and event.tag not in _TAGS:
                raise ConfigError(f"{source}: the tag {event.tag!r} is not allowed; write plain values")
            count += 1
            if len(stack) >= MAX_DEPTH:
                raise ConfigError(f"{source}: more than {MAX_DEPTH} levels deep")
            stack.append((Node([] if isinstance(event, yaml.SequenceStartEvent) else {}, source), event.anchor, []))
            continue
        else:
            continue
        count += 1
        if count > MAX_NODES:
            raise ConfigError(f"{source}: more than {MAX_NODES} values")
        if not stack:
            root = node
            continue
        container, _, waiting = stack[-1]
        if isinstance(container.value, list):
            container.value.append(node)
        elif waiting:
            container.value[waiting.pop()] = node
        else:
            waiting.append(_key(event, container, source))
    return root if root is not None else Node(None, SourceLine(name, int(numbered), folder))


def _key(event: object, container: Node, source: SourceLine) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        raise ConfigError(f"{source}: a key must be a plain word")
    if event.value in container.value:
        first = container.value[event.value].source.line
        raise ConfigError(f"{source}: the key {event.value!r} appears twice (first in line {first}); remove one")
    return str(event.value)


def _scalar(event: yaml.ScalarEvent, source: SourceLine) -> object:
    """By the core rules of YAML 1.2: `12:30` and `no` are text, `3e-4` is a number, `010` is ten."""
    text: str = event.value
    if event.tag is not None and event.tag not in _TAGS:
        raise ConfigError(f"{source}: the tag {event.tag!r} is not allowed; write plain values")
    if not event.implicit[0]:
        return text  # quoted, or a block of text
    if text in _SPECIAL:
        return _SPECIAL[text]
    number: type[int] | type[float] | None = int if _INT.fullmatch(text) else float if _FLOAT.fullmatch(text) else None
    if number is not None or _OTHER_INT.fullmatch(text):
        if len(text) > 64:
            raise ConfigError(f"{source}: a number of {len(text)} digits; at most 64 are read")
        return number(text) if number is not None else int(text, 0)
    return text


# --- writing ---------------------------------------------------------------------------------------------------------------


class _Dumper(yaml.SafeDumper):
    """Quotes every text that YAML 1.2 (or 1.1) would read as something else."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    odd = _FLOAT.fullmatch(text) or _OTHER_INT.fullmatch(text) or text in _SPECIAL or not text.replace("\n", "").isprintable()
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if odd else "|" if "\n" in text else None)


_Dumper.add_representer(str, _represent_text)


def to_yaml(value: object) -> str:
    """Plain values as YAML that `read_yaml` reads back unchanged."""
    return str(yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120, default_flow_style=False))
