package org.flinkskills.bridge;

import org.apache.flink.runtime.throwable.ThrowableAnnotation;
import org.apache.flink.runtime.throwable.ThrowableType;

/**
 * Failure to open an agent that no restart can fix: a module is missing, a name is unknown, or a
 * resource is in no jar. The job fails immediately, without restarts.
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
