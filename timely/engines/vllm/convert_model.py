"""Turn a GGUF file into a folder that vLLM loads; run as a process of its own by ``model``.

A process of its own because it imports torch and transformers (10 s, 1 GB), which the server that forks
its engine afterwards must not have loaded.
"""

from __future__ import annotations

import sys
from pathlib import Path


def convert(gguf: Path, folder: Path) -> None:
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
    # safetensors makes its file private; a cache may be shared by the users of a machine.
    for path in folder.iterdir():
        path.chmod(0o644)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
