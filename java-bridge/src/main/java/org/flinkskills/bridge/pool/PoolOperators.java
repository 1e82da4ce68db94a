package org.flinkskills.bridge.pool;

import java.util.List;
import java.util.concurrent.ConcurrentSkipListMap;

/**
 * Operators that are attached to a pool, by their numbers in the frames.
 *
 * <p>{@link OpenPlans} adds and removes operators with its lock held. Other threads read without a
 * lock.
 */
final class PoolOperators {
  /** An operator with the plan that its turns run. */
  record Attached(int plan, WorkerListener listener) {}

  private final ConcurrentSkipListMap<Integer, Attached> operators = new ConcurrentSkipListMap<>();
  private int nextOperator = 1;

  /** Add an operator, and return its number. */
  int add(int plan, WorkerListener listener) {
    int operator = nextOperator++;
    operators.put(operator, new Attached(plan, listener));
    return operator;
  }

  /** Remove an operator. Return null if it is not attached. */
  Attached remove(int operator) {
    return operators.remove(operator);
  }

  /** Return the listener of an operator, or null if the operator is not attached. */
  WorkerListener listener(int operator) {
    Attached attached = operators.get(operator);
    return attached == null ? null : attached.listener;
  }

  /** Return the listener of the operator of a plan that was attached first, or null. */
  WorkerListener firstOf(int plan) {
    for (Attached attached : operators.values()) {
      if (attached.plan == plan) {
        return attached.listener;
      }
    }
    return null;
  }

  /** Return the listeners of the operators of a plan. */
  List<WorkerListener> of(int plan) {
    return operators.values().stream()
        .filter(attached -> attached.plan == plan)
        .map(Attached::listener)
        .toList();
  }

  /** Return the listeners of all operators. */
  List<WorkerListener> all() {
    return operators.values().stream().map(Attached::listener).toList();
  }
}
