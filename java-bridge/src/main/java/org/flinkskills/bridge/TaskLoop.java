package org.flinkskills.bridge;

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
    // Where the input is closed, the task has stopped its loop and must not start it again.
    if (isInputClosed() || !task.runMailboxStep()) {
      mailbox.yield();
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
