"""The cancellation of a plan at the server, repeated until the server has looked at it."""

import asyncio
import logging
from typing import Any

from timely.client.problems import was_client_request_read
from timely.core.errors import TimelyError, UnknownName

log = logging.getLogger(__name__)

RETRY_S = 1.0


async def cancel_bridge_plan(
    client: Any, task_id: str, token: str, tried: asyncio.Event | None = None
) -> None:
    """Return when the server has cancelled the plan, or refuses that for good.

    Repeated without limit while the server is away, has no time, or does not know the bridge's token.

    Args:
        tried: is set after the first attempt.
    """
    is_noted = False
    while True:
        try:
            await client.cancel(task_id, token=token or None, dropped=True)
            return
        except UnknownName:
            return
        except Exception as error:  # also of the client's library
            if isinstance(error, TimelyError) and was_client_request_read(error):
                log.warning("task %s could not be cancelled at the server: %s", task_id, error)
                return
            if not is_noted:  # It is tried again every second.
                log.warning(
                    "task %s: the server did not take its cancellation, which is repeated: %s", task_id, error
                )
            is_noted = True
        finally:
            if tried is not None:
                tried.set()
        await asyncio.sleep(RETRY_S)
