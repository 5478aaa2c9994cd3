"""``timely bench eta``: the error of predicted response times under overload, simulated or live."""

from timely.cli.bench.surge import SURGE_PROFILE, Hours, Live, Profile, Seed, measure_cli_live_surge
from timely.cli.bench.tables import format_cli_number, show_cli_bench_result
from timely.cli.output import JsonFile


def command(
    hours: Hours = 1.0, seed: Seed = 1, profile: Profile = None, live: Live = None, json_file: JsonFile = None
) -> None:
    """Error of predicted response times.

    Each task of the surge: the predicted response time beside the one that came about.
    A live server refuses late tasks, and those that it admits count.
    """
    if live is None:
        from timely.bench.surge import measure_eta

        result = measure_eta(hours, seed, profile or SURGE_PROFILE)
        parts = [("all served", result), ("late ones refused", result["refusing"])]
    else:
        result = measure_cli_live_surge(live, hours, seed, profile)["eta"]
        parts = [("late ones refused", result)]
    rows = [
        (title, kind, str(part["tasks"]), *map(format_cli_number, (part["error_p50"], part["error_p90"])))
        for title, row in parts
        for kind, part in (
            ("all", row),
            *((kind, row[kind]) for kind in ("urgent", "normal", "refused") if kind in row),
        )
        if part["tasks"]
    ]
    show_cli_bench_result(json_file, result, ("admission", "tasks", "number", "error p50", "error p90"), rows)
