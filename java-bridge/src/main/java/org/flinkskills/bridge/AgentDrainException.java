package org.flinkskills.bridge;

/** Rejection of a stop with drain, because turns wait. */
public final class AgentDrainException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  private AgentDrainException(String message) {
    super(message);
  }

  /** Return the rejection for turns that wait for an answer or a time. */
  public static AgentDrainException ofWaits(String operator, int waiting) {
    return new AgentDrainException(
        String.format(
            "The stop with --drain is refused: %d turns of %s wait for an answer or a time, and"
                + " skills.waits.on-drain is refuse. Stop without --drain to keep them in the"
                + " savepoint, or set it to time-out.",
            waiting, operator));
  }

  /** Return the rejection for events of a paused agent. */
  public static AgentDrainException ofPause(String operator, int waiting) {
    return new AgentDrainException(
        String.format(
            "The stop with --drain is refused: %d events of %s wait, because a control record has"
                + " paused it. Stop without --drain to keep them in the savepoint, or resume the"
                + " agent.",
            waiting, operator));
  }
}
