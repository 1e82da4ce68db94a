package org.flinkskills.bridge.turns;

import java.io.IOException;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.util.function.ThrowingRunnable;
import org.flinkskills.bridge.AgentTurnException;
import org.flinkskills.bridge.frames.Frame;
import org.flinkskills.bridge.frames.FrameWriter;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.metrics.AgentMetrics;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.flinkskills.bridge.outputs.ErrorRecord;
import org.flinkskills.bridge.pool.PoolConnection;
import org.flinkskills.bridge.turns.WorkerSlot.Turn;
import org.flinkskills.bridge.waits.TurnWaits;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Runner of the turns of one operator: it sends a turn to its worker, writes the results to the
 * state, and emits the outputs. {@link TurnScheduler} determines which turn runs.
 *
 * <p>An event is first appended to {@code pending} of its key. Keyed state contains all unfinished
 * work, so a checkpoint waits for no turn. A restore starts the unfinished turns again, with the
 * journal of their finished steps.
 *
 * <p>Only the task's thread uses the runner. Each method sets the current key that it requires:
 * after a yield, the current key is the key of any other mail.
 */
public final class TurnRunner {
  private static final Logger LOG = LoggerFactory.getLogger(TurnRunner.class);

  private final String name;
  private final KeyedStateBackend<String> keys;
  private final KeyedTurns state;
  private final TurnScheduler scheduler;
  private final PoolConnection connection;
  private final AgentOutputs outputs;
  private final AgentMetrics metrics;
  private final TurnCounts counts;
  private final TurnWaits waits;
  private final WaitingTurns waiting;

  /** The control of the agent by records; null without a stream of them. */
  private final AgentControl control;

  private final int maxCrashes;

  private final TurnResumption resumption;
  private final KeyErasure erasure;

  private final EventTimeGate gate = new EventTimeGate();

  /** Keys with unfinished events. */
  private final Map<String, ActiveKey> active = new HashMap<>();

  /**
   * @param name the name of the operator in logs
   * @param keys sets the current key of {@code state}
   * @param control paused and refused agents, skills and tools; null without a control stream
   * @param maxCrashes the number of crashes after which a worker does not read a turn
   */
  public TurnRunner(
      String name,
      KeyedStateBackend<String> keys,
      KeyedTurns state,
      TurnScheduler scheduler,
      PoolConnection connection,
      AgentOutputs outputs,
      AgentMetrics metrics,
      TurnCounts counts,
      TurnWaits waits,
      WaitingTurns waiting,
      AgentControl control,
      int maxCrashes) {
    this.name = name;
    this.keys = keys;
    this.state = state;
    this.scheduler = scheduler;
    this.connection = connection;
    this.outputs = outputs;
    this.metrics = metrics;
    this.counts = counts;
    this.waits = waits;
    this.waiting = waiting;
    this.control = control;
    this.maxCrashes = maxCrashes;
    this.resumption =
        new TurnResumption(keys, state, scheduler, connection, waits, waiting, gate, active);
    this.erasure =
        new KeyErasure(
            keys,
            state,
            scheduler,
            connection,
            outputs,
            metrics,
            counts,
            waits,
            waiting,
            gate,
            active);
  }

  /** Return the number of turns that wait. */
  public int waiting() {
    return waiting.count();
  }

  /**
   * Add the unfinished events of the restored state.
   *
   * @param marker a key of this subtask for the marker of the state's format
   */
  public void restoreAll(String marker) throws Exception {
    Set<String> names = new LinkedHashSet<>();
    try (Stream<String> pending = keys.getKeys(KeyedTurns.PENDING, VoidNamespace.INSTANCE)) {
      pending.forEach(names::add);
    }
    for (String keyName : names) {
      keys.setCurrentKey(keyName);
      if (StateFormat.isMarker(keyName)) {
        state.checkMarker();
        state.writeMarker();
        continue;
      }
      ActiveKey key = restore(keyName);
      if (!key.isIdle()) {
        active.put(keyName, key);
      }
    }
    keys.setCurrentKey(marker);
    state.writeMarker();
    if (scheduler.unfinished() > 0) {
      LOG.info("{} restored {} unfinished events.", name, scheduler.unfinished());
    }
    if (waiting.count() > 0) {
      LOG.info("{} restored {} waiting turns.", name, waiting.count());
    }
  }

