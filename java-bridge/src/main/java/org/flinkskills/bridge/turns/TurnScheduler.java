package org.flinkskills.bridge.turns;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.util.function.ThrowingConsumer;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.pool.PoolConnection;
import org.flinkskills.bridge.turns.WorkerSlot.Turn;

/**
 * Scheduler of the turns of one operator: which turn runs next, and on which worker.
 *
 * <p>Turns of one key run sequentially, turns of different keys concurrently. At most {@code
 * maxInFlight} turns are in flight: a turn of an absent worker does not count, so that other
 * workers continue.
 *
 * <p>A turn that has run during several crashes of its worker is a suspect. Suspects run without
 * other turns, so that the cause of the next crash is among them.
 *
 * <p>The scheduler does not access state or outputs. Its caller does, in the functions that it
 * passes. Only the task's thread uses it.
 */
public final class TurnScheduler {
  /** The number of shares of the suspects of a crash. Each share runs by itself. */
  private static final int QUARANTINE_SHARES = 8;

  private final AgentSettings settings;
  private PoolConnection connection;
  private WorkerSlot[] slots;

  /** Turns that were started and have not ended, by their number in the frames. */
  private final Map<Long, Turn> started = new HashMap<>();

  private long nextTurn = 1;
  private int nextSlot;

  /** The number of events whose turns have not ended, without those that wait for an answer. */
  private int unfinished;

  /** The number of turns behind one of their key that have waited, or were behind such a turn. */
  private int backlog;

  /** The number of keys whose next turn can start. */
  private int ready;

  /** The number of started turns that a worker runs. Other started turns wait for their worker. */
  private int inFlight;

  private boolean paused;

  /** The number of events that may wait although the limit is lower, because of a pause. */
  private int allowance;

  public TurnScheduler(AgentSettings settings) {
    this.settings = settings;
  }

  /**
   * Connect the scheduler to the workers.
   *
   * @param readyEpochs for each worker the epoch in which it accepts turns, or 0
   */
  public void connect(PoolConnection connection, int[] readyEpochs) {
    this.connection = connection;
    slots = new WorkerSlot[connection.workers()];
    for (int i = 0; i < slots.length; i++) {
      slots[i] = new WorkerSlot(i);
      slots[i].epoch = readyEpochs[i];
      slots[i].wasLost = readyEpochs[i] == 0;
    }
  }

  public int unfinished() {
    return unfinished;
  }

  /** Return the number of started turns. */
  public int started() {
    return started.size();
  }

  /** Return the number of events whose turns have not started. */
  public int waiting() {
    return unfinished - started.size();
  }

  /**
   * Set whether no turn starts.
   *
   * <p>While the operator is paused, it accepts all events: otherwise it would read neither the
   * record that resumes it, nor the barriers of checkpoints. After the pause, the events that wait
   * already do not stop the inputs.
   */
  void pause(boolean pauses) {
    if (paused && !pauses) {
      allowance = waiting();
    }
    paused = pauses;
  }

  /** Add turns of the key that can run. Return true if one of them can start. */
  boolean add(ActiveKey key, int turns) {
    unfinished += turns;
    return makeReady(key);
  }

  /** Add turns of the key that have waited, or were behind such a turn. */
  void resume(ActiveKey key, int turns) {
    unfinished += turns;
    addWaited(key, turns);
    makeReady(key);
  }

  private void addWaited(ActiveKey key, int turns) {
    backlog -= Math.max(0, key.waited - 1);
    key.waited += turns;
    backlog += Math.max(0, key.waited - 1);
  }

  /** Add the turn that erases a key. It is the next one of the key. */
  void forget(ActiveKey key) {
    unfinished++;
    if (key.started == null) {
      makeReady(key);
    }
  }

  private boolean makeReady(ActiveKey key) {
    if (key.started == null && key.forgetBefore != ActiveKey.NOTHING) {
      WorkerSlot.of(slots, key.name).forgets.addLast(key);
      return false;
    }
    if (key.isReady || !key.canStart()) {
      return false;
    }
    key.isReady = true;
    WorkerSlot.of(slots, key.name).ready.addLast(key);
    ready++;
    return true;
  }

