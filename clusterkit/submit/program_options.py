"""Finds, in a program's source, the option that takes a value such as the seed or the output folder.

The source is parsed and never run. Known are argparse, click, typer, absl, Hydra, fire, tyro and other
readers of dataclasses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

_LARGEST = 1 << 20
"""Bytes of a source file that is read."""
_MOST_FILES = 30
_READ_FUNCTIONS = {"typer", "fire", "tyro", "defopt", "jsonargparse"}
"""Packages that make options of a function's parameters."""
_READ_CLASSES = {"tyro", "simple_parsing", "transformers", "draccus", "pyrallis", "jsonargparse", "datargs"}
"""Packages that make options of a dataclass's fields."""
_FLAT = {"simple_parsing", "transformers", "datargs"}
"""Those that name the fields of a nested class without the fields above."""
_START = {"run", "Fire", "cli", "CLI", "auto_cli"}
"""Functions that are given the function whose parameters are options."""
_SEEDS = ("seed", "random_seed")
_FOLDERS = ("logdir", "log_dir", "out", "out_dir", "outdir", "output_dir", "save_dir", "results_dir")
"""Names of options that take the folder for a program's output."""


_Option = tuple[str, ast.expr | None]
"""An option and its default."""


@dataclass
class _ProgramSource:
    """What the files of a program say."""

    script: Path
    trees: list[ast.Module] = field(default_factory=list)
    packages: set[str] = field(default_factory=set)
    """Top-level names of what they import."""

    def nodes(self) -> Iterator[ast.AST]:
        """Yields all nodes of all files."""
        for tree in self.trees:
            yield from ast.walk(tree)


def option_words(project: Path, argv: Sequence[str], name: str, *, guess: bool = False) -> list[str]:
    """Returns the words that give a value to a program, with a placeholder, such as `--seed {seed}`.

    Args:
        project: the project's folder.
        argv: the program, started there.
        name: of the value; `seed` also finds an option for a random seed.
        guess: whether to return the usual words if the source shows no such option.

    Returns:
        One or two words; none if the source shows no such option.
    """
    place = f"{{{name}}}"
    usual = [f"--{name}", place] if guess else []
    source = _source(project, argv)
    if source is None:
        return usual
    names = _SEEDS if name == "seed" else (name,)
    keys = list(dict.fromkeys(re.sub("[.-]", "_", key) for key in names))
    if config := _hydra_config(source):
        text = _text(config)
        key = next((key for key in keys if re.search(rf"^{key}\s*:", text, re.MULTILINE)), None)
        key = key or next((key for key, _ in _fields(source, keys)), None)
        return [f"{key or name}={place}"] if key or guess else []
    option = next((option for option, _ in _options(source, keys)), None)
    return [option, place] if option else usual


def folder_option(project: Path, argv: Sequence[str]) -> str | None:
    """Returns the option by which a program is told where to write, such as `--logdir` or `hydra.run.dir`.

    An option whose default is no folder, such as `--out result.csv`, is none.

    Args:
        project: the project's folder.
        argv: the program, started there.
    """
    source = _source(project, argv)
    if source is None:
        return None
    if _hydra_config(source):
        return "hydra.run.dir"
    return next((option for option, default in _options(source, _FOLDERS) if _may_be_folder(default)), None)


def _source(project: Path, argv: Sequence[str]) -> _ProgramSource | None:
    """Returns what the files of a program say; None if it starts with no file of the project."""
    script = _script(project, argv)
    if script is None:
        return None
    source = _ProgramSource(script)
    _read(project, script, source)
    return source


def _options(source: _ProgramSource, keys: Sequence[str]) -> Iterator[_Option]:
    """Yields the options of these names."""
    yield from _declared(source, keys)
    yield from _parameters(source, keys)
    if source.packages & _READ_CLASSES or _over_fields(source):
        yield from ((f"--{key}", default) for key, default in _fields(source, keys))


def _may_be_folder(default: ast.expr | None) -> bool:
    value = default.value if isinstance(default, ast.Constant) else None
    return value is None or (isinstance(value, str) and not PurePath(value).suffix)


def _script(project: Path, argv: Sequence[str]) -> Path | None:
    """Returns the Python file that a program starts with, if it is in the project."""
    for place, word in enumerate(argv):
        if word == "-m":
            path = "/".join(argv[place + 1 : place + 2]).replace(".", "/")
            names = [f"{root}{path}{end}" for root in ("", "src/") for end in (".py", "/__main__.py")]
        elif word.endswith(".py"):
            names = [word]
        else:
            continue
        if script := next((project / name for name in names if (project / name).is_file()), None):
            return script
    return None


def _read(project: Path, script: Path, source: _ProgramSource) -> None:
    """Reads a script, and the project's modules that it imports directly."""
    queue = [script]
    for file in queue:
        try:
            tree = ast.parse(_text(file))
        except (SyntaxError, ValueError, RecursionError):
            continue
        source.trees.append(tree)
        for module in _imported(tree):
            source.packages.add(module.partition(".")[0])
            if file is script and len(queue) < _MOST_FILES:
                path = module.replace(".", "/")
                roots = (script.parent, project, project / "src")
                files = (root / f"{path}.py" for root in roots)
                queue += [found for found in files if found not in queue and found.is_file()][:1]


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module:
                yield node.module
            yield from (".".join(filter(None, (node.module, alias.name))) for alias in node.names)


