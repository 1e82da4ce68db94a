package org.flinkskills.bridge.operator;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.RejectedExecutionException;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.util.function.ThrowingRunnable;
import org.flinkskills.bridge.AgentWorkerException;
import org.flinkskills.bridge.frames.Frame;
import org.flinkskills.bridge.metrics.AgentMetrics;
import org.flinkskills.bridge.metrics.WorkerReport;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.flinkskills.bridge.pool.ReportQueue;
import org.flinkskills.bridge.pool.WorkerListener;
import org.flinkskills.bridge.turns.TurnRunner;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Listener that posts the reports of a pool's threads to the mailbox of the task.
 *
 * <p>Reports that lead to outputs are handled in order, and only while the outputs accept records.
 * So the task's thread never blocks in a mail, and a checkpoint barrier never waits for the results
 * of workers.
 */
final class OperatorMailbox implements WorkerListener {
  private static final Logger LOG = LoggerFactory.getLogger(OperatorMailbox.class);

  /** The maximum number of reports of one mail. Other mails of the task run between such mails. */
  private static final int REPORTS_PER_MAIL = 64;

  private final MailboxExecutor mailbox;
  private final TurnRunner turns;
  private final AgentOutputs outputs;
  private final AgentMetrics metrics;
  private final ReportQueue reports;
  private volatile boolean closed;

  OperatorMailbox(
      MailboxExecutor mailbox,
      TurnRunner turns,
      AgentOutputs outputs,
      AgentMetrics metrics,
      ReportQueue reports) {
    this.mailbox = mailbox;
    this.turns = turns;
    this.outputs = outputs;
    this.metrics = metrics;
    this.reports = reports;
  }

  /** Drop all further reports, waiting mails included. */
  void close() throws IOException {
    closed = true;
    reports.close();
  }

  @Override
  public void onFrames(int worker, int epoch, List<Frame> frames) {
    try {
      reports.add(worker, epoch, frames);
    } catch (IOException e) {
      onFailure(
          new AgentWorkerException(
              "The answers of agent workers cannot be written to a file while the outputs of the"
                  + " agent accept no records: "
                  + e
                  + ". Free space in the folders of io.tmp.dirs.",
              e));
      return;
    }
    post(this::handleReports, "answers of an agent worker");
  }

  @Override
  public void onReady(int worker, int epoch) {
    postInOrder(() -> turns.workerReady(worker, epoch), "agent worker is ready");
  }

  @Override
  public void onLost(int worker, int epoch) {
    postInOrder(() -> turns.workerLost(worker, epoch), "agent worker is lost");
  }

  @Override
  public void onEvents(List<byte[]> events) {
    postInOrder(() -> outputs.emitEvents(events), "events of an agent worker");
  }

  @Override
  public void onLaneFree(int worker) {
    post(turns::startTurns, "agent worker is free");
  }

  @Override
  public void onExclusive(int worker, int epoch) {
    post(() -> turns.startSuspects(worker, epoch), "agent worker for one turn alone");
  }

  @Override
  public void onMetrics(int worker, WorkerReport report) {
    post(() -> metrics.report(worker, report), "metrics of an agent worker");
  }

  @Override
  public void onFailure(Exception failure) {
    post(
        () -> {
          throw new AgentWorkerException(failure.getMessage(), failure);
        },
        "agent workers failed");
  }

  private void postInOrder(ThrowingRunnable<Exception> body, String description) {
    reports.add(body);
    post(this::handleReports, description);
  }

  private void post(ThrowingRunnable<Exception> body, String description) {
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

  private void handleReports() throws Exception {
    if (outputs.isBlocked()) {
      return;
    }
    for (int i = 0; i < REPORTS_PER_MAIL; i++) {
      ReportQueue.Report report = reports.peek();
      if (report == null) {
        return;
      }
      if (!handle(report)) {
        outputs.block(() -> post(this::unblock, "outputs of an agent accept records"));
        return;
      }
    }
    if (!reports.isEmpty()) {
      post(this::handleReports, "answers of an agent worker");
    }
  }

  /** Return false if the outputs accept no records before the report is handled completely. */
  private boolean handle(ReportQueue.Report report) throws Exception {
    if (!outputs.isAvailable()) {
      return false;
    }
    if (report.change != null) {
      reports.remove();
      report.change.run();
      return true;
    }
    Frame frame;
    while ((frame = report.nextFrame()) != null) {
      turns.apply(report.worker, report.epoch, frame);
      if (report.hasNext() && !outputs.isAvailable()) {
        return false;
      }
    }
    reports.remove();
    turns.startTurns();
    return true;
  }

  private void unblock() throws Exception {
    outputs.unblock();
    handleReports();
  }
}
