package org.flinkskills.bridge;

/** Rejection of a stop with drain, because turns wait. */
public final class AgentDrainException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public AgentDrainException(String operator, int waiting) {
    super(
        String.format(
            "The stop with --drain is refused: %d turns of %s wait for an answer or a time, and"
                + " skills.waits.on-drain is refuse. Stop without --drain to keep them in the"
                + " savepoint, or set it to time-out.",
            waiting, operator));
  }
}
