package org.flinkskills.bridge.turns;

import org.apache.flink.api.common.TaskInfo;
import org.apache.flink.runtime.state.KeyGroupRange;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.flinkskills.bridge.AgentRejectedException;

/**
 * Format of an operator's keyed state, and its marker, which releases with an older format reject.
 *
 * <p>A release ignores keyed states that it does not have, and would lose what is in them. It reads
 * the counters of each key with unfinished events when it opens, and the event when it starts the
 * turn. The marker is a key with one such event. Its counters and its event have the version of the
 * format instead of that of their bytes. Each subtask has at least one marker, so a release finds
 * one with any parallelism.
 *
 * <p>Increase {@link #VERSION} if a release with the present version must not ignore a change.
 */
public final class StateFormat {
  /**
   * The version that this release writes. It reads all versions up to this one.
   *
   * <ol>
   *   <li>The counters of all keys are in the state {@code turns}.
   *   <li>The counters of keys without a session are in the state {@code idle}, and turns can wait.
   *   <li>Savepoints have the marker.
   * </ol>
   */
  public static final byte VERSION = 3;

  /** Keys of events are JSON, and this is not. */
  private static final String MARKER = "state format ";

  private StateFormat() {}

  /** Return true if a key is a marker. */
  public static boolean isMarker(String key) {
    return key.startsWith(MARKER);
  }

  /** Return a marker in one of the key groups of a subtask. */
  public static String markerOf(TaskInfo task) {
    int groups = task.getMaxNumberOfParallelSubtasks();
    KeyGroupRange own =
        KeyGroupRangeAssignment.computeKeyGroupRangeForOperatorIndex(
            groups, task.getNumberOfParallelSubtasks(), task.getIndexOfThisSubtask());
    int number = 0;
    while (!own.contains(KeyGroupRangeAssignment.assignToKeyGroup(MARKER + number, groups))) {
      number++;
    }
    return MARKER + number;
  }

  /**
   * Check the version of a marker.
   *
   * @throws AgentRejectedException if a release with a later format wrote the state
   */
  static void check(byte[] marker) throws AgentRejectedException {
    if (marker == null || marker.length == 0 || marker[0] > VERSION) {
      throw new AgentRejectedException(
          String.format(
              "The keyed state of this agent has format version %s, and this release of"
                  + " flink_skills reads versions up to %d. Restore with the release that wrote the"
                  + " savepoint, or a newer one.",
              marker == null || marker.length == 0 ? "unknown" : marker[0], VERSION));
    }
  }
}