  private ActiveKey restore(String keyName) throws Exception {
    ActiveKey key = state.restore(keyName, waits.state());
    if (waits.state().exist()) {
      waiting.restore(key, waits.restore(keyName));
    }
    if (!key.blocked) {
      for (long i = key.head; i < key.tail; i++) {
        key.epochs.addLast(gate.accept());
      }
    }
    scheduler.add(key, key.epochs.size());
    scheduler.resume(key, key.resumed.size());
    if (key.forgetBefore != ActiveKey.NOTHING) {
      scheduler.forget(key);
    }
    return key;
  }

  /** Return true if the agent is paused, and events wait for it. */
  public boolean isPaused() {
    return control != null && control.isPaused() && scheduler.unfinished() > 0;
  }

  /** Refuse the events of a paused agent, because no record can resume it. */
  public void refusePaused() throws Exception {
    control.refusePaused();
    scheduler.pause(false);
    startTurns();
  }

  /** Apply the restored control records, and send them to the workers that accept turns. */
  public void restoreControl() throws Exception {
    if (control != null) {
      scheduler.pause(control.isPaused());
      if (control.isForWorkers()) {
        scheduler.sendToWorkers(controlFrame(List.of()));
      }
    }
  }

  /** Apply a control record. There is no current key. */
  public void control(String json) throws Exception {
    ControlRecord record = control.accept(json);
    if (record == null) {
      return;
    }
    if (!record.keys().isEmpty()) {
      for (String keyName : control.keys(record)) {
        erasure.begin(keyName);
      }
      startTurns();
      return;
    }
    if (record.isOfAgent() && control.isOperator(record.name())) {
      scheduler.pause(control.isPaused());
      startTurns();
      return;
    }
    scheduler.sendToWorkers(controlFrame(List.of()));
    List<byte[]> checked = control.checked(record);
    if (!checked.isEmpty()) {
      scheduler.sendToWorker(controlFrame(checked));
    }
  }

  /**
   * @param checked see {@link AgentControl#checked}; empty if the worker checks nothing
   */
  private byte[] controlFrame(List<byte[]> checked) throws IOException {
    return new FrameWriter(Frames.CONTROL)
        .u32(connection.operator())
        .u32(connection.planId())
        .bytes(control.forWorkers())
        .list(checked)
        .frame();
  }

  /** Add an event of the current key, and start its turn if that is possible. */
  public void accept(String keyName, byte[] event) throws Exception {
    ActiveKey key = active.get(keyName);
    if (key == null) {
      key = state.load(keyName, waits.state());
      waiting.load(key);
    }
    state.append(key, event);
    if (key.blocked) {
      // Only the state has the events behind a waiting turn.
      state.releaseFirst(key);
      return;
    }
    active.put(keyName, key);
    int added = 0;
    for (; key.epochs.size() < key.tail - key.head; added++) {
      key.epochs.addLast(gate.accept());
    }
    if (scheduler.add(key, added)) {
      startTurns();
      state.releaseFirst(key);
    }
  }

  /**
   * Accept an answer for the current key, and resume its turn.
   *
   * @param waitId the id or the name of the wait
   */
  public void answer(String keyName, String waitId, byte[] value) throws Exception {
    resumption.answer(keyName, waitId, value);
    startTurns();
  }

  /** Handle a timer of a wait of the current key. */
  public void timer(String keyName, String waitId) throws Exception {
    resumption.timer(keyName, waitId);
    startTurns();
  }

  /**
   * End the waits that no answer can reach, because the inputs have ended.
   *
   * @param sleeps end sleeps as well
   */
  public void endWaits(boolean sleeps) throws Exception {
    resumption.endWaits(sleeps);
    startTurns();
  }

  /** Report the answers that arrived early, and whose question no turn can ask any more. */
  public void endEarlyAnswers() throws Exception {
    resumption.endEarlyAnswers();
  }