  /**
   * Return false if the operator must not accept further events.
   *
   * <p>Only the last accepted event may wait for capacity, so that a checkpoint barrier behind it
   * does not wait for a turn to end.
   *
   * <p>Keys of a worker that is absent or quarantined do not wait for capacity. They must not stop
   * the keys of other workers, so {@code maxPending} limits them, together with the events that
   * wait behind their key. Events that were behind a waiting turn are only in the state and do not
   * count: its answer must not stop the inputs.
   */
  public boolean acceptsMore() {
    if (paused) {
      return true;
    }
    if (allowance > 0) {
      allowance = Math.min(allowance, waiting());
    }
    int forCapacity = WorkerSlot.waitingForCapacity(slots);
    int forWorker = ready - forCapacity;
    int behindTheirKey = waiting() - ready - backlog;
    int limit = Math.max(settings.maxPending(), allowance);
    return forCapacity <= 1 && behindTheirKey + forWorker <= limit;
  }

  /** Send a frame to all workers that accept turns. */
  void sendToWorkers(byte[] frame) {
    for (WorkerSlot slot : slots) {
      if (slot.epoch != 0) {
        connection.send(slot.worker, slot.epoch, frame);
      }
    }
  }

  /** Send a frame to one of the workers that accept turns, if there is any. */
  void sendToWorker(byte[] frame) {
    for (WorkerSlot slot : slots) {
      if (slot.epoch != 0) {
        connection.send(slot.worker, slot.epoch, frame);
        return;
      }
    }
  }

  /** Return a turn that the worker runs in that epoch, or null. */
  Turn find(long id, int worker, int epoch) {
    Turn turn = started.get(id);
    return turn == null || turn.epoch != epoch || turn.slot.worker != worker ? null : turn;
  }

  /**
   * Start every turn that can run, and start the lost turns again.
   *
   * @param start sends a turn to its worker
   */
  void startTurns(ThrowingConsumer<Turn, Exception> start) throws Exception {
    nextSlot = (nextSlot + 1) % slots.length;
    for (int i = 0; i < slots.length; i++) {
      WorkerSlot slot = slots[(nextSlot + i) % slots.length];
      boolean accepts =
          slot.epoch != 0 && startForgets(slot, start) && !paused && startTurns(slot, start);
      slot.setAvailable(accepts);
      if (accepts && !slot.suspects.isEmpty() && !slot.exclusiveRequested) {
        slot.exclusiveRequested = true;
        connection.requestExclusive(slot.worker, slot.epoch);
      }
    }
  }

  /** Start the turns that erase keys. Return false if the worker does not accept turns. */
  private boolean startForgets(WorkerSlot slot, ThrowingConsumer<Turn, Exception> start)
      throws Exception {
    while (!slot.forgets.isEmpty() && inFlight < settings.maxInFlight()) {
      ActiveKey key = slot.forgets.peekFirst();
      boolean isDue = key.started == null && key.forgetBefore != ActiveKey.NOTHING;
      if (isDue && !connection.tryStart(slot.worker, slot.epoch)) {
        return false;
      }
      slot.forgets.removeFirst();
      if (isDue) {
        startNext(key, slot, start);
      }
    }
    return true;
  }

  /** Start turns on one worker. Return false if the worker does not accept turns. */
  private boolean startTurns(WorkerSlot slot, ThrowingConsumer<Turn, Exception> start)
      throws Exception {
    while (!slot.again.isEmpty() && inFlight < settings.maxInFlight()) {
      if (!connection.tryStart(slot.worker, slot.epoch)) {
        return false;
      }
      start(slot.again.removeFirst(), start);
    }
    while (!slot.ready.isEmpty() && inFlight < settings.maxInFlight()) {
      ActiveKey key = slot.ready.peekFirst();
      // A key that is erased leaves the queue when its turn has started or its events are erased.
      boolean isDue = key.canStart();
      if (isDue && !connection.tryStart(slot.worker, slot.epoch)) {
        return false;
      }
      slot.ready.removeFirst();
      key.isReady = false;
      ready--;
      if (isDue) {
        startNext(key, slot, start);
      }
    }
    return true;
  }

