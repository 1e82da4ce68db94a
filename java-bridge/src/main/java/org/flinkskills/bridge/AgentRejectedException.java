package org.flinkskills.bridge;

import org.apache.flink.runtime.throwable.ThrowableAnnotation;
import org.apache.flink.runtime.throwable.ThrowableType;

/**
 * The agent can never be opened as it was submitted: a module is missing, a name is unknown, a
 * resource is in no jar. The job fails at once instead of restarting for nothing.
 */
@ThrowableAnnotation(ThrowableType.NonRecoverableError)
public final class AgentRejectedException extends AgentOpenException {
  private static final long serialVersionUID = 1L;

  public AgentRejectedException(String message) {
    super(message);
  }

  public AgentRejectedException(String message, Throwable cause) {
    super(message, cause);
  }
}
