package org.flinkskills.bridge;

import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.util.function.ThrowingRunnable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Makes mails of what the pool's threads report, so that it is handled on the task's thread. */
final class MailboxListener implements WorkerListener {
  private static final Logger LOG = LoggerFactory.getLogger(MailboxListener.class);

  private final MailboxExecutor mailbox;
  private final Handler handler;
  private volatile boolean closed;

  /** What is done on the task's thread. An exception fails the task. */
  interface Handler {
    void handleFrames(int worker, int epoch, List<Frames.Frame> frames) throws Exception;

    void handleReady(int worker, int epoch) throws Exception;

    void handleLost(int worker, int epoch) throws Exception;

    void handleLaneFree() throws Exception;

    void handleExclusive(int worker, int epoch) throws Exception;

    void handleMetrics(int worker, WorkerReport report);

    void handleEvents(List<byte[]> events);
  }

  MailboxListener(MailboxExecutor mailbox, Handler handler) {
    this.mailbox = mailbox;
    this.handler = handler;
  }

  /** From now on nothing is handled any more, mails that wait included. */
  void close() {
    closed = true;
  }

  @Override
  public void onFrames(int worker, int epoch, List<Frames.Frame> frames) {
    mail(() -> handler.handleFrames(worker, epoch, frames), "answers of an agent worker");
  }

  @Override
  public void onReady(int worker, int epoch) {
    mail(() -> handler.handleReady(worker, epoch), "agent worker is ready");
  }

  @Override
  public void onLost(int worker, int epoch) {
    mail(() -> handler.handleLost(worker, epoch), "agent worker is lost");
  }

  @Override
  public void onLaneFree(int worker) {
    mail(handler::handleLaneFree, "agent worker is free");
  }

  @Override
  public void onExclusive(int worker, int epoch) {
    mail(() -> handler.handleExclusive(worker, epoch), "agent worker for one turn alone");
  }

  @Override
  public void onMetrics(int worker, WorkerReport report) {
    mail(() -> handler.handleMetrics(worker, report), "figures of an agent worker");
  }

  @Override
  public void onEvents(List<byte[]> events) {
    mail(() -> handler.handleEvents(events), "events of an agent worker");
  }

  @Override
  public void onFailure(Exception failure) {
    mail(
        () -> {
          throw new AgentWorkerException(failure.getMessage(), failure);
        },
        "agent workers failed");
  }

  private void mail(ThrowingRunnable<Exception> body, String description) {
    try {
      mailbox.execute(
          () -> {
            if (!closed) {
              body.run();
            }
          },
          description);
    } catch (RejectedExecutionException e) {
      LOG.debug("The task is ending, dropped: {}", description);
    }
  }
}
