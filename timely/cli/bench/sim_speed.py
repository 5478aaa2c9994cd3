"""``timely bench sim-speed``: the simulator's speed."""

from timely.cli.output import JsonFile, cli_say, write_cli_json


def command(json_file: JsonFile = None) -> None:
    """Speed of the simulator.

    WID 2 against real time, and a thousand robots for an hour.
    """
    from timely.bench.sim_speed import measure_sim_speed, sim_speed_bench_text

    result = measure_sim_speed()
    write_cli_json(json_file, result)
    cli_say(json_file)(sim_speed_bench_text(result))
