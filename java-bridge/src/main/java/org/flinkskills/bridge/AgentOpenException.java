package org.flinkskills.bridge;

/**
 * Failure to open an agent on a TaskManager: a worker rejected the plan, did not respond in time,
 * or its process could not be started. The message is for the user, and contains the fix.
 *
 * <p>A restart of the job may help, for example if a server of skills is down. If it cannot help,
 * the exception is an {@link AgentRejectedException}.
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
