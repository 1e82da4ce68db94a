package org.flinkskills.bridge;

import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Stream;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.util.function.ThrowingRunnable;
import org.flinkskills.bridge.WorkerSlot.Turn;
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
final class TurnRunner {
  private static final Logger LOG = LoggerFactory.getLogger(TurnRunner.class);

  private final String name;
  private final KeyedStateBackend<String> keys;
  private final KeyedTurns state;
  private final TurnScheduler scheduler;
  private final PoolConnection connection;
  private final AgentOutputs outputs;
  private final AgentMetrics metrics;
  private final TurnCounts counts;

  private final EventTimeGate gate = new EventTimeGate();

  /** Keys with unfinished events. */
  private final Map<String, ActiveKey> active = new HashMap<>();

  /**
   * @param name the name of the operator in logs
   * @param keys sets the current key of {@code state}
   */
  TurnRunner(
      String name,
      KeyedStateBackend<String> keys,
      KeyedTurns state,
      TurnScheduler scheduler,
      PoolConnection connection,
      AgentOutputs outputs,
      AgentMetrics metrics,
      TurnCounts counts) {
    this.name = name;
    this.keys = keys;
    this.state = state;
    this.scheduler = scheduler;
    this.connection = connection;
    this.outputs = outputs;
    this.metrics = metrics;
    this.counts = counts;
  }

  /** Add the unfinished events of the restored state. */
  void restore() throws Exception {
    Set<String> names = new LinkedHashSet<>();
    try (Stream<String> pending = keys.getKeys(KeyedTurns.PENDING, VoidNamespace.INSTANCE)) {
      pending.forEach(names::add);
    }
    for (String keyName : names) {
      keys.setCurrentKey(keyName);
      ActiveKey key = state.restore(keyName);
      for (long i = key.head; i < key.tail; i++) {
        add(key);
      }
      if (!key.epochs.isEmpty()) {
        active.put(keyName, key);
      }
    }
    if (scheduler.unfinished() > 0) {
      LOG.info("{} restored {} unfinished events.", name, scheduler.unfinished());
    }
  }

  /** Add an event of the current key, and start its turn if that is possible. */
  void accept(String keyName, byte[] event) throws Exception {
    ActiveKey key = active.get(keyName);
    if (key == null) {
      key = state.load(keyName);
      active.put(keyName, key);
    }
    state.append(key, event);
    if (add(key)) {
      startTurns();
      state.releaseFirst(key);
    }
  }

  private boolean add(ActiveKey key) {
    key.epochs.addLast(gate.accept());
    return scheduler.add(key);
  }

  /** Emit a watermark after the turns of all earlier events have ended. */
  void watermark(ThrowingRunnable<Exception> emit) throws Exception {
    gate.watermark(emit);
  }

  /** Emit a watermark status after the turns of all earlier events have ended. */
  void status(ThrowingRunnable<Exception> emit) throws Exception {
    gate.status(emit);
  }

  /** Start the turns that can run, unless their results would have to wait. */
  void startTurns() throws Exception {
    if (!outputs.isBlocked()) {
      scheduler.startTurns(this::start);
    }
  }

  private void start(Turn turn) throws Exception {
    ActiveKey key = turn.key;
    TurnState.Event event = event(turn);
    List<byte[]> session = state.sessionToSend(key, turn.epoch);
    List<byte[]> journal = state.journal(key);
    long size = TurnFrame.size(turn, event, session, journal);
    if (size > Frames.MAX_FRAME_BYTES) {
      connection.cancelStart(turn);
      endWithoutWorker(turn, ErrorRecord.ofSize(connection.plan().json(), turn, size));
      return;
    }
    connection.send(turn, TurnFrame.of(connection, turn, event, session, journal));
  }

  /** Read the event of a turn, and set its current key and its timestamp. */
  private TurnState.Event event(Turn turn) throws Exception {
    keys.setCurrentKey(turn.key.name);
    TurnState.Event event = state.head(turn.key);
    turn.timestamp = event.hasTimestamp() ? event.timestamp() : null;
    return event;
  }

  /** Start turns on a worker that has opened the plan. */
  void workerReady(int worker, int epoch) throws Exception {
    if (scheduler.workerReady(worker, epoch)) {
      metrics.workerRestarts.inc();
    }
    startTurns();
  }

  /** Queue the turns of a lost process, and end the turns that have run during too many crashes. */
  void workerLost(int worker, int epoch) throws Exception {
    scheduler.workerLost(
        worker,
        epoch,
        turn -> endWithoutWorker(turn, ErrorRecord.ofCrashes(connection.plan().json(), turn)));
    startTurns();
  }

  /** Start turns on a worker that runs no other turns. */
  void startSuspects(int worker, int epoch) throws Exception {
    scheduler.startSuspects(worker, epoch, this::start);
  }

  /** Apply a frame of a turn. A frame of a turn that the worker no longer runs has no effect. */
  void apply(int worker, int epoch, Frames.Frame frame) throws Exception {
    Turn turn = scheduler.find(frame.u64(), worker, epoch);
    if (turn == null) {
      return;
    }
    keys.setCurrentKey(turn.key.name);
    switch (frame.type()) {
      case Frames.STEP -> step(turn, frame);
      case Frames.END -> end(turn, frame);
      case Frames.OUTPUTS -> outputs.emit(turn.timestamp, frame.outputs());
      default -> sendSession(turn);
    }
  }

  private void sendSession(Turn turn) throws Exception {
    List<byte[]> chunks = state.session(turn.key);
    connection.send(
        turn, Frames.session(connection.operator(), turn.id, turn.key.sessionVersion, chunks));
  }

  private void step(Turn turn, Frames.Frame frame) throws Exception {
    boolean clear = (frame.u8() & Frames.STEP_CLEARS_JOURNAL) != 0;
    byte[] entry = frame.bytes();
    List<Frames.Output> emitted = frame.outputs();
    state.step(turn.key, clear, entry);
    if (!clear) {
      scheduler.finishedStep(turn);
    }
    // In the same mail: no checkpoint is between the step in the journal and its outputs.
    outputs.emit(turn.timestamp, emitted);
  }

  private void end(Turn turn, Frames.Frame frame) throws Exception {
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
    ended(turn, status == Frames.END_ERROR_RECORD, message);
  }

  /** End a turn that no worker can end. */
  private void endWithoutWorker(Turn turn, ErrorRecord record) throws Exception {
    event(turn);
    LOG.error("{}: {}", name, record.message());
    if (record.failsJob()) {
      throw new AgentTurnException(record.message());
    }
    state.end(turn.key, turn.epoch, Frames.SESSION_KEEP, List.of());
    outputs.emit(turn.timestamp, record.outputs());
    ended(turn, true, record.error());
  }

  private void ended(Turn turn, boolean failed, String error) throws Exception {
    ActiveKey key = turn.key;
    metrics.ended(failed);
    counts.ended(error, key.name, key.turnsDone);
    EventTimeGate.Epoch accepted = key.epochs.removeFirst();
    if (key.epochs.isEmpty()) {
      active.remove(key.name);
    }
    scheduler.ended(turn);
    gate.ended(accepted);
  }
}