  private void startNext(ActiveKey key, WorkerSlot slot, ThrowingConsumer<Turn, Exception> start)
      throws Exception {
    Turn turn = new Turn(nextTurn++, key, slot);
    key.started = turn;
    started.put(turn.id, turn);
    start(turn, start);
  }

  private void start(Turn turn, ThrowingConsumer<Turn, Exception> start) throws Exception {
    turn.epoch = turn.slot.epoch;
    inFlight++;
    start.accept(turn);
  }

  /**
   * Remove a turn that has stopped from its worker and key.
   *
   * @param turns the number of turns of the key that cannot run any more
   * @param waited how many of them were added by {@link #resume}
   */
  void stopped(Turn turn, int turns, int waited) {
    turn.slot.leaveQuarantine(turn);
    started.remove(turn.id);
    turn.key.started = null;
    if (turn.epoch != 0) {
      inFlight--;
    }
    unfinished -= turns;
    addWaited(turn.key, -waited);
    makeReady(turn.key);
  }

  /** Clear the crashes of a turn that has finished a step, because it was not their cause. */
  void finishedStep(Turn turn) {
    // A turn that crashes its worker arrives at the same step again without a new one.
    turn.crashes = 0;
  }

  /** Accept a process of a worker. Return true if it replaces a lost process. */
  boolean workerReady(int worker, int epoch) {
    WorkerSlot slot = slots[worker];
    boolean replaced = slot.wasLost;
    slot.wasLost = false;
    slot.epoch = epoch;
    return replaced;
  }

  /**
   * Remove a lost process of a worker, and queue its turns.
   *
   * @param condemned ends a turn that has run during too many crashes
   */
  void workerLost(int worker, int epoch, ThrowingConsumer<Turn, Exception> condemned)
      throws Exception {
    WorkerSlot slot = slots[worker];
    slot.epoch = 0;
    slot.wasLost = true;
    slot.exclusiveRequested = false;
    boolean alone = slot.quarantined == 1;
    slot.quarantined = 0;
    List<Turn> lost = slot.turnsOf(epoch, started.values());
    inFlight -= lost.size();
    for (Turn turn : lost) {
      turn.epoch = 0;
      turn.quarantined = false;
      turn.lostTogether = lost.size();
      turn.crashes = settings.crashesAfter(turn.crashes, alone);
      if (settings.endsWithoutWorker(turn.crashes)) {
        condemned.accept(turn);
      } else {
        (settings.isSuspect(turn.crashes) ? slot.suspects : slot.again).addLast(turn);
      }
    }
  }

  /**
   * Start a share of the suspects of a worker, which the operator now has alone.
   *
   * <p>To run many suspects sequentially would take hours, although at most one is the cause. A
   * share with the cause is divided again.
   *
   * @param start sends a turn to its worker
   */
  void startSuspects(int worker, int epoch, ThrowingConsumer<Turn, Exception> start)
      throws Exception {
    WorkerSlot slot = slots[worker];
    if (slot.epoch != epoch) {
      return;
    }
    Turn first = slot.suspects.peekFirst();
    if (first == null) {
      slot.exclusiveRequested = false;
      connection.startExclusive(worker, epoch, 0);
      return;
    }
    int share = Math.min(Math.max(1, first.lostTogether / QUARANTINE_SHARES), slot.suspects.size());
    connection.startExclusive(worker, epoch, share);
    for (int i = 0; i < share; i++) {
      Turn turn = slot.suspects.removeFirst();
      turn.quarantined = true;
      slot.quarantined++;
      start(turn, start);
    }
  }
}
