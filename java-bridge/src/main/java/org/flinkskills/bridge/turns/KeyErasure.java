package org.flinkskills.bridge.turns;

import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.flink.runtime.state.KeyedStateBackend;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.flinkskills.bridge.metrics.AgentMetrics;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.flinkskills.bridge.outputs.ErrorRecord;
import org.flinkskills.bridge.outputs.RecordFormat;
import org.flinkskills.bridge.pool.PoolConnection;
import org.flinkskills.bridge.waits.TurnWaits;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Erasure of keys: the state, and what the worker has of a key.
 *
 * <p>A turn without an event erases the key in its worker. It is the next turn of its key, after
 * the one that runs, and {@code pending} has an entry for it until it ends. So a failover repeats
 * it. At its end the operator erases the state, with the events that arrived before.
 */
final class KeyErasure {
  private static final Logger LOG = LoggerFactory.getLogger(KeyErasure.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  private final KeyedStateBackend<String> keys;
  private final KeyedTurns state;
  private final TurnScheduler scheduler;
  private final PoolConnection connection;
  private final AgentOutputs outputs;
  private final AgentMetrics metrics;
  private final TurnCounts counts;
  private final TurnWaits waits;
  private final WaitingTurns waiting;
  private final EventTimeGate gate;
  private final Map<String, ActiveKey> active;

  KeyErasure(
      KeyedStateBackend<String> keys,
      KeyedTurns state,
      TurnScheduler scheduler,
      PoolConnection connection,
      AgentOutputs outputs,
      AgentMetrics metrics,
      TurnCounts counts,
      TurnWaits waits,
      WaitingTurns waiting,
      EventTimeGate gate,
      Map<String, ActiveKey> active) {
    this.keys = keys;
    this.state = state;
    this.scheduler = scheduler;
    this.connection = connection;
    this.outputs = outputs;
    this.metrics = metrics;
    this.counts = counts;
    this.waits = waits;
    this.waiting = waiting;
    this.gate = gate;
    this.active = active;
  }

  /** Erase a key with all its events. */
  void begin(String keyName) throws Exception {
    keys.setCurrentKey(keyName);
    ActiveKey key = active.get(keyName);
    if (key == null) {
      key = state.load(keyName, waits.state());
      waiting.load(key);
    }
    begin(key, key.tail);
  }

  /**
   * Erase the current key.
   *
   * @param before the number of the first event that stays
   */
  void begin(ActiveKey key, long before) throws Exception {
    boolean isNew = key.forgetBefore == ActiveKey.NOTHING;
    key.forgetBefore = Math.max(key.forgetBefore, before);
    state.putForget(key);
    active.put(key.name, key);
    if (isNew) {
      scheduler.forget(key);
    }
  }

  /**
   * Erase the state of the current key, after its worker has erased the rest.
   *
   * @param problem what the worker could not erase; empty if there is nothing
   */
  void end(WorkerSlot.Turn turn, String problem) throws Exception {
    ActiveKey key = turn.key;
    // Turns that have waited, and that later events have overtaken, are erased as well.
    key.forgetBefore = Math.max(key.forgetBefore, key.head);
    waiting.forget(waits.forget(key.name));
    boolean wasBlocked = key.blocked;
    List<EventTimeGate.Epoch> released = new ArrayList<>();
    for (long i = key.head; i < key.forgetBefore && !wasBlocked; i++) {
      released.add(key.epochs.removeFirst());
    }
    int resumed = key.resumed.size();
    int waited = Collections.frequency(released, gate.ungated()) + resumed;
    long number = key.turnsDone;
    state.erase(key);
    counts.forget(key.name);
    key.leaveForgotten();
    report(key.name, number, problem);
    scheduler.stopped(turn, 1 + released.size() + resumed, waited);
    if (wasBlocked) {
      for (long i = key.head; i < key.tail; i++) {
        key.epochs.addLast(gate.ungated());
      }
      scheduler.resume(key, key.epochs.size());
    }
    if (key.isIdle()) {
      active.remove(key.name);
    }
    for (EventTimeGate.Epoch epoch : released) {
      gate.ended(epoch);
    }
  }

  private void report(String keyName, long number, String problem) throws Exception {
    metrics.forgotten.inc();
    String plan = connection.plan().json();
    String digest = AgentControl.digest(keyName);
    if (!problem.isEmpty()) {
      String text =
          String.format(
              "The key with the SHA-256 %s is erased from the state, but not everywhere: %s. Fix"
                  + " the cause, and send the control record forget again.",
              digest, problem);
      LOG.error(text);
      outputs.emit(null, ErrorRecord.ofControl(plan, text).outputs());
    }
    if (connection.plan().events()) {
      RecordFormat format = new RecordFormat(plan);
      JsonNode detail = JSON.createObjectNode().put("key_sha256", digest);
      Map<String, Object> event =
          AgentControl.event("forget", digest + number, format.agent(), waits.now(), detail);
      event.put("status", problem.isEmpty() ? "ok" : "error");
      event.put("error", problem.isEmpty() ? null : problem);
      outputs.emit(null, format.encodeEvent(event));
    }
  }
}
