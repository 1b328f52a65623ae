from pathlib import Path
from townlet.errors import DamagedFileError, TownletError


def safe_join(root: Path, name: str, *, error: type[TownletError] = DamagedFileError) -> Path:
    """The path of a name inside a folder; refuses absolute names, `..` and links that lead out."""
    if not name or "\0" in name or "\\" in name or Path(name).is_absolute() or ".." in Path(name).parts:
        raise error(f"{name!r} leads out of {root}; name a file inside it")
    path = root / name
    if not path.resolve().is_relative_to(root.resolve()):
        raise error(f"{name!r} leads out of {root} through a link; name a file inside it")
    return path
