"""Fitting: known models are found again, errors are honest, too little data is refused, profiles read back."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples import examples
from lrtrace.errors import BadInput, TooFewSamples, UnknownName
from lrtrace.fit import fitted_profile
from lrtrace.fit.execution_time import ExecutionTimeFit, check_fit, fit_samples
from lrtrace.fit.fitted_profile import plot_fit_residuals, robot_profile_from_fit, write_fitted_profile
from lrtrace.fit.regression import fit_execution_least_squares, fit_execution_quantile, pinball_fit_loss
from lrtrace.models import ConstantModel, LinearModel, SampledModel
from lrtrace.profiles import PATH_VARIABLE, find_robot_profile, load_robot_profile
from lrtrace.record.samples import RecordedSample, read_recorded_samples, write_recorded_samples

CM = {"distance": "cm"}


def moves(
    count: int, noise: float = 0.05, seed: int = 0, skill: str = "move_forward"
) -> list[RecordedSample]:
    """Runs of 1.8 s + 0.007 s/cm."""
    rng = np.random.default_rng(seed)
    distances = rng.integers(20, 501, count)
    times = 1.8 + 0.007 * distances + noise * rng.standard_normal(count)
    return [
        RecordedSample("drone", skill, {"distance": float(distance)}, float(time), CM)
        for distance, time in zip(distances, times, strict=True)
    ]


def runs(skill: str, times: list[float]) -> list[RecordedSample]:
    return [RecordedSample("drone", skill, {"object": "cat"}, time) for time in times]


def all_kinds() -> list[RecordedSample]:
    rng = np.random.default_rng(4)
    return [
        *moves(60),
        *runs("takeoff", list(4.5 + 0.1 * rng.random(20))),
        *runs("scan", list(1.5 + 2.2 * rng.random(40))),
    ]


def test_a_variable_skill_errs_where_its_minimum_is_too_long() -> None:
    """Schedulers plan with the minimum, and a robot that is busy for longer is no surprise."""
    times_s = [1.0, 4.0, 9.0, 5.0, 6.0, 7.0, 8.0, 4.5, 5.5, 10.0]
    fit = fit_samples(runs("scan", times_s), min_samples=10)
    assert fit.skills["scan"].model.variable
    assert check_fit(fit, runs("scan", [1.0, 8.0]))["scan"] == 0.0
    assert check_fit(fit, runs("scan", [0.5]))["scan"] == 1.0
    # Without the first run the minimum is 4 s: 3 s too late for a run of 1 s, and the others are longer.
    assert fit.skills["scan"].too_early == pytest.approx(3.0 / len(times_s))


def test_each_skill_gets_its_model() -> None:
    fit = fit_samples(all_kinds())
    line = fit.skills["move_forward"].model
    assert isinstance(line, LinearModel)
    assert (line.argument, line.unit, line.samples, line.variable) == ("distance", "cm", 60, False)
    assert line.intercept_s == pytest.approx(1.8, abs=0.05)
    assert line.per_unit_s == pytest.approx(0.007, abs=0.0002)
    constant = fit.skills["takeoff"].model
    assert isinstance(constant, ConstantModel)
    assert constant.seconds == pytest.approx(4.55, abs=0.03)
    sampled = fit.skills["scan"].model
    assert isinstance(sampled, SampledModel)
    assert sampled.variable
    times = [sample.elapsed_s for sample in all_kinds() if sample.skill == "scan"]
    assert sampled.estimate_s({}) == pytest.approx(min(times), abs=1e-6)
    assert sampled.mean_s({}) == pytest.approx(np.mean(times), abs=0.05)
    assert fit.run_count == 120


@pytest.mark.parametrize("count", [200, 1000])
def test_a_model_of_heavy_tails_keeps_the_mean_of_the_runs(count: int) -> None:
    """Eleven quantiles drew a line from the 90% quantile to the maximum: the mean was up to half too long."""
    times_s = np.random.default_rng(5).lognormal(0.0, 1.0, count)
    model = fit_samples(runs("search", times_s.tolist())).skills["search"].model
    assert isinstance(model, SampledModel)
    assert model.mean_s({}) == pytest.approx(times_s.mean(), rel=0.06)
    assert model.minimum_s({}) == pytest.approx(times_s.min(), abs=1e-6)


def test_a_signed_argument_is_fitted_by_its_magnitude() -> None:
    turns = [
        RecordedSample("rover", "turn", {"angle": angle}, 0.1 + 0.01 * abs(angle), {"angle": "deg"})
        for angle in (-180.0, -90.0, -30.0, 30.0, 90.0, 180.0)
    ]
    fit = fit_samples(turns)
    model = fit.skills["turn"].model
    assert isinstance(model, LinearModel)
    assert model.measure == "magnitude"
    assert (model.intercept_s, model.per_unit_s) == pytest.approx((0.1, 0.01))
    assert np.abs(fit.skills["turn"].residuals_s).max() < 1e-6


def test_an_argument_that_tells_nothing_of_the_time_gets_no_line() -> None:
    """With a line a schedule would plan with the mean: late half of the time (TimelyLLM section 4.3)."""
    rng = np.random.default_rng(3)
    times = 2.0 + 8.0 * rng.random(30)
    searches = [
        RecordedSample("drone", "search", {"volume": float(number % 10)}, float(time))
        for number, time in enumerate(times)
    ]
    model = fit_samples(searches).skills["search"].model
    assert isinstance(model, SampledModel)
    assert model.estimate_s({"volume": 3.0}) == pytest.approx(float(times.min()), abs=1e-6)
    steady = [
        RecordedSample("drone", "beep", {"volume": float(n % 10)}, 1.0 + 0.01 * rng.random())
        for n in range(30)
    ]
    assert isinstance(fit_samples(steady).skills["beep"].model, ConstantModel)
    assert isinstance(fit_samples(searches, kinds={"search": "linear"}).skills["search"].model, LinearModel)
    assert isinstance(fit_samples(moves(30, noise=0.4)).skills["move_forward"].model, LinearModel)


def test_a_run_too_short_to_be_measured_does_not_make_the_error_endless() -> None:
    logs = runs("log", [0.0, *(0.001 for _ in range(9))])
    fit = fit_samples(logs, kinds={"log": "constant"})
    assert fit.skills["log"].held_out < 0.5
    assert check_fit(fit, runs("log", [0.0]))["log"] < 1.0


def test_one_run_cannot_be_held_out() -> None:
    with pytest.raises(TooFewSamples, match="takeoff: 1 samples, a fit needs at least 2"):
        fit_samples(runs("takeoff", [4.5]), min_samples=1)
    assert fit_samples(runs("takeoff", [4.5, 4.6]), min_samples=1).run_count == 2


def test_arguments_of_any_run_are_in_the_profile() -> None:
    calls = [RecordedSample("drone", "say", {}, 1.0)]
    calls += [RecordedSample("drone", "say", {"text": "hi"}, 1.0) for _ in range(5)]
    assert set(fit_samples(calls).skills["say"].args) == {"text"}


def test_held_out_error_is_that_of_unseen_runs() -> None:
    fit = fit_samples(moves(200, noise=0.1))
    unseen = moves(400, noise=0.1, seed=9)
    model = fit.skills["move_forward"].model
    errors = [abs(model.mean_s(sample.args) / sample.elapsed_s - 1) for sample in unseen]
    assert fit.skills["move_forward"].held_out == pytest.approx(np.mean(errors), rel=0.15)
    report = fit.skills["move_forward"].summary()
    assert report["residual_std_s"] == pytest.approx(0.1, rel=0.2)
    assert report["r_squared"] > 0.95
    assert abs(report["residual_mean_s"]) < 0.01


def test_residual_quantiles_let_simulated_robots_vary_as_the_real_one() -> None:
    model = fit_samples(moves(400, noise=0.2)).skills["move_forward"].model
    rng = np.random.default_rng(2)
    drawn = np.array([model.sample_s({"distance": 100.0}, rng) for _ in range(4000)])
    assert drawn.mean() == pytest.approx(2.5, abs=0.05)
    assert drawn.std() == pytest.approx(0.2, rel=0.25)


def test_quantile_method_shrugs_off_outliers() -> None:
    samples = moves(100, noise=0.02)
    for index in range(0, 100, 10):  # the drone was held back ten times
        broken = samples[index]
        samples[index] = RecordedSample("drone", broken.skill, broken.args, broken.elapsed_s + 20.0, CM)
    robust = fit_samples(samples, method="quantile").skills["move_forward"].model
    plain = fit_samples(samples).skills["move_forward"].model
    assert isinstance(robust, LinearModel)
    assert isinstance(plain, LinearModel)
    assert robust.intercept_s == pytest.approx(1.8, abs=0.05)
    assert robust.per_unit_s == pytest.approx(0.007, abs=0.0003)
    assert plain.intercept_s > 2.5


points = st.lists(
    st.tuples(st.integers(0, 20), st.floats(-10, 10).map(lambda value: round(value, 2))),
    min_size=3,
    max_size=9,
)


@settings(max_examples=examples(60))
@given(points, st.sampled_from([0.1, 0.25, 0.5, 0.9]))
def test_quantile_lines_are_optimal(pairs: list[tuple[int, float]], level: float) -> None:
    """Against brute force: some best line goes through two of the points, or is level."""
    x, y = np.array([pair[0] for pair in pairs], dtype=float), np.array([pair[1] for pair in pairs])
    intercept, slope = fit_execution_quantile(x, y, level)
    ours = pinball_fit_loss(y - intercept - slope * x, level)
    best = min(pinball_fit_loss(y - value, level) for value in y)
    for i in range(len(x)):
        for j in range(len(x)):
            if x[i] < x[j]:
                through = (y[j] - y[i]) / (x[j] - x[i])
                best = min(best, pinball_fit_loss(y - y[i] - through * (x - x[i]), level))
    assert ours <= best + 1e-6 * (1 + abs(best))


@given(points)
def test_least_squares_agrees_with_numpy(pairs: list[tuple[int, float]]) -> None:
    x, y = np.array([pair[0] for pair in pairs], dtype=float), np.array([pair[1] for pair in pairs])
    if x.min() == x.max():
        assert fit_execution_least_squares(x, y) == pytest.approx((y.mean(), 0.0))
        return
    slope, intercept = np.polyfit(x, y, 1)
    assert fit_execution_least_squares(x, y) == pytest.approx((intercept, slope), abs=1e-6)


def test_too_few_samples_are_refused_and_named(tmp_path: Path) -> None:
    path = tmp_path / "few.samples.jsonl"
    write_recorded_samples(path, [*moves(10), *runs("scan", [1.0, 2.0, 3.0])])
    with pytest.raises(TooFewSamples) as caught:
        fit_samples(read_recorded_samples(path))
    assert str(caught.value) == f"{path}:13: scan: 3 samples, a fit needs at least 5"
    with pytest.raises(TooFewSamples, match="needs at least 100"):
        fit_samples(moves(50), method="quantile", level=0.99)
    with pytest.raises(TooFewSamples, match="no run"):
        fit_samples([])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"method": "magic"}, "unknown method 'magic'"),
        ({"level": 1.0}, "level: must lie between"),
        ({"kinds": {"move_forward": "cubic"}}, "unknown model 'cubic'"),
        ({"kinds": {"fly": "linear"}}, "unknown skill 'fly'"),
        ({"variable": ["fly"]}, "unknown skill 'fly'"),
    ],
)
def test_bad_options(options: dict[str, object], reason: str) -> None:
    with pytest.raises((BadInput, UnknownName), match=reason):
        fit_samples(moves(10), **options)  # type: ignore[arg-type]


def test_a_line_needs_an_argument_that_varies() -> None:
    with pytest.raises(BadInput, match="takeoff: no numeric argument varies"):
        fit_samples(runs("takeoff", [1.0] * 6), kinds={"takeoff": "linear"})


def test_models_can_be_chosen() -> None:
    fit = fit_samples(moves(20), kinds={"move_forward": "sampled"})
    assert isinstance(fit.skills["move_forward"].model, SampledModel)
    constant = fit_samples(
        runs("scan", [1.0, 2.0, 3.0, 4.0, 5.0]), kinds={"scan": "constant"}, variable=["scan"]
    )
    assert constant.skills["scan"].model.estimate_s({}) == 1.0


def test_one_robot_and_one_unit_at_a_time() -> None:
    centimetres = RecordedSample("r", "go", {"d": 20.0}, 1.0, {"d": "cm"}, "runs:1")
    metres = RecordedSample("r", "go", {"d": 0.2}, 1.0, {"d": "m"}, "runs:2")
    with pytest.raises(BadInput, match=r"^runs:2: units\.d: is 'm', above it was 'cm'"):
        fit_samples([centimetres, metres] * 5)
    with pytest.raises(BadInput, match="fit one robot at a time"):
        fit_samples([*moves(5), RecordedSample("arm", "pick", {}, 1.0)])


def test_runs_in_other_units_than_the_profile_or_the_fit_are_refused() -> None:
    """A check of a fit in cm on runs in m said 40% error; a fit over a profile in cm named a temporary file."""
    in_metres = [
        RecordedSample(
            run.robot,
            run.skill,
            {"distance": float(run.args["distance"]) / 100},
            run.elapsed_s,
            {"distance": "m"},
            f"runs:{n}",
        )
        for n, run in enumerate(moves(20), 1)
    ]
    with pytest.raises(BadInput, match=r"^runs:1: units\.distance: is 'm', in profile tello it is 'cm'"):
        fit_samples(in_metres, base=find_robot_profile("tello"))
    with pytest.raises(BadInput, match=r"^runs:1: units\.distance: is 'm', fitted was 'cm'"):
        check_fit(fit_samples(moves(20)), in_metres)
    unknown = [RecordedSample(run.robot, run.skill, run.args, run.elapsed_s) for run in moves(20, seed=1)]
    assert check_fit(fit_samples(moves(20)), unknown)["move_forward"] < 0.1


def test_profile_over_a_base_keeps_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tello = find_robot_profile("tello")
    fit = fit_samples(moves(30, skill="mf"), base=tello)
    assert list(fit.skills) == ["move_forward"]
    raw = robot_profile_from_fit(fit, "my-drone", date="2025-01-31", on="bench", base=tello)
    mine = write_fitted_profile(tmp_path / "my-drone.yaml", raw)
    assert mine.skills["move_forward"].basis == "fitted"
    assert mine.skills["move_forward"].execution == fit.skills["move_forward"].model
    assert mine.limits("mf") == tello.limits("mf")
    assert mine.skills["scan"] == tello.skills["scan"]
    assert (mine.measured.date, mine.measured.samples, mine.measured.setup) == ("2025-01-31", 30, "bench")
    assert mine.network_s == tello.network_s
    assert [file.name for file in tmp_path.iterdir()] == ["my-drone.yaml"]
    monkeypatch.setenv(PATH_VARIABLE, str(tmp_path))
    assert find_robot_profile("my-drone") == mine


def test_profile_over_a_base_that_is_only_a_file(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    base_path = tmp_path / "far" / "base.yaml"
    base = write_fitted_profile(
        base_path, robot_profile_from_fit(fit_samples(all_kinds()), "base", date="2025-01-31")
    )
    fit = fit_samples(moves(10, seed=3), base=base)
    mine = write_fitted_profile(
        tmp_path / "mine.yaml", robot_profile_from_fit(fit, "mine", date="2025-02-01", base=base)
    )
    assert "extends" not in (tmp_path / "mine.yaml").read_text()
    assert mine.skills["scan"] == base.skills["scan"]
    assert mine.skills["move_forward"].execution.samples == 10


def test_profile_without_a_base_allows_what_was_tried(tmp_path: Path) -> None:
    samples = moves(30)
    profile = write_fitted_profile(
        tmp_path / "new.yaml",
        robot_profile_from_fit(fit_samples(samples), "new", date="2025-01-31", network_s=0.02),
    )
    limit = profile.limits("move_forward")["distance"]
    tried = [float(sample.args["distance"]) for sample in samples]
    assert (limit.min, limit.max, limit.unit) == (min(tried), max(tried), "cm")
    assert profile.violations("move_forward", [max(tried) + 1])
    assert profile.network_s == 0.02
    assert load_robot_profile(tmp_path / "new.yaml") == profile


def test_a_time_that_falls_with_its_argument_gives_a_profile(tmp_path: Path) -> None:
    """The line through the times of a speed is below zero at its greatest value, where the floor holds."""
    speeds = np.arange(10.0, 101.0)
    samples = [
        RecordedSample("cart", "drive", {"speed": float(speed)}, float(100.0 / speed), {"speed": "cm/s"})
        for speed in speeds
    ]
    fit = fit_samples(samples)
    profile = write_fitted_profile(
        tmp_path / "cart.yaml", robot_profile_from_fit(fit, "cart", date="2026-11-27")
    )
    line = profile.skills["drive"].execution
    assert isinstance(line, LinearModel)
    assert line.line_s({"speed": 100.0}) < 0.0 <= line.mean_s({"speed": 100.0})


def test_a_profile_that_does_not_read_back_replaces_nothing(tmp_path: Path) -> None:
    path = tmp_path / "good.yaml"
    write_fitted_profile(path, robot_profile_from_fit(fit_samples(moves(10)), "good", date="2025-01-31"))
    before = path.read_text()
    with pytest.raises(BadInput, match="network_s"):
        write_fitted_profile(
            path, robot_profile_from_fit(fit_samples(moves(10)), "good", date="2025-01-31", network_s=-1.0)
        )
    assert path.read_text() == before
    assert [file.name for file in tmp_path.iterdir()] == ["good.yaml"]
    with pytest.raises(BadInput, match="cannot write it"):
        write_fitted_profile(tmp_path / "none" / "x.yaml", {})


@pytest.mark.process
def test_the_titles_of_residual_plots_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    axes_class = pytest.importorskip("matplotlib.axes").Axes
    figures: list[Any] = []
    monkeypatch.setattr(fitted_profile, "save_lrtrace_figure", lambda figure, path: figures.append(figure))
    samples = [run for index in range(5) for run in runs(f"distance_of_object_{index}", [1.0, 2.5, 4.0] * 40)]
    plot_fit_residuals(fit_samples(samples), tmp_path / "fit.png")
    (figure,) = figures
    figure.draw_without_rendering()
    titles = [axes.title.get_window_extent() for axes in figure.findobj(axes_class) if axes.get_title()]
    assert len(titles) == 5
    assert all(figure.bbox.x0 <= title.x0 and title.x1 <= figure.bbox.x1 for title in titles)
    rows = [titles[:4], titles[4:]]
    assert all(left.x1 < right.x0 for row in rows for left, right in itertools.pairwise(row))


@pytest.mark.process
def test_the_line_over_a_signed_argument_turns_at_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    axes_class = pytest.importorskip("matplotlib.axes").Axes
    figures: list[Any] = []
    monkeypatch.setattr(fitted_profile, "save_lrtrace_figure", lambda figure, path: figures.append(figure))
    samples = [
        RecordedSample("rover", "turn", {"angle": angle}, 1.0 + 0.01 * abs(angle), {"angle": "deg"})
        for angle in [-90.0, 10.0, 180.0] * 5
    ]
    plot_fit_residuals(fit_samples(samples), tmp_path / "fit.png")
    upper = figures[0].findobj(axes_class)[0]
    points = dict(zip(*upper.lines[1].get_data(), strict=True))
    assert list(points) == [-90.0, 0.0, 10.0, 180.0]
    assert points[0.0] == pytest.approx(1.0, abs=0.01)


@pytest.mark.process
@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_residual_plot(tmp_path: Path, suffix: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"fit.{suffix}"
    plot_fit_residuals(fit_samples(all_kinds()), path)
    assert path.stat().st_size > 5000
    with pytest.raises(BadInput, match=r"ends in \.png"):
        plot_fit_residuals(ExecutionTimeFit("drone", fit_samples(moves(10)).skills), tmp_path / "fit.txt")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_samples_survive_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.samples.jsonl"
    assert write_recorded_samples(path, all_kinds()) == 120
    again = list(read_recorded_samples(path))
    assert [(sample.skill, sample.args, sample.elapsed_s) for sample in again] == [
        (sample.skill, sample.args, sample.elapsed_s) for sample in all_kinds()
    ]
    with path.open("a") as file:
        file.write(
            json.dumps({"robot": "drone", "skill": "scan", "elapsed_s": 9, "outcome": "failed"}) + "\n"
        )
    assert len(list(read_recorded_samples(path))) == 120


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"robot": ""}, "robot: must be a name"),
        ({"skill": 3}, "skill: must be a name"),
        ({"elapsed_s": -1}, "elapsed_s: must be zero or more"),
        ({"elapsed_s": 2_500_000}, "elapsed_s: must be zero or more seconds, less than a day, got 2500000"),
        ({"elapsed_s": "fast"}, "elapsed_s: must be"),
        ({"elapsed_s": True}, "elapsed_s: must be"),
        ({"args": []}, "args: must be an object"),
        ({"args": {"distance": None}}, "args.distance: must be a number or text"),
        ({"units": {"distance": 1}}, "units: must be an object of texts"),
    ],
)
def test_broken_samples_are_named(tmp_path: Path, change: dict[str, object], reason: str) -> None:
    path = tmp_path / "x.samples.jsonl"
    good = {"robot": "drone", "skill": "mf", "args": {"distance": 100}, "elapsed_s": 2.5}
    path.write_text(json.dumps(good) + "\n" + json.dumps(good | change) + "\n")
    with pytest.raises(BadInput) as caught:
        list(read_recorded_samples(path))
    assert str(caught.value).startswith(f"{path}:2: {reason}")
