package org.flinkskills.bridge.turns;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.pool.PoolConnection;
import org.flinkskills.bridge.turns.WorkerSlot.Turn;
import org.flinkskills.bridge.waits.TurnWaits;
import org.flinkskills.bridge.waits.WaitState;

/**
 * Stops and resumes of waiting turns: it applies changes of waits, delivers answers, and adds the
 * turns that can resume to {@link TurnScheduler}.
 *
 * <p>Each method but {@link #endWaits} and {@link #endEarlyAnswers} accesses the current key.
 */
final class TurnResumption {
  private final KeyedStateBackend<String> keys;
  private final KeyedTurns state;
  private final TurnScheduler scheduler;
  private final PoolConnection connection;
  private final TurnWaits waits;
  private final WaitingTurns waiting;
  private final EventTimeGate gate;
  private final Map<String, ActiveKey> active;

  /**
   * @param keys sets the current key of the states
   * @param active the keys with unfinished events
   */
  TurnResumption(
      KeyedStateBackend<String> keys,
      KeyedTurns state,
      TurnScheduler scheduler,
      PoolConnection connection,
      TurnWaits waits,
      WaitingTurns waiting,
      EventTimeGate gate,
      Map<String, ActiveKey> active) {
    this.keys = keys;
    this.state = state;
    this.scheduler = scheduler;
    this.connection = connection;
    this.waits = waits;
    this.waiting = waiting;
    this.gate = gate;
    this.active = active;
  }

  /**
   * Accept an answer.
   *
   * @param waitId the id or the name of the wait
   */
  void answer(String keyName, String waitId, byte[] value) throws Exception {
    WaitState.Answer answer = new WaitState.Answer(Frames.ANSWERED, waits.now(), value);
    deliver(keyName, waits.answer(keyName, waitId, answer));
  }

  /** Handle a timer of a wait. */
  void timer(String keyName, String waitId) throws Exception {
    deliver(keyName, waits.timer(keyName, waitId));
  }

  /**
   * End the waits that no answer can reach.
   *
   * @param sleeps end sleeps as well
   */
  void endWaits(boolean sleeps) throws Exception {
    waits.endInput(sleeps);
    for (String keyName : keyNames()) {
      keys.setCurrentKey(keyName);
      for (long turn : waits.state().turns().keySet()) {
        if (waiting.isWaiting(turn)) {
          for (TurnWaits.Delivery ended : waits.endWaits(turn)) {
            deliver(keyName, ended);
          }
        }
      }
    }
  }

  /** Report the answers without a question. */
  void endEarlyAnswers() throws Exception {
    for (String keyName : keyNames()) {
      keys.setCurrentKey(keyName);
      waits.endEarly(keyName);
    }
  }

  private List<String> keyNames() {
    return waits.state().exist() ? waits.state().keyNames() : List.of();
  }

  /**
   * Apply a change of a wait of a running turn.
   *
   * @param operation one of the operations in {@link Frames}
   * @return the answer for the turn, or null
   */
  TurnWaits.Delivery change(
      Turn turn, int operation, String id, String waitName, long deadline, int flags)
      throws Exception {
    switch (operation) {
      case Frames.WAIT_OPEN -> {
        turn.key.hasWaits = true;
        return waits.open(turn.key.name, turn.number, id, waitName, flags, deadline);
      }
      case Frames.WAIT_CLOSE -> {
        waits.close(turn.key.name, id, (flags & WaitState.UNANSWERED) == 0);
        return null;
      }
      case Frames.WAIT_REJECT -> {
        return waits.reject(turn.key.name, id);
      }
      default -> {
        WaitState.Answer cancel = WaitState.Answer.without(Frames.CANCELLED, waits.now());
        return waits.answer(turn.key.name, id, cancel);
      }
    }
  }

  /** Send an answer to its turn, or let the turn resume. */
  void deliver(String keyName, TurnWaits.Delivery delivery) throws Exception {
    if (delivery == null) {
      return;
    }
    ActiveKey key = active.get(keyName);
    if (key != null && key.started != null && key.started.number == delivery.turn()) {
      Turn turn = key.started;
      if (turn.epoch != 0) {
        connection.send(
            turn.slot.worker,
            turn.epoch,
            TurnFrame.answer(connection.operator(), turn.id, delivery.waitId(), delivery.answer()));
      }
      return;
    }
    if (!waiting.isWaiting(delivery.turn()) || key != null && key.resumes(delivery.turn())) {
      return;
    }
    if (key == null) {
      key = state.load(keyName, waits.state());
      waiting.load(key);
      active.put(keyName, key);
    }
    key.hasWaits = true;
    if (delivery.turn() == key.head) {
      key.blocked = false;
      // Watermarks have passed the events of the key.
      for (long i = key.head; i < key.tail; i++) {
        key.epochs.addLast(gate.ungated());
      }
      scheduler.resume(key, key.epochs.size());
    } else {
      key.resumed.add(delivery.turn());
      scheduler.resume(key, 1);
    }
  }

  /** Stop a turn until one of its waits has an answer. */
  void park(Turn turn) throws Exception {
    ActiveKey key = turn.key;
    if (waits.state().answers(turn.number).isEmpty()) {
      waits.endWaits(turn.number);
    }
    if (!waits.state().answers(turn.number).isEmpty()) {
      // An answer has arrived in the meantime, or the inputs have ended.
      key.owner = turn.number;
      scheduler.stopped(turn, 0, 0);
      return;
    }
    List<EventTimeGate.Epoch> released = new ArrayList<>();
    if (!waiting.isOvertaken(key, turn.number)) {
      key.blocked = true;
      released.addAll(key.epochs);
      key.epochs.clear();
    } else if (turn.number == key.head) {
      released.add(key.epochs.removeFirst());
    } else {
      released.add(gate.ungated());
    }
    waiting.park(key, turn.number);
    int waited = Collections.frequency(released, gate.ungated());
    scheduler.stopped(turn, released.size(), waited);
    if (key.isIdle()) {
      active.remove(key.name);
    }
    // Last, because a watermark can make timers fire.
    for (EventTimeGate.Epoch epoch : released) {
      gate.ended(epoch);
    }
  }
}
