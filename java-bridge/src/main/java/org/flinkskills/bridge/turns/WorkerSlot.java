package org.flinkskills.bridge.turns;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;

/** Turns and ready keys of one operator for one worker. Only the task's thread uses them. */
final class WorkerSlot {
  final int worker;

  /** The epoch in which the worker accepts turns of the operator, or 0 if it accepts none. */
  int epoch;

  /** No process has replaced the lost one yet. */
  boolean wasLost;

  /** Keys whose next turn can start. */
  final Deque<ActiveKey> ready = new ArrayDeque<>();

  /** Keys to erase. Neither a pause nor their events delay them. */
  final Deque<ActiveKey> forgets = new ArrayDeque<>();

  /** Turns that must be sent again after a crash. */
  final Deque<Turn> again = new ArrayDeque<>();

  /** Turns that must run alone after a crash, see {@code WorkerLane}. */
  final Deque<Turn> suspects = new ArrayDeque<>();

  /** The operator has requested the worker alone, or has it alone. */
  boolean exclusiveRequested;

  /** The number of suspects that run alone on the worker. */
  int quarantined;

  /** The worker accepts no turns: it is absent or quarantined. */
  private boolean unavailable;

  /** Keys became ready while the worker was unavailable, and more than one of them still waits. */
  private boolean behind;

  WorkerSlot(int worker) {
    this.worker = worker;
  }

  /** Record if the worker accepts turns, after turns of {@link #ready} keys were started. */
  void setAvailable(boolean available) {
    unavailable = !available;
    behind = unavailable ? !ready.isEmpty() : behind && ready.size() > 1;
  }

  /** Remove an ended turn from the suspects that run alone. */
  void leaveQuarantine(Turn turn) {
    if (turn.quarantined) {
      turn.quarantined = false;
      if (--quarantined == 0) {
        exclusiveRequested = false;
      }
    }
  }

  /**
   * Return the slot of a key. The hash is mixed, because Flink selects the subtask by a hash of the
   * same string.
   */
  static WorkerSlot of(WorkerSlot[] slots, String key) {
    int mixed = key.hashCode() * 0x9E3779B9;
    return slots[Math.floorMod(mixed ^ mixed >>> 15, slots.length)];
  }

  /** Return the number of ready keys of all slots that wait only for capacity. */
  static int waitingForCapacity(WorkerSlot[] slots) {
    int waiting = 0;
    for (WorkerSlot slot : slots) {
      waiting += slot.waitingForCapacity();
    }
    return waiting;
  }

  /** Return the number of ready keys that wait only for capacity. */
  int waitingForCapacity() {
    return unavailable || behind ? 0 : ready.size();
  }

  /** Return the started turns that the worker runs in that epoch, in their order. */
  List<Turn> turnsOf(int epoch, Collection<Turn> started) {
    return started.stream()
        .filter(turn -> turn.slot == this && turn.epoch == epoch)
        .sorted(Comparator.comparingLong(turn -> turn.id))
        .toList();
  }

  /** A started turn. */
  static final class Turn {
    final long id;
    final ActiveKey key;
    final WorkerSlot slot;

    /** The number of the event. The number of the turn is one more. */
    final long number;

    /** The epoch of the process that runs the turn, or 0 if the turn must be sent again. */
    int epoch;

    /** The timestamp of the event, or null. */
    Long timestamp;

    /** The number of crashes of the worker during the turn, since its last finished step. */
    int crashes;

    /** The turn runs alone, or only with other suspects. */
    boolean quarantined;

    /** The number of turns of the operator that ran during the last crash. */
    int lostTogether;

    /** Return true if the turn erases its key, and has no event. */
    boolean forgets() {
      return number == ActiveKey.FORGET;
    }

    Turn(long id, ActiveKey key, WorkerSlot slot) {
      this.id = id;
      this.key = key;
      this.slot = slot;
      this.number = key.next();
    }
  }
}
