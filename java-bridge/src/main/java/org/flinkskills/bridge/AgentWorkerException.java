package org.flinkskills.bridge;

/** Failure of a worker process that cannot be started again, so that the job cannot continue. */
public final class AgentWorkerException extends Exception {
  private static final long serialVersionUID = 1L;

  public AgentWorkerException(String message) {
    super(message);
  }

  public AgentWorkerException(String message, Throwable cause) {
    super(message, cause);
  }
}
