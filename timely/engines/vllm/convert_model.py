"""Turn a GGUF file into a folder that vLLM loads, or merge a planner into one; a process of its own, run by ``model``.

It imports torch and transformers (10 s, 1 GB). The server forks its engine afterwards and must not have them loaded.
"""

import shutil
import sys
from pathlib import Path


def _convert_vllm_gguf(gguf: Path, folder: Path) -> None:
    """Write weights (dequantized, bfloat16), configuration and tokenizer of ``gguf`` into ``folder``."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    from transformers.utils import logging

    logging.disable_progress_bar()
    source, name = str(gguf.parent), gguf.name
    model = AutoModelForCausalLM.from_pretrained(
        source, gguf_file=name, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16
    )
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(source, gguf_file=name).save_pretrained(folder)
    _make_vllm_folder_readable(folder)


def _merge_vllm_adapter(base: Path, adapter: Path, folder: Path) -> None:
    """Write the model of ``base`` with the adapter added to its weights into ``folder``."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from timely.planner.training import lora

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    lora.merge_lora_adapter(model, adapter)
    model.save_pretrained(folder)
    file_names = {path.name for path in folder.iterdir()}
    for path in base.iterdir():  # the tokenizer and what belongs to it
        tokenizer_file = path.suffix in (".json", ".jinja", ".txt", ".model")
        if (
            tokenizer_file
            and path.name != "timely-manifest.json"
            and path.is_file()
            and path.name not in file_names
        ):
            shutil.copyfile(path, folder / path.name)
    _make_vllm_folder_readable(folder)


def _make_vllm_folder_readable(folder: Path) -> None:
    # safetensors makes its file private; a cache may be shared by the users of a machine.
    for path in folder.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    task, *paths = sys.argv[1:]
    if task == "merge":
        _merge_vllm_adapter(*map(Path, paths))
    else:
        _convert_vllm_gguf(*map(Path, paths))
