package org.flinkskills.bridge;

import java.lang.reflect.Field;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.runtime.io.network.partition.consumer.IndexedInputGate;
import org.apache.flink.streaming.runtime.tasks.StreamTask;

/**
 * Runs a task's loop from within an operator that has to wait although the input has ended.
 *
 * <p>Barriers of aligned checkpoints come with the input, and after its end as well: the tasks
 * before this one wait until it has processed everything, and take part in checkpoints meanwhile.
 * To yield to the mailbox alone would leave these barriers unread until the operator has ended.
 */
final class TaskLoop {
  /** Flink tells operators no more of a checkpoint than its number. */
  private static final Field SYNCHRONOUS_SAVEPOINT = synchronousSavepoint();

  private final StreamTask<?, ?> task;
  private final MailboxExecutor mailbox;

  /**
   * @param mailbox runs all mails of the task
   */
  TaskLoop(StreamTask<?, ?> task, MailboxExecutor mailbox) {
    this.task = task;
    this.mailbox = mailbox;
  }

  /** Runs a mail or reads from the input; waits until there is one of them. */
  void step() throws Exception {
    // After the end of the input the task has stopped its loop and must not start it again.
    if (isInputClosed() || !task.runMailboxStep()) {
      mailbox.yield();
    }
  }

  /**
   * Whether the task takes part in the savepoint of a stop. What an operator emits after it is in
   * neither the savepoint nor another checkpoint.
   */
  boolean isStopping() throws ReflectiveOperationException {
    return SYNCHRONOUS_SAVEPOINT.get(task) != null;
  }

  private static Field synchronousSavepoint() {
    try {
      Field field = StreamTask.class.getDeclaredField("syncSavepoint");
      field.setAccessible(true);
      return field;
    } catch (NoSuchFieldException e) {
      throw new ExceptionInInitializerError(e);
    }
  }

  private boolean isInputClosed() {
    for (IndexedInputGate gate : task.getEnvironment().getAllInputGates()) {
      if (!gate.isFinished()) {
        return false;
      }
    }
    return true;
  }
}
