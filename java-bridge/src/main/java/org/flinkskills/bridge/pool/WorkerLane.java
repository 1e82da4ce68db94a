package org.flinkskills.bridge.pool;

import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;

/**
 * Admission of turns to one worker.
 *
 * <p>Turns of all operators share the worker. The exception is a turn that has run during too many
 * crashes of the worker: that turn runs alone. New turns wait until the running turns have ended
 * and the suspect has run. The suspect is then the cause of a crash, and a turn that only shared
 * the worker with it is never treated as the cause.
 */
final class WorkerLane {
  private static final int NO_OPERATOR = -1;
  private static final int GONE = -1;

  private final int worker;

  /** Operators whose listeners the lane calls with its lock held. */
  private final PoolOperators operators;

  private final Deque<Integer> exclusiveQueue = new ArrayDeque<>();
  private final Map<Integer, Integer> running = new HashMap<>();
  private final Set<Integer> rejected = new HashSet<>();
  private int epoch = GONE;
  private int runningTotal;

  /** The operator that has the worker alone. */
  private int exclusiveOperator = NO_OPERATOR;

  /** The number of turns that the operator runs on the worker that it has alone. */
  private int exclusiveTurns;

  WorkerLane(int worker, PoolOperators operators) {
    this.worker = worker;
    this.operators = operators;
  }

  synchronized void up(int newEpoch) {
    epoch = newEpoch;
  }

  /** Remove all running and waiting turns of a worker that has exited. */
  synchronized void down() {
    epoch = GONE;
    exclusiveQueue.clear();
    running.clear();
    rejected.clear();
    runningTotal = 0;
    exclusiveOperator = NO_OPERATOR;
  }

  /**
   * Count one more turn of the operator as running. Return false if the turn must wait. The
   * operator tries again after {@link WorkerListener#onLaneFree} or {@link WorkerListener#onLost}.
   */
  synchronized boolean tryStart(int operator, int turnEpoch) {
    if (turnEpoch != epoch) {
      return false;
    }
    if (exclusiveOperator != NO_OPERATOR || !exclusiveQueue.isEmpty()) {
      rejected.add(operator);
      return false;
    }
    running.merge(operator, 1, Integer::sum);
    runningTotal++;
    return true;
  }

  /**
   * Count a turn of the operator as ended. The thread that reads the frames of the worker calls
   * this: the operator itself may wait for its outputs, and these for another operator that needs
   * the worker.
   */
  synchronized void ended(int operator, int turnEpoch) {
    if (turnEpoch != epoch) {
      return;
    }
    if (exclusiveOperator == operator) {
      exclusiveTurns--;
      leaveIfDone();
    } else if (running.containsKey(operator)) {
      running.computeIfPresent(operator, (key, count) -> count == 1 ? null : count - 1);
      runningTotal--;
      grant();
    }
  }

  /** Request the worker alone. {@link WorkerListener#onExclusive} is the response. */
  synchronized void requestExclusive(int operator, int turnEpoch) {
    if (turnEpoch == epoch) {
      exclusiveQueue.addLast(operator);
      grant();
    }
  }

  /**
   * Set the number of turns that the operator starts on the worker that it has alone. The operator
   * has the worker alone until these turns have ended.
   */
  synchronized void startExclusive(int operator, int turnEpoch, int turns) {
    if (turnEpoch == epoch && exclusiveOperator == operator) {
      exclusiveTurns = turns;
      leaveIfDone();
    }
  }

  private void leaveIfDone() {
    if (exclusiveTurns <= 0) {
      exclusiveOperator = NO_OPERATOR;
      grant();
    }
  }

  /** Remove the turns and requests of an operator. */
  synchronized void detach(int operator) {
    Integer count = running.remove(operator);
    runningTotal -= count == null ? 0 : count;
    rejected.remove(operator);
    exclusiveQueue.removeIf(waiting -> waiting == operator);
    if (exclusiveOperator == operator) {
      exclusiveOperator = NO_OPERATOR;
    }
    grant();
  }

  private void grant() {
    if (exclusiveOperator != NO_OPERATOR) {
      return;
    }
    if (exclusiveQueue.isEmpty()) {
      Set<Integer> waiting = Set.copyOf(rejected);
      rejected.clear();
      waiting.forEach(this::reportFree);
    } else if (runningTotal == 0) {
      exclusiveOperator = exclusiveQueue.removeFirst();
      WorkerListener listener = operators.listener(exclusiveOperator);
      if (listener != null) {
        listener.onExclusive(worker, epoch);
      }
    }
  }

  private void reportFree(int operator) {
    WorkerListener listener = operators.listener(operator);
    if (listener != null) {
      listener.onLaneFree(worker);
    }
  }
}
