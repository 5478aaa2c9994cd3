"""``timely calibrate``: a step-time profile of the machine at hand, or of one whose kernels were profiled."""

import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from timely.cli.output import JsonFile, check_cli_output_file, cli_say, write_cli_json
from timely.cli.terminal import Verbose, quiet_cli_terminal
from timely.core.errors import InvalidInput, Unsupported
from timely.engines.step_time.fit import save_step_time_profile
from timely.engines.step_time.from_kernels import fit_step_kernels
from timely.engines.step_time.profile import KvCache, ProfileLimits, StepTimeProfile

MAX_LAYERS = 100_000

CONTEXT_SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}


def command(
    context: typer.Context,
    out: Annotated[
        Path,
        typer.Option(metavar="PROFILE.yaml", callback=check_cli_output_file, help="The profile to write."),
    ],
    name: Annotated[str | None, typer.Option(help="Its name; the file's unless given.")] = None,
    model: Annotated[
        str | None, typer.Option(metavar="DIR|NAME", help="Model to measure; the built-in one.")
    ] = None,
    from_kernels: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Fit kernel tables (dense, attention, per_sequence .csv) instead."
        ),
    ] = None,
    layers: Annotated[
        int | None, typer.Option(min=1, max=MAX_LAYERS, help="Layers of the model the tables are of.")
    ] = None,
    pointwise_share: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Share of the pointwise kernels that compilation leaves.")
    ] = 1.0,
    kv_blocks: Annotated[int, typer.Option(min=1, help="KV blocks of a profile from tables.")] = 2048,
    rounds: Annotated[int, typer.Option(min=1, help="How often each kind of step is measured, in turn.")] = 3,
    json_file: JsonFile = None,
    verbose: Verbose = False,
) -> None:
    """Measure step times here and write them as a profile for `timely replay --profile`.

    Arguments that it does not know go to vLLM.
    """
    profile_name = name or out.stem
    if from_kernels is not None:
        if context.args:
            raise InvalidInput(f"no such option: {context.args[0]}", where="calibrate")
        profile = _calibrate_cli_from_kernels(profile_name, from_kernels, layers, pointwise_share, kv_blocks)
    else:
        profile = _measure_cli_profile(profile_name, model, tuple(context.args), rounds, verbose=verbose)
    save_step_time_profile(out, profile)
    write_cli_json(json_file, profile.model_dump(mode="json"))
    say = cli_say(json_file)
    say(f"{out}: profile {profile.name}")
    for key, value in profile.fit_error.items():
        say(f"  {key:<16}{value:.2%}" if isinstance(value, float) else f"  {key:<16}{value}")


def _calibrate_cli_from_kernels(
    name: str, folder: Path, layers: int | None, pointwise_share: float, kv_blocks: int
) -> StepTimeProfile:
    if layers is None:
        raise InvalidInput(
            "is needed with --from-kernels: the tables hold one layer's times", where="--layers"
        )
    terms, errors = fit_step_kernels(folder, layers, pointwise_share)
    return StepTimeProfile(
        name=name,
        source=f"least squares over the kernel tables in {folder.name}, {layers} layers",
        fit_error=errors,
        step_s=terms,
        kv=KvCache(blocks=kv_blocks, block_tokens=16, swap_s_per_token=0.0),
        limits=ProfileLimits(max_batch=256, token_budget=2048),
    )


def _measure_cli_profile(
    name: str, model: str | None, arguments: tuple[str, ...], rounds: int, *, verbose: bool
) -> StepTimeProfile:
    if find_spec("vllm") is None:
        raise Unsupported(
            "measuring needs the live engine; install timely-serving[vllm], or give --from-kernels",
            where="calibrate",
        )
    from timely.engines.vllm.calibrate import calibrate_vllm_profile

    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    with quiet_cli_terminal("calibrate", verbose=verbose) as terminal:
        return calibrate_vllm_profile(name, model, arguments, rounds, terminal.say, date=today)
