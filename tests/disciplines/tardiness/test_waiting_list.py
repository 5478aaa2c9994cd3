"""Which of very many waiting jobs a step considers."""

import numpy as np
import pytest

from timely.core.hints import RequestHints
from timely.core.job import JobSpec, JobTable
from timely.disciplines.tardiness.waiting_list import ALL, FIRST, TardinessRankedJobs


@pytest.mark.parametrize("priorities", [False, True])
@pytest.mark.parametrize("values", [2, 40, 10**6], ids=["level", "ties", "apart"])
@pytest.mark.parametrize("count", [ALL + 6, 700])
def test_the_first_of_the_whole_order_are_considered(count: int, values: int, priorities: bool) -> None:
    rng, table = np.random.default_rng(count + values), JobTable()
    for number in range(count):
        hints = RequestHints(priority=float(rng.integers(3)) if priorities else 0.0)
        table.add(JobSpec(number, 0.0, hints, prompt_tokens=9, segmented=False, plain=True))
    table.resident[:5] = True
    index = rng.integers(values, size=count).astype(np.float64)
    waiting = np.arange(5, count)
    order = np.lexsort((table.sequence[waiting], -index[waiting], table.priority[waiting]))
    runnable = np.ones(count, dtype=np.bool_)
    rows = TardinessRankedJobs().rows(table, runnable, 0.0, lambda: index)
    assert rows is not None
    assert set(rows.tolist()) == set(range(5)) | set(waiting[order[:FIRST]].tolist())
