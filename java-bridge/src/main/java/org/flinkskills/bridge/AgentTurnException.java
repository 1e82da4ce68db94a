package org.flinkskills.bridge;

/** Failure of a turn in a job that fails with it ({@code skills.turn.on-error: fail}). */
public final class AgentTurnException extends Exception {
  private static final long serialVersionUID = 1L;

  public AgentTurnException(String message) {
    super(message);
  }
}
