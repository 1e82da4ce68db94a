package org.flinkskills.bridge;

import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.BoundedOneInput;
import org.apache.flink.streaming.api.operators.OneInputStreamOperator;
import org.apache.flink.streaming.api.operators.StreamOperatorParameters;
import org.apache.flink.streaming.api.operators.sorted.state.BatchExecutionKeyedStateBackend;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.mailbox.TaskMailbox;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.apache.flink.types.Row;

/**
 * Operator that runs the turns of an agent in the worker processes of a {@link WorkerPool}.
 *
 * <p>Input is {@code Row(String key, byte[] event)}, keyed by the first field. Output is {@code
 * byte[]}. The operator implements Flink's contract only: {@link TurnRunner} runs the turns.
 *
 * <p>All code here runs on the task's mailbox thread. {@link OperatorMailbox} posts the reports of
 * the pool's threads as mails.
 */
final class AgentOperator extends AbstractStreamOperator<byte[]>
    implements OneInputStreamOperator<Row, byte[]>, BoundedOneInput {
  private static final long serialVersionUID = 1L;

  /** The side output for the events of turns. */
  static final String EVENTS_OUTPUT = "events";

  private final transient AgentPlan plan;
  private final transient AgentSettings settings;
  private final transient Configuration pythonConfig;
  private final transient AgentOperatorFactory.LauncherProvider launchers;

  private transient MailboxExecutor mailbox;

  /** Runs every mail of the task, checkpoints included. */
  private transient MailboxExecutor taskMailbox;

  private transient WorkerPools.Lease lease;
  private transient PoolConnection connection;
  private transient OperatorMailbox listener;
  private transient TurnScheduler scheduler;
  private transient TurnRunner turns;
  private transient TurnCounts counts;

  /** Runs the task's loop while the last turns end; null before the end of the input. */
  private transient TaskLoop draining;

  AgentOperator(
      StreamOperatorParameters<byte[]> parameters,
      AgentPlan plan,
      AgentSettings settings,
      Configuration pythonConfig,
      AgentOperatorFactory.LauncherProvider launchers) {
    super(parameters);
    this.plan = plan;
    this.settings = settings;
    this.pythonConfig = pythonConfig;
    this.launchers = launchers;
  }

  @Override
  public void setMailboxExecutor(MailboxExecutor mailboxExecutor) {
    super.setMailboxExecutor(mailboxExecutor);
    mailbox = mailboxExecutor;
    taskMailbox =
        getContainingTask().getMailboxExecutorFactory().createExecutor(TaskMailbox.MIN_PRIORITY);
  }

  @Override
  public void snapshotState(StateSnapshotContext context) throws Exception {
    super.snapshotState(context);
    counts.snapshot();
  }

  @Override
  public void open() throws Exception {
    super.open();
    if (getKeyedStateBackend() instanceof BatchExecutionKeyedStateBackend) {
      throw new AgentRejectedException(AgentStream.noBatchMode("BATCH"));
    }
    KeyedTurns state =
        new KeyedTurns(
            getRuntimeContext(),
            getProcessingTimeService()::getCurrentProcessingTime,
            settings.sessionTtlMs());
    scheduler = new TurnScheduler(settings);
    AgentMetrics metrics =
        new AgentMetrics(getMetricGroup(), scheduler::started, scheduler::waiting);
    counts = TurnCounts.open(this);
    Environment environment = getContainingTask().getEnvironment();
    AgentOutputs outputs = new AgentOutputs(output, environment.getAllWriters());
    lease =
        WorkerPools.acquire(
            environment,
            settings,
            scratch ->
                launchers.open(scratch, pythonConfig, settings, getRuntimeContext(), environment));
    connection = lease.pool().connect(plan, settings, getUserCodeClassloader());
    turns =
        new TurnRunner(
            getOperatorName(),
            getKeyedStateBackend(),
            state,
            scheduler,
            connection,
            outputs,
            metrics,
            counts);
    listener = new OperatorMailbox(mailbox, turns, outputs, metrics, lease.pool().reports());
    scheduler.connect(connection, connection.attach(listener));
    turns.restore();
    turns.startTurns();
  }

  @Override
  public void processElement(StreamRecord<Row> element) throws Exception {
    Row row = element.getValue();
    byte[] event = (byte[]) row.getField(1);
    long timestamp = element.hasTimestamp() ? element.getTimestamp() : 0;
    turns.accept(
        (String) row.getField(0), TurnState.Event.encode(element.hasTimestamp(), timestamp, event));
    awaitCapacity();
  }

  private void awaitCapacity() throws Exception {
    while (!scheduler.acceptsMore()) {
      // All mails of the task, because one of them may be an unaligned checkpoint, which must not
      // wait for a turn to end. The event is in the state, and no operator is chained before this
      // one, so the task is in the same state as between two events.
      taskMailbox.yield();
    }
  }

  @Override
  public void processWatermark(Watermark mark) throws Exception {
    turns.watermark(() -> super.processWatermark(mark));
  }

  @Override
  public void processWatermarkStatus(WatermarkStatus status) throws Exception {
    turns.status(() -> super.processWatermarkStatus(status));
  }

  @Override
  public void endInput() throws Exception {
    draining = new TaskLoop(getContainingTask(), taskMailbox);
    while (scheduler.unfinished() > 0) {
      draining.step();
    }
    draining = null;
  }

  /** A stop that drains ends all turns before its savepoint, which follows the end of the input. */
  @Override
  public void prepareSnapshotPreBarrier(long checkpointId) throws Exception {
    super.prepareSnapshotPreBarrier(checkpointId);
    if (draining != null && draining.isStopping()) {
      while (scheduler.unfinished() > 0) {
        taskMailbox.yield();
      }
    }
  }

  /** Flink also calls this after {@link #open} failed, and more than one time. */
  @Override
  public void close() throws Exception {
    try {
      if (listener != null) {
        listener.close();
      }
      if (connection != null) {
        connection.detach();
      }
    } finally {
      if (lease != null) {
        lease.release();
      }
      super.close();
    }
  }
}