  /** Emit a watermark after the turns of all earlier events have ended. */
  public void watermark(ThrowingRunnable<Exception> emit) throws Exception {
    gate.watermark(emit);
  }

  /** Emit a watermark status after the turns of all earlier events have ended. */
  public void status(ThrowingRunnable<Exception> emit) throws Exception {
    gate.status(emit);
  }

  /** Start the turns that can run, unless their results would have to wait. */
  public void startTurns() throws Exception {
    if (!outputs.isBlocked()) {
      scheduler.startTurns(this::start);
    }
  }

  private void start(Turn turn) throws Exception {
    ActiveKey key = turn.key;
    if (turn.forgets()) {
      TurnFrame.Resumed nothing = TurnFrame.Resumed.NOTHING;
      send(
          turn,
          TurnFrame.of(connection, turn, TurnState.Event.NONE, null, List.of(), nothing, null));
      return;
    }
    TurnState.Event event = event(turn);
    TurnFrame.Resumed resumed = waiting.start(key, turn.number);
    String reason = control == null ? null : control.refusal();
    byte[] refusal = reason == null ? null : FrameWriter.utf8(reason);
    List<byte[]> session = refusal == null ? state.session().toSend(key, turn.epoch) : null;
    List<byte[]> journal = state.journal(key);
    long size = TurnFrame.size(turn, event, session, journal, resumed, refusal);
    if (size > Frames.MAX_FRAME_BYTES) {
      connection.cancelStart(turn.slot.worker, turn.epoch);
      endWithoutWorker(
          turn, ErrorRecord.ofSize(connection.plan().json(), key.name, turn.number + 1, size));
      return;
    }
    send(turn, TurnFrame.of(connection, turn, event, session, journal, resumed, refusal));
  }

  /** Read the event of a turn, and set its current key and its timestamp. */
  private TurnState.Event event(Turn turn) throws Exception {
    keys.setCurrentKey(turn.key.name);
    TurnState.Event event = state.event(turn.key, turn.number);
    turn.timestamp = event.hasTimestamp() ? event.timestamp() : null;
    return event;
  }

  /** Start turns on a worker that has opened the plan. */
  public void workerReady(int worker, int epoch) throws Exception {
    if (scheduler.workerReady(worker, epoch)) {
      metrics.workerRestarts.inc();
    }
    if (control != null && control.isForWorkers()) {
      connection.send(worker, epoch, controlFrame(List.of()));
    }
    startTurns();
  }

  /** Queue the turns of a lost process, and end the turns that have run during too many crashes. */
  public void workerLost(int worker, int epoch) throws Exception {
    scheduler.workerLost(
        worker,
        epoch,
        turn ->
            endWithoutWorker(
                turn,
                ErrorRecord.ofCrashes(
                    connection.plan().json(), turn.key.name, turn.number + 1, turn.crashes)));
    startTurns();
  }

  /** Start turns on a worker that runs no other turns. */
  public void startSuspects(int worker, int epoch) throws Exception {
    scheduler.startSuspects(worker, epoch, this::start);
  }

  /** Apply a frame of a turn. A frame of a turn that the worker no longer runs has no effect. */
  public void apply(int worker, int epoch, Frame frame) throws Exception {
    long id = frame.u64();
    if (frame.type() == Frames.CONTROLLED) {
      control.reject(frame.str());
      return;
    }
    Turn turn = scheduler.find(id, worker, epoch);
    if (turn == null) {
      return;
    }
    keys.setCurrentKey(turn.key.name);
    switch (frame.type()) {
      case Frames.STEP -> step(turn, frame);
      case Frames.END -> end(turn, frame);
      case Frames.OUTPUTS -> outputs.emit(turn.timestamp, frame.outputs());
      case Frames.WAIT -> changeWait(turn, frame);
      case Frames.PARK -> resumption.park(turn);
      default -> sendSession(turn);
    }
  }

  private void sendSession(Turn turn) throws Exception {
    List<byte[]> chunks = state.session().read(turn.key);
    send(turn, Frames.session(connection.operator(), turn.id, turn.key.sessionVersion, chunks));
  }

