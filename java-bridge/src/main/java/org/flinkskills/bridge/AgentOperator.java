package org.flinkskills.bridge;

import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.flink.api.common.operators.MailboxExecutor;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.execution.Environment;
import org.apache.flink.runtime.state.StateSnapshotContext;
import org.apache.flink.runtime.state.VoidNamespace;
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
import org.flinkskills.bridge.WorkerSlot.Turn;

/**
 * Runs the turns of an agent in the worker processes of a {@link WorkerPool}.
 *
 * <p>Input is {@code Row(String key, byte[] event)}, keyed by the first field; output is {@code
 * byte[]}. An event is first appended to {@code pending} of its key. Turns of one key run one after
 * another in arrival order, keys run side by side, at most {@code maxInFlight} turns in all: only
 * those that a worker runs count, so the turns of an absent worker leave their places to others. Keyed
 * state always says what is unfinished, so a checkpoint waits for nothing and a restore starts the
 * unfinished turns again, with the journal of the steps they had finished.
 *
 * <p>Everything here runs on the task's mailbox thread. What the pool's threads report enters as a
 * mail, and each mail sets the key whose state it touches; after a yield the current key is
 * whatever the last mail left.
 */
final class AgentOperator extends AbstractStreamOperator<byte[]>
    implements OneInputStreamOperator<Row, byte[]>, BoundedOneInput, MailboxListener.Handler {
  private static final long serialVersionUID = 1L;

  /** Into so many parts are suspects divided, each of which runs by itself. */
  private static final int QUARANTINE_SHARES = 8;

  /** The side output of what happens in turns. */
  static final String EVENTS_OUTPUT = "events";

  private final transient AgentPlan plan;
  private final transient AgentSettings settings;
  private final transient Configuration pythonConfig;
  private final transient AgentOperatorFactory.LauncherProvider launchers;

  private transient MailboxExecutor mailbox;

  /** Runs every mail of the task, and with them checkpoints. */
  private transient MailboxExecutor taskMailbox;

  private transient KeyedTurns state;
  private transient WorkerPools.Lease lease;
  private transient WorkerPool pool;
  private transient MailboxListener listener;
  private transient Integer operatorId;
  private transient int planId;

  private transient EventTimeGate gate;
  private transient AgentOutputs outputs;

  /** Keys with unfinished events. */
  private transient Map<String, KeyedTurns.Key> active;

  /** Turns that were started and have not ended, by their number in the frames. */
  private transient Map<Long, Turn> running;

  private transient WorkerSlot[] slots;
  private transient long nextTurn;
  private transient int nextSlot;
  private transient int unfinished;
  private transient int ready;

  /** Runs the task's loop while the last turns end; null before the input has ended. */
  private transient TaskLoop draining;

  /** The number of started turns that a worker runs. Other started turns wait for their worker. */
  private transient int inFlight;

  private transient AgentMetrics agentMetrics;
  private transient TurnCounts counts;

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
    gate = new EventTimeGate();
    active = new HashMap<>();
    running = new HashMap<>();
    nextTurn = 1;
    state = new KeyedTurns(getRuntimeContext(), getProcessingTimeService()::getCurrentProcessingTime, settings.sessionTtlMs());
    agentMetrics =
        new AgentMetrics(getMetricGroup(), running::size, () -> unfinished - running.size());
    counts = TurnCounts.open(this);
    Environment environment = getContainingTask().getEnvironment();
    outputs = new AgentOutputs(output, environment.getAllWriters());
    lease =
        WorkerPools.acquire(
            environment,
            settings,
            scratch ->
                launchers.open(scratch, pythonConfig, settings, getRuntimeContext(), environment));
    pool = lease.pool();
    planId = pool.registerPlan(plan, settings, getUserCodeClassloader());
    slots = new WorkerSlot[pool.workers()];
    for (int i = 0; i < slots.length; i++) {
      slots[i] = new WorkerSlot(i);
    }
    listener = new MailboxListener(mailbox, this, outputs, pool.reports());
    WorkerPool.Attachment attachment = pool.attach(planId, listener);
    operatorId = attachment.operator();
    for (WorkerSlot slot : slots) {
      slot.epoch = attachment.readyEpochs()[slot.worker];
      slot.wasLost = slot.epoch == 0;
    }
    restore();
    startTurns();
  }

  @Override
  public void processElement(StreamRecord<Row> element) throws Exception {
    Row row = element.getValue();
    String name = (String) row.getField(0);
    byte[] event = (byte[]) row.getField(1);
    KeyedTurns.Key key = active.get(name);
    if (key == null) {
      key = state.load(name);
      active.put(name, key);
    }
    long timestamp = element.hasTimestamp() ? element.getTimestamp() : 0;
    state.append(key, TurnState.Event.encode(element.hasTimestamp(), timestamp, event));
    key.epochs.addLast(gate.accept());
    unfinished++;
    if (key.epochs.size() == 1) {
      makeReady(key);
      startTurns();
      state.keepInStateAlone(key);
    }
    while (!acceptsMore()) {
      // All mails and not the operator's own: one of them may be an unaligned checkpoint, which
      // must not wait for a turn to end. The event is in the state, no operator is chained before
      // this one, and so all is as it is between two events.
      taskMailbox.yield();
    }
  }

  /**
   * The event that was accepted last may wait for a place, no other one: so a checkpoint barrier
   * right behind it need not wait for a turn to end.
   *
   * <p>Keys of a worker that is absent, or that one turn has for itself, do not wait for a place.
   * They must not stop the keys of other workers, so they count as events that wait in state, and
   * {@code maxPending} bounds them.
   */
  private boolean acceptsMore() {
    int forPlace = WorkerSlot.waitingForPlace(slots);
    int forWorker = ready - forPlace;
    return forPlace <= 1 && waitingBehindTheirKey() + forWorker <= settings.maxPending();
  }

  private int waitingBehindTheirKey() {
    return unfinished - running.size() - ready;
  }

  @Override
  public void processWatermark(Watermark mark) throws Exception {
    gate.watermark(() -> super.processWatermark(mark));
  }

  @Override
  public void processWatermarkStatus(WatermarkStatus status) throws Exception {
    gate.status(() -> super.processWatermarkStatus(status));
  }

  @Override
  public void endInput() throws Exception {
    draining = new TaskLoop(getContainingTask(), taskMailbox);
    while (unfinished > 0) {
      draining.step();
    }
    draining = null;
  }

  /** A stop that drains ends all turns before its savepoint, which follows the end of the input. */
  @Override
  public void prepareSnapshotPreBarrier(long checkpointId) throws Exception {
    super.prepareSnapshotPreBarrier(checkpointId);
    if (draining != null && draining.isStopping()) {
      while (unfinished > 0) {
        taskMailbox.yield();
      }
    }
  }

  /** Also called when {@link #open} failed half-way, and more than once. */
  @Override
  public void close() throws Exception {
    try {
      if (listener != null) {
        listener.close();
      }
      if (operatorId != null) {
        pool.detach(operatorId);
      }
    } finally {
      if (lease != null) {
        lease.release();
      }
      super.close();
    }
  }

  /** Finds the keys with unfinished events in the restored state and makes them ready. */
  private void restore() throws Exception {
    Set<String> names = new LinkedHashSet<>();
    try (Stream<String> keys =
        this.<String>getKeyedStateBackend().getKeys(KeyedTurns.PENDING, VoidNamespace.INSTANCE)) {
      keys.forEach(names::add);
    }
    for (String name : names) {
      setCurrentKey(name);
      KeyedTurns.Key key = state.restore(name);
      for (long i = key.head; i < key.tail; i++) {
        key.epochs.addLast(gate.accept());
        unfinished++;
      }
      if (!key.epochs.isEmpty()) {
        active.put(name, key);
        makeReady(key);
      }
    }
    if (unfinished > 0) {
      LOG.info("{} restored {} unfinished events.", getOperatorName(), unfinished);
    }
  }

  private void makeReady(KeyedTurns.Key key) {
    WorkerSlot.of(slots, key.name).ready.addLast(key);
    ready++;
  }

  /** Starts, or sends again, every turn that may run now: none whose answers would have to wait. */
  private void startTurns() throws Exception {
    if (listener.isBlocked()) {
      return;
    }
    nextSlot = (nextSlot + 1) % slots.length;
    for (int i = 0; i < slots.length; i++) {
      WorkerSlot slot = slots[(nextSlot + i) % slots.length];
      boolean takes = slot.epoch != 0 && startTurns(slot);
      slot.takesTurns(takes);
      if (slot.epoch != 0 && !takes) {
        continue;
      }
      if (slot.epoch != 0 && !slot.suspects.isEmpty() && !slot.exclusiveRequested) {
        slot.exclusiveRequested = true;
        pool.lane(slot.worker).requestExclusive(operatorId, slot.epoch);
      }
    }
  }

  /** Starts turns on one worker; false when the worker takes none for now. */
  private boolean startTurns(WorkerSlot slot) throws Exception {
    WorkerLane lane = pool.lane(slot.worker);
    while (!slot.again.isEmpty() && inFlight < settings.maxInFlight()) {
      if (!lane.tryStart(operatorId, slot.epoch)) {
        return false;
      }
      send(slot.again.removeFirst());
    }
    while (!slot.ready.isEmpty() && inFlight < settings.maxInFlight()) {
      if (!lane.tryStart(operatorId, slot.epoch)) {
        return false;
      }
      KeyedTurns.Key key = slot.ready.removeFirst();
      ready--;
      Turn turn = new Turn(nextTurn++, key, slot);
      running.put(turn.id, turn);
      send(turn);
    }
    return true;
  }

  private void send(Turn turn) throws Exception {
    turn.epoch = turn.slot.epoch;
    KeyedTurns.Key key = turn.key;
    setCurrentKey(key.name);
    TurnState.Event event = state.head(key);
    turn.timestamp = event.hasTimestamp() ? event.timestamp() : null;
    List<byte[]> session = state.sessionToSend(key, turn.epoch);
    List<byte[]> journal = state.journal(key);
    long size = TurnFrame.size(turn, event, session, journal);
    if (size > Frames.MAX_FRAME_BYTES) {
      pool.lane(turn.slot.worker).ended(operatorId, turn.epoch);
      turn.slot.leaveQuarantine(turn);
      endWithoutWorker(turn, ErrorRecord.ofSize(plan.json(), turn, size));
      return;
    }
    inFlight++;
    byte[] frame = TurnFrame.of(operatorId, planId, turn, event, session, journal);
    pool.send(turn.slot.worker, turn.epoch, frame);
  }

  @Override
  public void handleFrame(int worker, int epoch, Frames.Frame frame) throws Exception {
    Turn turn = running.get(frame.u64());
    if (turn == null || turn.epoch != epoch || turn.slot.worker != worker) {
      return;
    }
    setCurrentKey(turn.key.name);
    switch (frame.type()) {
      case Frames.STEP -> handleStep(turn, frame);
      case Frames.END -> handleEnd(turn, frame);
      case Frames.OUTPUTS -> outputs.emit(turn.timestamp, frame.outputs());
      default ->
          pool.send(
              worker,
              epoch,
              Frames.session(
                  operatorId, turn.id, turn.key.sessionVersion, state.session(turn.key)));
    }
  }

  @Override
  public void handledFrames() throws Exception {
    startTurns();
  }

  private void handleStep(Turn turn, Frames.Frame frame) throws Exception {
    boolean clear = (frame.u8() & Frames.STEP_CLEARS_JOURNAL) != 0;
    byte[] entry = frame.bytes();
    List<Frames.Output> emitted = frame.outputs();
    state.step(turn.key, clear, entry);
    if (!clear) {
      // What it did when the worker died is behind it now, and is not done again: the cause was
      // another. A turn that takes the worker down comes to the same step again without a new one.
      turn.crashes = 0;
    }
    // In the same mail: no checkpoint comes between the step in the journal and what it emits.
    outputs.emit(turn.timestamp, emitted);
  }

  private void handleEnd(Turn turn, Frames.Frame frame) throws Exception {
    int status = frame.u8();
    int sessionOp = frame.u8();
    List<byte[]> chunks = frame.list();
    List<Frames.Output> emitted = frame.outputs();
    String message = frame.str();
    if (status == Frames.END_FAIL_JOB) {
      throw new AgentTurnException(message);
    }
    state.end(turn.key, turn.epoch, sessionOp, chunks);
    outputs.emit(turn.timestamp, emitted);
    turn.slot.leaveQuarantine(turn);
    ended(turn, status == Frames.END_ERROR_RECORD, message);
  }

  private void ended(Turn turn, boolean failed, String error) throws Exception {
    KeyedTurns.Key key = turn.key;
    agentMetrics.ended(failed);
    counts.ended(error, key.name, key.turnsDone);
    running.remove(turn.id);
    inFlight--;
    unfinished--;
    EventTimeGate.Epoch accepted = key.epochs.removeFirst();
    if (key.epochs.isEmpty()) {
      active.remove(key.name);
    } else {
      makeReady(key);
    }
    gate.ended(accepted);
  }

  @Override
  public void handleLost(int worker, int epoch) throws Exception {
    WorkerSlot slot = slots[worker];
    slot.epoch = 0;
    slot.wasLost = true;
    slot.exclusiveRequested = false;
    boolean alone = slot.quarantined == 1;
    slot.quarantined = 0;
    List<Turn> lost = slot.turnsOf(epoch, running.values());
    inFlight -= lost.size();
    for (Turn turn : lost) {
      turn.epoch = 0;
      turn.quarantined = false;
      turn.company = lost.size();
      turn.crashes = settings.crashesAfter(turn.crashes, alone);
      if (settings.endsWithoutWorker(turn.crashes)) {
        endWithoutWorker(turn, ErrorRecord.ofCrashes(plan.json(), turn));
      } else {
        (settings.isSuspect(turn.crashes) ? slot.suspects : slot.again).addLast(turn);
      }
    }
    startTurns();
  }

  /** Ends a turn that no worker can end. */
  private void endWithoutWorker(Turn turn, ErrorRecord record) throws Exception {
    setCurrentKey(turn.key.name);
    TurnState.Event event = state.head(turn.key);
    turn.timestamp = event.hasTimestamp() ? event.timestamp() : null;
    LOG.error("{}: {}", getOperatorName(), record.message());
    if (record.failsJob()) {
      throw new AgentTurnException(record.message());
    }
    inFlight++;
    state.end(turn.key, turn.epoch, Frames.SESSION_KEEP, List.of());
    outputs.emit(turn.timestamp, record.outputs());
    ended(turn, true, record.error());
  }

  @Override
  public void handleReady(int worker, int epoch) throws Exception {
    WorkerSlot slot = slots[worker];
    if (slot.wasLost) {
      slot.wasLost = false;
      agentMetrics.workerRestarts.inc();
    }
    slot.epoch = epoch;
    startTurns();
  }

  @Override
  public void handleExclusive(int worker, int epoch) throws Exception {
    WorkerSlot slot = slots[worker];
    if (slot.epoch != epoch) {
      return;
    }
    Turn turn = slot.suspects.peekFirst();
    if (turn == null) {
      slot.exclusiveRequested = false;
      pool.lane(worker).startExclusive(operatorId, epoch, 0);
      return;
    }
    // One after another, the many that were there would take hours for a fault that is of one at
    // most. The share that has it is divided again.
    int together = Math.min(Math.max(1, turn.company / QUARANTINE_SHARES), slot.suspects.size());
    pool.lane(worker).startExclusive(operatorId, epoch, together);
    for (int i = 0; i < together; i++) {
      turn = slot.suspects.removeFirst();
      turn.quarantined = true;
      slot.quarantined++;
      send(turn);
    }
  }

  @Override
  public void handleMetrics(int worker, WorkerReport report) {
    agentMetrics.report(worker, report);
  }

  @Override
  public void handleEvents(List<byte[]> events) {
    outputs.emit(null, events.stream().map(event -> new Frames.Output(EVENTS_OUTPUT, event)).toList());
  }

  @Override
  public void handleLaneFree() throws Exception {
    startTurns();
  }
}
