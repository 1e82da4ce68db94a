package org.flinkskills.bridge;

/**
 * A turn failed and the job's policy for errors is to fail ({@code skills.turn.on-error: fail}).
 */
public final class AgentTurnException extends Exception {
  private static final long serialVersionUID = 1L;

  public AgentTurnException(String message) {
    super(message);
  }
}
