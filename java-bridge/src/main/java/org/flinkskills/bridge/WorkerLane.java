package org.flinkskills.bridge;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/**
 * Who may start turns on one worker. Turns of all operators share it freely, until a turn has been
 * there when the worker crashed too often: that one gets the worker for itself. New turns wait
 * then, running ones end, the suspect runs alone. So a crash while it runs is certainly its own,
 * and a turn that only shared a worker with a bad one is never blamed.
 */
final class WorkerLane {
  private static final int NOBODY = -1;
  private static final int GONE = -1;

  private final int worker;

  /** Tells the operators; called with the lane's lock held, so it must not block. */
  private final Notifier notifier;

  private final Deque<Integer> exclusiveQueue = new ArrayDeque<>();
  private final Map<Integer, Integer> running = new HashMap<>();
  private final Set<Integer> refused = new HashSet<>();
  private int epoch = GONE;
  private int runningTotal;
  private int holder = NOBODY;

  /** The turns that the holder runs. */
  private int holderTurns;

  interface Notifier {
    void laneFree(int operator, int worker);

    void exclusive(int operator, int worker, int epoch);
  }

  WorkerLane(int worker, Notifier notifier) {
    this.worker = worker;
    this.notifier = notifier;
  }

  synchronized void up(int newEpoch) {
    epoch = newEpoch;
  }

  /** The worker died: whatever ran or waited here is over, and the operators ask anew. */
  synchronized void down() {
    epoch = GONE;
    exclusiveQueue.clear();
    running.clear();
    refused.clear();
    runningTotal = 0;
    holder = NOBODY;
  }

  /**
   * Counts one more turn of the operator as running; false when it must wait, in which case {@link
   * WorkerListener#onLaneFree} or the loss of the worker is the signal to try again.
   */
  synchronized boolean tryStart(int operator, int turnEpoch) {
    if (turnEpoch != epoch) {
      return false;
    }
    if (holder != NOBODY || !exclusiveQueue.isEmpty()) {
      refused.add(operator);
      return false;
    }
    running.merge(operator, 1, Integer::sum);
    runningTotal++;
    return true;
  }

  /**
   * Counts a turn of the operator as ended. The thread that reads the frames of the worker calls
   * this. The operator itself may wait for its outputs, and these for another operator that needs
   * the worker.
   */
  synchronized void ended(int operator, int turnEpoch) {
    if (turnEpoch != epoch) {
      return;
    }
    if (holder == operator) {
      holderTurns--;
      leaveIfDone();
    } else if (running.containsKey(operator)) {
      running.computeIfPresent(operator, (key, count) -> count == 1 ? null : count - 1);
      runningTotal--;
      grant();
    }
  }

  /** Asks for the worker alone; {@link WorkerListener#onExclusive} is the answer. */
  synchronized void requestExclusive(int operator, int turnEpoch) {
    if (turnEpoch == epoch) {
      exclusiveQueue.addLast(operator);
      grant();
    }
  }

  /**
   * Says how many turns the operator starts on the worker that it has alone. It has the worker until
   * they have ended.
   */
  synchronized void startExclusive(int operator, int turnEpoch, int turns) {
    if (turnEpoch == epoch && holder == operator) {
      holderTurns = turns;
      leaveIfDone();
    }
  }

  private void leaveIfDone() {
    if (holderTurns <= 0) {
      holder = NOBODY;
      grant();
    }
  }

  /** The operator is gone. */
  synchronized void detach(int operator) {
    Integer count = running.remove(operator);
    runningTotal -= count == null ? 0 : count;
    refused.remove(operator);
    exclusiveQueue.removeIf(waiting -> waiting == operator);
    if (holder == operator) {
      holder = NOBODY;
    }
    grant();
  }

  private void grant() {
    if (holder != NOBODY) {
      return;
    }
    if (exclusiveQueue.isEmpty()) {
      Set<Integer> waiting = Set.copyOf(refused);
      refused.clear();
      waiting.forEach(operator -> notifier.laneFree(operator, worker));
    } else if (runningTotal == 0) {
      holder = exclusiveQueue.removeFirst();
      notifier.exclusive(holder, worker, epoch);
    }
  }
}
