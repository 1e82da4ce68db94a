package org.flinkskills.bridge;

/**
 * The agent could not be opened on a TaskManager: a worker refused the plan, did not answer in
 * time, or its process could not be started. The message is for the user, and names the fix.
 *
 * <p>Starting the job again may help, as with a server of skills that is down; where it cannot, it
 * is an {@link AgentRejectedException}.
 */
public class AgentOpenException extends Exception {
  private static final long serialVersionUID = 1L;

  public AgentOpenException(String message) {
    super(message);
  }

  public AgentOpenException(String message, Throwable cause) {
    super(message, cause);
  }
}
