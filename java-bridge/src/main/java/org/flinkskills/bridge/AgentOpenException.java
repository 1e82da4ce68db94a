package org.flinkskills.bridge;

/**
 * The agent could not be opened on a TaskManager: a worker refused the plan, did not answer in
 * time, or its process could not be started. The message is for the user, and says what to mend.
 */
public final class AgentOpenException extends Exception {
  private static final long serialVersionUID = 1L;

  public AgentOpenException(String message) {
    super(message);
  }

  public AgentOpenException(String message, Throwable cause) {
    super(message, cause);
  }
}
