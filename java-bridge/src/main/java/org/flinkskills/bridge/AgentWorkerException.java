package org.flinkskills.bridge;

/** A worker process cannot be kept running, so that the agents of the job cannot go on. */
public final class AgentWorkerException extends Exception {
  private static final long serialVersionUID = 1L;

  public AgentWorkerException(String message) {
    super(message);
  }

  public AgentWorkerException(String message, Throwable cause) {
    super(message, cause);
  }
}
