package org.flinkskills.bridge.operator;

import java.util.function.LongSupplier;
import org.apache.flink.api.common.TaskInfo;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.api.common.typeutils.base.StringSerializer;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.checkpoint.CheckpointException;
import org.apache.flink.runtime.checkpoint.CheckpointFailureReason;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.OperatorStateBackend;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;
import org.apache.flink.streaming.api.operators.InternalTimer;
import org.apache.flink.streaming.api.operators.StreamOperatorParameters;
import org.apache.flink.streaming.api.operators.Triggerable;
import org.apache.flink.streaming.api.operators.sorted.state.BatchExecutionKeyedStateBackend;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.mailbox.TaskMailbox;
import org.apache.flink.streaming.runtime.watermarkstatus.WatermarkStatus;
import org.apache.flink.types.Row;
import org.apache.flink.util.FlinkRuntimeException;
import org.flinkskills.bridge.AgentDrainException;
import org.flinkskills.bridge.AgentRejectedException;
import org.flinkskills.bridge.metrics.AgentMetrics;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.flinkskills.bridge.plan.AgentPlan;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.pool.PoolConnection;
import org.flinkskills.bridge.pool.WorkerPools;
import org.flinkskills.bridge.turns.AgentControl;
import org.flinkskills.bridge.turns.KeyedTurns;
import org.flinkskills.bridge.turns.StateFormat;
import org.flinkskills.bridge.turns.TurnCounts;
import org.flinkskills.bridge.turns.TurnRunner;
import org.flinkskills.bridge.turns.TurnScheduler;
import org.flinkskills.bridge.turns.TurnState;
import org.flinkskills.bridge.turns.WaitingTurns;
import org.flinkskills.bridge.waits.KeyedWaits;
import org.flinkskills.bridge.waits.TurnWaits;
import org.flinkskills.bridge.waits.WaitTimers;

/**
 * Operator that runs the turns of an agent in the worker processes of a {@code WorkerPool}.
 *
 * <p>Input is {@code Row(String key, byte[] event)}, keyed by the first field. A row with a third
 * field that is not null is an answer to the wait with that id or name. Output is {@code byte[]}.
 * The operator implements Flink's contract only: {@link TurnRunner} runs the turns. {@link
 * AgentOperator} has one input, and {@link MultipleInputAgentOperator} more for answers and control
 * records.
 *
 * <p>All code here runs on the task's mailbox thread. {@link OperatorMailbox} posts the reports of
 * the pool's threads as mails.
 */