def _text(file: Path) -> str:
    try:
        with file.open(encoding="utf-8", errors="replace") as opened:
            return opened.read(_LARGEST)
    except OSError:
        return ""


def _declared(source: _ProgramSource, keys: Sequence[str]) -> Iterator[_Option]:
    """Yields options that a call declares: `add_argument("--seed")`, `DEFINE_integer("seed", 1)`."""
    options = {f"--{form}" for key in keys for form in (key, key.replace("_", "-"))}
    for node in source.nodes():
        if not isinstance(node, ast.Call):
            continue
        texts = [
            arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
        given = {word.arg: word.value for word in node.keywords}
        if ast.unparse(given.get("action", node)).startswith("'store_"):
            continue  # a flag, which takes no value
        if _name(node.func).startswith("DEFINE_") and texts and texts[0] in keys:
            yield f"--{texts[0]}", given.get("default", node.args[1] if node.args[1:] else None)
        yield from ((text, given.get("default")) for text in texts if text in options)


def _parameters(source: _ProgramSource, keys: Sequence[str]) -> Iterator[_Option]:
    """Yields options that are parameters of the function that typer, fire or tyro starts."""
    if not source.packages & _READ_FUNCTIONS:
        return
    started = {
        _name(arg)
        for node in source.nodes()
        if isinstance(node, ast.Call) and _name(node.func) in _START
        for arg in node.args
    }
    for node in source.nodes():
        if not isinstance(node, ast.FunctionDef):
            continue
        commands = {_name(one.func) for one in node.decorator_list if isinstance(one, ast.Call)}
        if node.name not in started and not commands & {"command", "callback"}:
            continue
        for name, default in _optional(node.args):
            if name in keys:
                option = name.replace("_", "-") if "typer" in source.packages else name
                yield f"--{option}", default


def _optional(arguments: ast.arguments) -> Iterator[_Option]:
    """Yields the names of parameters with a default value, and that value; those without are no options."""
    places = [*arguments.posonlyargs, *arguments.args]
    with_default = [
        *(zip(places[::-1], arguments.defaults[::-1], strict=False)),
        *(
            (one, value)
            for one, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
            if value
        ),
    ]
    for parameter, value in with_default:
        kinds = {_name(node.func) for node in ast.walk(parameter) if isinstance(node, ast.Call)}
        if "Argument" not in kinds | {_name(value.func) if isinstance(value, ast.Call) else ""}:
            yield parameter.arg, value


def _fields(source: _ProgramSource, keys: Sequence[str]) -> Iterator[_Option]:
    """Yields a dataclass's fields of these names, below the fields of the classes that hold it."""
    classes = {
        node.name: node for node in source.nodes() if isinstance(node, ast.ClassDef) and _is_data(node)
    }
    annotated = [
        (owner, line.target.id, {_name(node) for node in ast.walk(line.annotation)}, line.value)
        for owner, node in classes.items()
        for line in node.body
        if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
    ]
    for owner, name, _, default in annotated:
        if name in keys:
            path, above = [name], owner
            while not source.packages & _FLAT and len(path) <= len(classes):
                holder = next(((up, at) for up, at, kinds, _ in annotated if above in kinds), None)
                if holder is None:
                    break
                above = holder[0]
                path.insert(0, holder[1])
            yield ".".join(path), default


def _is_data(node: ast.ClassDef) -> bool:
    decorators = {_name(one.func if isinstance(one, ast.Call) else one) for one in node.decorator_list}
    bases = {_name(base) for base in node.bases}
    return bool(decorators & {"dataclass", "define", "frozen"} or bases & {"BaseModel", "TrainingArguments"})


def _over_fields(source: _ProgramSource) -> bool:
    """Returns whether argparse gets its options from a loop over a dataclass's fields."""
    calls = {_name(node.func) for node in source.nodes() if isinstance(node, ast.Call)}
    return {"add_argument", "fields"} <= calls


def _hydra_config(source: _ProgramSource) -> Path | None:
    """Returns the primary config of a Hydra application, existing or not; None for any other program."""
    for node in source.nodes():
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("hydra.main", "hydra_main"):
            given = {word.arg: word.value for word in node.keywords}
            given |= dict(zip(("config_path", "config_name"), node.args, strict=False))
            texts = {
                key: str(value.value)
                for key, value in given.items()
                if isinstance(value, ast.Constant) and value.value is not None
            }
            name = texts.get("config_name", "config").removesuffix(".yaml")
            return source.script.parent / texts.get("config_path", ".") / f"{name}.yaml"
    return None


def _name(node: ast.AST) -> str:
    """Returns the last name of `a.b.c`; "" for anything else."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