  private void send(Turn turn, byte[] frame) {
    connection.send(turn.slot.worker, turn.epoch, frame);
  }

  private void step(Turn turn, Frame frame) throws Exception {
    boolean clear = (frame.u8() & Frames.STEP_CLEARS_JOURNAL) != 0;
    byte[] entry = frame.bytes();
    List<Frame.Output> emitted = frame.outputs();
    state.step(turn.key, clear, entry);
    if (!clear) {
      scheduler.finishedStep(turn);
    }
    // In the same mail: no checkpoint is between the step in the journal and its outputs.
    outputs.emit(turn.timestamp, emitted);
  }

  private void changeWait(Turn turn, Frame frame) throws Exception {
    int operation = frame.u8();
    String id = frame.str();
    String waitName = frame.str();
    long deadline = frame.u64();
    int flags = frame.u8();
    byte[] entry = frame.bytes();
    List<Frame.Output> emitted = frame.outputs();
    state.step(turn.key, false, entry);
    scheduler.finishedStep(turn);
    TurnWaits.Delivery delivery = resumption.change(turn, operation, id, waitName, deadline, flags);
    // In the same mail: no checkpoint is between the wait in the state and its question.
    outputs.emit(turn.timestamp, emitted);
    resumption.deliver(turn.key.name, delivery);
  }

  private void end(Turn turn, Frame frame) throws Exception {
    int flags = frame.u8();
    int status = flags & ~Frames.END_FORGETS;
    int sessionOp = frame.u8();
    List<byte[]> chunks = frame.list();
    List<Frame.Output> emitted = frame.outputs();
    String message = frame.str();
    if (status == Frames.END_FAIL_JOB) {
      throw new AgentTurnException(message);
    }
    if (turn.forgets()) {
      erasure.end(turn, message);
      return;
    }
    // A worker that cannot read the turn has not written the records of its waits.
    boolean isHead = endState(turn, sessionOp, chunks, turn.crashes <= maxCrashes);
    outputs.emit(turn.timestamp, emitted);
    ended(turn, isHead, status == Frames.END_ERROR_RECORD, message);
    if ((flags & Frames.END_FORGETS) != 0) {
      erasure.begin(turn.key, turn.number + 1);
    }
  }

  /** End a turn that no worker can end. */
  private void endWithoutWorker(Turn turn, ErrorRecord record) throws Exception {
    if (turn.forgets()) {
      keys.setCurrentKey(turn.key.name);
      erasure.end(turn, "all attempts crashed the worker");
      return;
    }
    event(turn);
    LOG.error("{}: {}", name, record.message());
    if (record.failsJob()) {
      throw new AgentTurnException(record.message());
    }
    boolean isHead = endState(turn, Frames.SESSION_KEEP, List.of(), false);
    outputs.emit(turn.timestamp, record.outputs());
    ended(turn, isHead, true, record.error());
  }

  /**
   * Write the end of a turn. Return false if other turns of its key have overtaken it.
   *
   * @param recorded whether the worker has written the records of the waits that end
   */
  private boolean endState(Turn turn, int sessionOp, List<byte[]> chunks, boolean recorded)
      throws Exception {
    ActiveKey key = turn.key;
    boolean isHead = turn.number == key.head;
    state.end(key, turn.number, turn.epoch, sessionOp, chunks);
    if (key.hasWaits) {
      waits.endTurn(key.name, turn.number, recorded);
    }
    return isHead;
  }

  private void ended(Turn turn, boolean isHead, boolean failed, String error) throws Exception {
    ActiveKey key = turn.key;
    metrics.ended(failed);
    counts.ended(error, key.name, turn.number + 1);
    EventTimeGate.Epoch accepted = isHead ? key.epochs.removeFirst() : gate.ungated();
    scheduler.stopped(turn, 1, accepted == gate.ungated() ? 1 : 0);
    if (key.isIdle()) {
      active.remove(key.name);
    }
    gate.ended(accepted);
  }
}
