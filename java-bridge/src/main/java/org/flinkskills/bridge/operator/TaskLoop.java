package org.flinkskills.bridge.operator;

import java.lang.reflect.Field;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.runtime.io.network.partition.consumer.IndexedInputGate;
import org.apache.flink.streaming.runtime.tasks.StreamTask;

/**
 * Loop of a task that an operator runs while it waits after the end of its input.
 *
 * <p>Barriers of aligned checkpoints arrive with the input, even after its end. The upstream tasks
 * wait until this task has processed everything, and participate in checkpoints. An operator that
 * only yields to the mailbox would not read these barriers.
 */
final class TaskLoop {
  /** Flink passes only the number of a checkpoint to an operator. */
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

  /** Run a mail or read from the input. Wait until one of them is possible. */
  void step() throws Exception {
    // After the end of the input the task has stopped its loop and must not start it again.
    if (isInputClosed() || !task.runMailboxStep()) {
      mailbox.yield();
    }
  }

  /**
   * Return true if the task participates in the savepoint of a stop. Outputs after it are in
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

  /** Return true if no element, no barrier and no event can arrive any more. */
  boolean isInputClosed() {
    for (IndexedInputGate gate : task.getEnvironment().getAllInputGates()) {
      if (!gate.isFinished()) {
        return false;
      }
    }
    return true;
  }
}
