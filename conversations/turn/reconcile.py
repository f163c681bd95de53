"""Make a run's stream agree with its rows while the run goes on; `services.closing` does it for one that has ended."""

from __future__ import annotations

from conversations.models import Run
from conversations.services.streamed import PAGE, Shown, anew, missing, stored_frames
from conversations.turn.database import run_db
from conversations.turn.emitter import Emitter
from souveraine.events.log import fence_off_async, has_gap_async, read_async


async def _shown(run: Run) -> Shown:
    shown, after = Shown(), 0
    while events := await read_async(run.pk, after, PAGE):
        shown.take(events)
        after = events[-1].seq
    return shown


async def reconcile_stream(run: Run, emitter: Emitter) -> None:
    """Bring the stream of a run that an earlier worker has begun up to its rows. Idempotent.

    Raises Fenced when yet another one has taken it over.
    """
    # What a stalled worker still holds must not come in after the stream was read.
    await fence_off_async(run.pk, run.fence)
    shown, stored = await _shown(run), await run_db(stored_frames, run)
    for frame in missing(run, shown, stored):
        await emitter.frame(frame)


async def fill_gap(run: Run, emitter: Emitter) -> None:
    """Before the end of the stream: stream everything anew when Redis has lost a part of it."""
    await emitter.writer.flush()
    if not await has_gap_async(run.pk):
        return
    shown, stored = await _shown(run), await run_db(stored_frames, run)
    for frame in anew(run, shown, stored):
        await emitter.frame(frame)
