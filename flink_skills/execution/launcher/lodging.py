"""The room of a supervisor between its commands, and the end of all that a command leaves there."""

from __future__ import annotations

import time

from flink_skills.execution.launcher.ending import Buried, end_children
from flink_skills.execution.launcher.protocol import Order
from flink_skills.execution.launcher.restrictions import Restrictions
from flink_skills.execution.launcher.rooms import Room, open_room, view_of
from flink_skills.execution.launcher.starter import Starter, in_common

__all__ = ["Lodging"]

_TREE_ENDS_WITHIN_SECONDS = 10.0


class Lodging:
    """The room of a supervisor, in which its commands run, or no room.

    ``is_in_order`` says whether all processes of commands have ended.
    """

    def __init__(self, worker: int, children_changed: int, restrictions: Restrictions) -> None:
        self._worker = worker
        self.restrictions = restrictions
        self.children_changed = children_changed
        self._room: Room | None = None
        self._ready: Starter | None = None
        self._last: Order | None = None
        self.is_in_order = True

    def move(self, order: Order, buried: Buried) -> Room | None:
        """Return the room for ``order``, opened if the present one does not do. Return None for none.

        Raises :class:`OSError` if it cannot be opened; then :meth:`leave`.
        """
        confinement = order.confinement
        view = (confinement.user, *view_of(confinement.namespaces)) if confinement.namespaces else ()
        if self._room is not None and (self._room.view != view or not self._room.is_as_before()):
            self.leave(buried)
        if self._room is None and view:
            program = self.restrictions.filters.get(confinement.filter, b"")
            operations, user = confinement.namespaces, confinement.user
            self._room = open_room(operations, view, user, self._worker, within=order.wall_time, program=program)
        return self._room

    def starter(self, order: Order, buried: Buried) -> Starter:
        """Return a process that can become the command of ``order``: the one that is ready, if it does.

        Raises :class:`OSError` if none can be started.
        """
        self._last = order
        ready, self._ready = self._ready, None
        if ready is not None:
            if ready.common == in_common(order.confinement) and ready.is_waiting():
                return ready
            ready.close()
            self._end(buried, self._spare())
        return self._new_starter(order, buried)

    def get_ready(self) -> None:
        """Start a process for a command like the last one, if that has changed nothing here."""
        last = self._last
        if last is None or self._ready is not None or (last.confinement.namespaces and self._room is None):
            return
        try:
            self._ready = self._new_starter(last, Buried())
        except OSError:
            self._ready = None  # the next command says why not

    def tidy(self, buried: Buried) -> None:
        """End all processes of the command, and the room if the command has changed it."""
        room = self._room
        self._end(buried, self._spare())
        if room is not None and (room.program in buried.statuses or not room.is_as_before()):
            self.leave(buried)

    def leave(self, buried: Buried) -> None:
        """End the room, if any, with all that is in it."""
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.close()
        if self._room is not None:
            self._room.close()
            self._room = None
        self._end(buried)

    def _new_starter(self, order: Order, buried: Buried) -> Starter:
        namespaces = self._room.namespaces if self._room is not None else {}
        return Starter(in_common(order.confinement), namespaces, self.restrictions, buried)

    def _spare(self) -> frozenset[int]:
        return frozenset((self._room.program,)) if self._room is not None else frozenset()

    def _end(self, buried: Buried, spare: frozenset[int] = frozenset()) -> None:
        deadline = time.monotonic() + _TREE_ENDS_WITHIN_SECONDS
        self.is_in_order = end_children(buried, self.children_changed, deadline, spare)