abstract class AbstractAgentOperator extends AbstractStreamOperator<byte[]>
    implements Triggerable<String, String> {
  private static final long serialVersionUID = 1L;

  private final transient AgentPlan plan;
  private final transient AgentSettings settings;
  private final transient Configuration pythonConfig;
  private final transient AgentOperatorFactory.LauncherProvider launchers;
  private final transient boolean isControlled;

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

  /** A checkpoint without a stop has followed the end of the inputs. */
  private transient boolean isNaturalEnd;

  private transient boolean waitsEnded;

  /** The last watermark that the operator has emitted. */
  private transient long watermark;

  AbstractAgentOperator(
      StreamOperatorParameters<byte[]> parameters,
      AgentPlan plan,
      AgentSettings settings,
      Configuration pythonConfig,
      AgentOperatorFactory.LauncherProvider launchers,
      boolean isControlled) {
    super(parameters);
    this.plan = plan;
    this.settings = settings;
    this.pythonConfig = pythonConfig;
    this.launchers = launchers;
    this.isControlled = isControlled;
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
      throw new AgentRejectedException(AgentOperatorFactory.noBatchMode("BATCH"));
    }
    watermark = Long.MIN_VALUE;
    LongSupplier clock = getProcessingTimeService()::getCurrentProcessingTime;
    KeyedTurns state = new KeyedTurns(getRuntimeContext(), clock, settings.sessionTtlMs());
    KeyedWaits keyedWaits = new KeyedWaits(getRuntimeContext(), getKeyedStateBackend());
    scheduler = new TurnScheduler(settings);
    AgentMetrics metrics =
        new AgentMetrics(
            getMetricGroup(), settings.maxInFlight(), scheduler::started, scheduler::waiting);
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
    TurnWaits waits =
        new TurnWaits(
            keyedWaits, waitTimers(keyedWaits), outputs, metrics, settings, plan.json(), clock);
    turns =
        new TurnRunner(
            getOperatorName(),
            getKeyedStateBackend(),
            state,
            scheduler,
            connection,
            outputs,
            metrics,
            counts,
            waits,
            new WaitingTurns(state, keyedWaits, settings, metrics, clock),
            control(outputs, metrics, clock),
            settings.maxCrashes());
    listener = new OperatorMailbox(mailbox, turns, outputs, metrics, lease.pool().reports());
    scheduler.connect(connection, connection.attach(listener));
    turns.restoreAll(StateFormat.markerOf(getRuntimeContext().getTaskInfo()));
    turns.restoreControl();
    turns.startTurns();
  }

  /** Return the control of the agent; null without a stream of control records. */
  private AgentControl control(AgentOutputs outputs, AgentMetrics metrics, LongSupplier clock)
      throws Exception {
    OperatorStateBackend store = getOperatorStateBackend();
    if (!isControlled) {
      if (store.getRegisteredBroadcastStateNames().contains(AgentControl.STATE)) {
        LOG.warn(
            "The savepoint has control records of {}, and the job has no control stream: agents,"
                + " skills and tools that were paused or refused run. Add the control stream to"
                + " apply the records.",
            getOperatorName());
      }
      return null;
    }
    TaskInfo task = getRuntimeContext().getTaskInfo();
    int subtask = task.getIndexOfThisSubtask();
    return new AgentControl(
        store,
        plan,
        outputs,
        metrics,
        clock,
        subtask == 0,
        key ->
            KeyGroupRangeAssignment.assignKeyToParallelOperator(
                    key, task.getMaxNumberOfParallelSubtasks(), task.getNumberOfParallelSubtasks())
                == subtask);
  }

  private WaitTimers waitTimers(KeyedWaits waits) {
    return new WaitTimers(
        () -> getInternalTimerService(KeyedWaits.WAITS, StringSerializer.INSTANCE, this),
        () -> watermark,
        getProcessingTimeService(),
        (key, id) -> {
          setCurrentKey(key);
          return waits.wait(id);
        });
  }

  /**
   * Handle an answer. One without a wait becomes an error record. An answer never waits for
   * capacity: it ends a wait, or is stored in the state.
   */
  final void acceptAnswer(Row row) throws Exception {
    Object wait = row.getArity() > 2 ? row.getField(2) : null;
    turns.answer(
        (String) row.getField(0), wait == null ? "" : (String) wait, (byte[]) row.getField(1));
  }

  /** Handle a control record, a JSON object. It never waits for capacity. */
  public final void acceptControl(String record) throws Exception {
    turns.control(record);
  }

  /** Handle an event, or an answer in the stream of events. */
  final void accept(StreamRecord<Row> element) throws Exception {
    Row row = element.getValue();
    String key = (String) row.getField(0);
    byte[] event = (byte[]) row.getField(1);
    if (row.getArity() > 2 && row.getField(2) != null) {
      turns.answer(key, (String) row.getField(2), event);
      return;
    }
    long timestamp = element.hasTimestamp() ? element.getTimestamp() : 0;
    turns.accept(key, TurnState.Event.encode(element.hasTimestamp(), timestamp, event));
    awaitCapacity();
  }

  @Override
  public void onProcessingTime(InternalTimer<String, String> timer) throws Exception {
    turns.timer(timer.getKey(), timer.getNamespace());
  }

  @Override
  public void onEventTime(InternalTimer<String, String> timer) throws Exception {
    turns.timer(timer.getKey(), timer.getNamespace());
  }

  private void awaitCapacity() throws Exception {
    while (!scheduler.acceptsMore()) {
      // All mails of the task, because one of them may be an unaligned checkpoint, which must not
      // wait for a turn to end. The event is in the state, and no operator is chained before this
      // one, so the task is in the same state as between two events.
      taskMailbox.yield();
    }
  }

  /** Emit a watermark of the events after the turns of all earlier events. */
  final void delay(Watermark mark) throws Exception {
    turns.watermark(
        () -> {
          watermark = mark.getTimestamp();
          super.processWatermark(mark);
        });
  }

  /** Emit a watermark status of the events after the turns of all earlier events. */
  final void delay(WatermarkStatus status) throws Exception {
    turns.status(() -> super.processWatermarkStatus(status));
  }

  /** End all turns after the end of all inputs. */
  final void endInputs() throws Exception {
    draining = new TaskLoop(getContainingTask(), taskMailbox);
    while (isUnfinished()) {
      if (turns.isPaused() && (isNaturalEnd || draining.isInputClosed())) {
        turns.refusePaused();
      } else if (!waitsEnded && turns.waiting() > 0 && (isNaturalEnd || draining.isInputClosed())) {
        endWaits(false);
      } else {
        draining.step();
      }
    }
    turns.endEarlyAnswers();
    draining = null;
  }

  private boolean isUnfinished() {
    return scheduler.unfinished() > 0 || turns.waiting() > 0;
  }

  private void endWaits(boolean sleeps) throws Exception {
    waitsEnded = true;
    turns.endWaits(sleeps);
  }

  /** A stop that drains ends all turns before its savepoint, which follows the end of the input. */
  @Override
  public void prepareSnapshotPreBarrier(long checkpointId) throws Exception {
    super.prepareSnapshotPreBarrier(checkpointId);
    if (draining == null) {
      return;
    }
    if (!draining.isStopping()) {
      isNaturalEnd = true;
      return;
    }
    if (settings.drainEndsWaits()) {
      endWaits(true);
    }
    while (!turns.isPaused()
        && (settings.drainEndsWaits() ? isUnfinished() : scheduler.unfinished() > 0)) {
      taskMailbox.yield();
    }
    if (turns.isPaused()) {
      decline(checkpointId, AgentDrainException.ofPause(getOperatorName(), scheduler.waiting()));
    }
    if (turns.waiting() > 0) {
      decline(checkpointId, AgentDrainException.ofWaits(getOperatorName(), turns.waiting()));
    }
  }

  /**
   * Decline a savepoint, so that the client that stops the job receives the reason. Never return.
   */
  private void decline(long checkpointId, AgentDrainException reason) throws Exception {
    getContainingTask()
        .getEnvironment()
        .declineCheckpoint(
            checkpointId,
            new CheckpointException(
                reason.getMessage(), CheckpointFailureReason.CHECKPOINT_DECLINED, reason));
    try {
      while (true) {
        taskMailbox.yield();
      }
    } catch (FlinkRuntimeException stopped) {
      // The task fails when Flink aborts the savepoint, because the sources have ended.
      reason.addSuppressed(stopped);
      throw reason;
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
