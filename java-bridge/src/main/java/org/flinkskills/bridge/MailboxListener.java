package org.flinkskills.bridge;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.util.function.ThrowingRunnable;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Makes mails of what the pool's threads report, so that it is handled on the task's thread.
 *
 * <p>Reports that lead to outputs are handled in their order, and only while the outputs accept
 * records. So the task's thread never blocks in a mail, and a checkpoint barrier never waits for
 * answers of workers.
 */
final class MailboxListener implements WorkerListener {
  private static final Logger LOG = LoggerFactory.getLogger(MailboxListener.class);

  /** Reports of one mail. Other mails of the task come in between. */
  private static final int REPORTS_AT_ONCE = 64;

  private final MailboxExecutor mailbox;
  private final Handler handler;
  private final AgentOutputs outputs;
  private final ReportQueue reports;
  private volatile boolean closed;

  /** The outputs accept no records, and the next mail comes when they do. */
  private boolean blocked;

  /** What is done on the task's thread. An exception fails the task. */
  interface Handler {
    void handleFrame(int worker, int epoch, Frames.Frame frame) throws Exception;

    /** The frames that were received together are handled. */
    void handledFrames() throws Exception;

    void handleReady(int worker, int epoch) throws Exception;

    void handleLost(int worker, int epoch) throws Exception;

    void handleLaneFree() throws Exception;

    void handleExclusive(int worker, int epoch) throws Exception;

    void handleMetrics(int worker, WorkerReport report);

    void handleEvents(List<byte[]> events);
  }

  MailboxListener(
      MailboxExecutor mailbox, Handler handler, AgentOutputs outputs, ReportQueue reports) {
    this.mailbox = mailbox;
    this.handler = handler;
    this.outputs = outputs;
    this.reports = reports;
  }

  /** From now on nothing is handled any more, mails that wait included. */
  void close() throws IOException {
    closed = true;
    reports.close();
  }

  /** Whether reports wait until the outputs accept records. */
  boolean isBlocked() {
    return blocked;
  }

  private void handleReports() throws Exception {
    if (blocked) {
      return;
    }
    for (int i = 0; i < REPORTS_AT_ONCE; i++) {
      ReportQueue.Report report = reports.peek();
      if (report == null) {
        return;
      }
      if (!handle(report)) {
        blocked = true;
        outputs.whenAvailable(() -> mail(this::unblock, "outputs of an agent accept records"));
        return;
      }
    }
    if (!reports.isEmpty()) {
      mail(this::handleReports, "answers of an agent worker");
    }
  }

  /** Returns false if the outputs accept no records before the report is handled completely. */
  private boolean handle(ReportQueue.Report report) throws Exception {
    if (!outputs.isAvailable()) {
      return false;
    }
    if (report.change != null) {
      reports.remove();
      report.change.run();
      return true;
    }
    Frames.Frame frame;
    while ((frame = report.nextFrame()) != null) {
      handler.handleFrame(report.worker, report.epoch, frame);
      if (report.hasNext() && !outputs.isAvailable()) {
        return false;
      }
    }
    reports.remove();
    handler.handledFrames();
    return true;
  }

  private void unblock() throws Exception {
    blocked = false;
    handleReports();
  }

  @Override
  public void onFrames(int worker, int epoch, List<Frames.Frame> frames) {
    try {
      reports.add(worker, epoch, frames);
    } catch (IOException e) {
      onFailure(
          new AgentWorkerException(
              "The answers of agent workers cannot be written to a file while the outputs of the"
                  + " agent accept no records: " + e + ". Free space in the folders of io.tmp.dirs.",
              e));
      return;
    }
    mail(this::handleReports, "answers of an agent worker");
  }

  @Override
  public void onReady(int worker, int epoch) {
    inOrder(() -> handler.handleReady(worker, epoch), "agent worker is ready");
  }

  @Override
  public void onLost(int worker, int epoch) {
    inOrder(() -> handler.handleLost(worker, epoch), "agent worker is lost");
  }

  @Override
  public void onEvents(List<byte[]> events) {
    inOrder(() -> handler.handleEvents(events), "events of an agent worker");
  }

  private void inOrder(ThrowingRunnable<Exception> body, String description) {
    reports.add(body);
    mail(this::handleReports, description);
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
    mail(() -> handler.handleMetrics(worker, report), "metrics of an agent worker");
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
      LOG.debug("Dropped a mail because the task is ending: {}", description);
    }
  }
}
