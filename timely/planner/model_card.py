"""The card of an adapter: its base model and skill sets, its training and its scores."""

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from timely.core.errors import InvalidInput
from timely.core.files import core_write_file
from timely.planner.training.weight_hashes import training_file_hash, training_weights_hash
from timely.plans.prompt import fixed_prompt_part
from timely.plans.skill_set import SkillSet

CARD = "card.json"
WEIGHTS = "adapter_model.safetensors"
SHIPPED_ADAPTER = Path(__file__).resolve().parent / "adapters" / "smollm2-135m"
"""The adapter that comes with Timely."""


class PlannerCard(BaseModel, extra="forbid", frozen=True):
    """The card in the folder of an adapter.

    Attributes:
        base_model: name of the base model.
        base_sha256: hash of its weights (``training_weights_hash``).
        adapter_sha256: hash of the adapter's weight file.
        skill_sets: names, each with the SHA-256 of the prompt's fixed part in training.
        loss: loss at the end of training, nats per plan token.
        scores: scores of ``timely planner eval`` by skill set.
        names: the planner's own object names by skill set. Any other name must be in the scene, task or history
            (``timely.plans.object_names``). None allows any name.
    """

    timely_planner: int = 1
    base_model: str
    base_sha256: str
    adapter_sha256: str
    skill_sets: dict[str, str]
    seed: int
    steps: int
    examples_seen: int
    loss: float
    names: dict[str, list[str]] | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    scores: dict[str, Any] = Field(default_factory=dict)


def write_planner_card(folder: Path, card: PlannerCard) -> None:
    """Write it beside the adapter."""
    core_write_file(folder / CARD, json.dumps(card.model_dump(), indent=1, sort_keys=True) + "\n")


def read_planner_card(folder: Path, *, weights: bool = True) -> PlannerCard:
    """The card of the adapter in that folder.

    Args:
        weights: also compare the weight file with the card.

    Raises:
        InvalidInput: no adapter there, or it is not what its card says; says which file.
    """
    if not (folder / CARD).is_file():
        raise InvalidInput(f"holds no planner: no {CARD} in it", where=str(folder))
    try:
        card = PlannerCard.model_validate_json((folder / CARD).read_text())
    except (OSError, ValueError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise InvalidInput(f"is no card of a planner: {first}", where=str(folder / CARD)) from error
    if weights:
        file = folder / WEIGHTS
        if not file.is_file():
            raise InvalidInput("is missing", where=str(file))
        if training_file_hash(file) != card.adapter_sha256:
            raise InvalidInput("is corrupted: its contents are not those its card names", where=str(file))
    return card


def check_planner_base(card: PlannerCard, base: Path, where: Path) -> None:
    """Refuse an adapter that was trained on another model.

    Raises:
        InvalidInput: it was, or the model's weights cannot be read.
    """
    if training_weights_hash(base) != card.base_sha256:
        raise InvalidInput(
            f"was made for another base model ({card.base_model}), not for {base}", where=str(where)
        )


def planner_prompt_hash(skills: SkillSet) -> str:
    """SHA-256 of the fixed part of the prompt for a trained model."""
    return hashlib.sha256(fixed_prompt_part(skills, examples=False).encode()).hexdigest()
