package org.flinkskills.bridge;

import java.util.ArrayDeque;
import java.util.Collection;
import java.util.Comparator;
import java.util.Deque;
import java.util.List;

/** What one operator has to do with one worker; used on the task's mailbox thread only. */
final class WorkerSlot {
  final int worker;

  /** The epoch in which the worker takes our turns; 0 while it does not. */
  int epoch;

  /** The worker was lost and has not come back yet. */
  boolean wasLost;

  /** Keys whose next turn can start. */
  final Deque<ActiveKey> ready = new ArrayDeque<>();

  /** Turns that must be sent again after a crash. */
  final Deque<Turn> again = new ArrayDeque<>();

  /** Turns that must run alone after a crash, see {@link WorkerLane}. */
  final Deque<Turn> suspects = new ArrayDeque<>();

  /** The worker was asked for alone, or is ours alone. */
  boolean exclusiveRequested;

  /** How many suspects have the worker for themselves just now. */
  int quarantined;

  /** The worker accepts no turns now: it is absent or quarantined. */
  private boolean held;

  /** Keys became ready while the worker was held, and more than one of them still waits. */
  private boolean behind;

  WorkerSlot(int worker) {
    this.worker = worker;
  }

  /** Records if the worker accepts turns, after {@link #ready} turns were started. */
  void takesTurns(boolean takes) {
    held = !takes;
    behind = held ? !ready.isEmpty() : behind && ready.size() > 1;
  }

  /** Removes an ended turn from those that have the worker for themselves. */
  void leaveQuarantine(Turn turn) {
    if (turn.quarantined) {
      turn.quarantined = false;
      if (--quarantined == 0) {
        exclusiveRequested = false;
      }
    }
  }

  /** The slot of a key. Flink has chosen this subtask by a hash of the same text. */
  static WorkerSlot of(WorkerSlot[] slots, String key) {
    int mixed = key.hashCode() * 0x9E3779B9;
    return slots[Math.floorMod(mixed ^ mixed >>> 15, slots.length)];
  }

  /** Returns the number of ready keys of all slots that wait only for a place. */
  static int waitingForPlace(WorkerSlot[] slots) {
    int waiting = 0;
    for (WorkerSlot slot : slots) {
      waiting += slot.waitingForPlace();
    }
    return waiting;
  }

  /** Returns the number of ready keys that wait only for a place. */
  int waitingForPlace() {
    return held || behind ? 0 : ready.size();
  }

  /** Returns those of the started turns that the worker runs since that epoch, in their order. */
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

    /** The worker's epoch it was sent to; 0 when it must be sent again. */
    int epoch;

    /** The timestamp of its event, or null. */
    Long timestamp;

    /** How often the worker died while the turn was there, since the turn last finished a step. */
    int crashes;

    /** It has the worker for itself, or shares it with other suspects only. */
    boolean quarantined;

    /** How many turns of its operator were there when the worker died last. */
    int company;

    Turn(long id, ActiveKey key, WorkerSlot slot) {
      this.id = id;
      this.key = key;
      this.slot = slot;
    }
  }
}
