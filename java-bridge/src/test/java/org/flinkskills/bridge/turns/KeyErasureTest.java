package org.flinkskills.bridge.turns;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.flink.metrics.Counter;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Metric;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.flinkskills.bridge.waits.KeyedWaits;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** Keys that are erased by a record or by a turn. */
@Timeout(60)
class KeyErasureTest {
  private static final String FORGET = "{'action':'forget','key':'a'}";
  private static final List<String> STATES = List.of("turns", "idle", "session", "journal");

  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();
  private final Map<String, Metric> metrics = new ConcurrentHashMap<>();
  private AgentHarness agent;

  @AfterEach
  void closeAgent() throws Exception {
    if (agent != null) {
      agent.close();
    }
  }

  private AgentHarness.Builder builder(FakeWorkers of) {
    return new AgentHarness.Builder(of.provider(), tmp)
        .plan("{\"agent_id\":\"desk\"}")
        .controlled()
        .metrics(metrics);
  }

  /** The keys of the tests are JSON, as those of jobs. */
  private void send(String event) throws Exception {
    agent.send("\"" + event.charAt(0) + "\"", event);
  }

  private long forgotten() {
    return ((Counter) metrics.get("forgotten")).getCount();
  }

  /** Take the turn that erases a key, and end it. */
  private void erase(FakeWorker worker) throws Exception {
    long before = forgotten();
    agent.await("the turn that erases", () -> !worker.turns.isEmpty());
    Turn turn = worker.takeTurn("");
    assertTrue((turn.flags() & Frames.TURN_FORGETS) != 0);
    worker.end(turn);
    agent.await("the key is erased", () -> forgotten() == before + 1);
  }

  private void assertNothingIsStored() {
    STATES.forEach(state -> assertEquals(0, agent.keysOf(state), state));
    assertEquals(0, agent.keysOf(KeyedTurns.PENDING));
    assertEquals(0, agent.keysOf(KeyedWaits.WAITS));
    assertEquals(0, pending());
    assertEquals(0, agent.numProcessingTimeTimers());
  }

  @SuppressWarnings("unchecked")
  private int pending() {
    return ((Gauge<Integer>) metrics.get("pending")).getValue();
  }

  @Test
  void theRunningTurnEndsFirstAndTheEventsBehindItAreErased() throws Exception {
    agent = builder(workers).open();
    FakeWorker worker = workers.only();
    send("a1");
    Turn running = worker.takeTurn("a1");
    worker.step(running, false, "a step");
    send("a2");
    agent.processWatermark(new Watermark(7));
    agent.control(FORGET);
    agent.runMails();
    assertTrue(worker.turns.isEmpty());
    worker.endWithSession(running, Frames.SESSION_REPLACE, "secret");
    erase(worker);
    assertNothingIsStored();
    assertEquals(List.of("out:a1", new Watermark(7).toString()), agent.emitted());
    send("a3");
    Turn next = worker.takeTurn("a3");
    assertEquals(1, next.number());
    assertEquals(0, next.sessionVersion());
  }

  @Test
  void eventsThatArriveLaterStay() throws Exception {
    agent = builder(workers).open();
    FakeWorker worker = workers.only();
    send("a1");
    Turn running = worker.takeTurn("a1");
    send("a2");
    agent.control(FORGET);
    send("a3");
    worker.end(running, "a1");
    erase(worker);
    worker.end(worker.takeTurn("a3"), "a3");
    agent.awaitEmitted(2);
    assertEquals(List.of("a1", "a3"), agent.emitted());
  }

  @Test
  void aPausedAgentErasesKeysAndOtherKeysKeepTheirEvents() throws Exception {
    agent = builder(workers).open();
    FakeWorker worker = workers.only();
    agent.control("{'action':'pause','agent':'desk','reason':'x'}");
    send("a1");
    send("b1");
    agent.control(FORGET);
    erase(worker);
    assertEquals(1, agent.keysOf(KeyedTurns.PENDING));
    agent.control("{'action':'resume','agent':'desk'}");
    worker.end(worker.takeTurn("b1"), "b1");
    agent.awaitEmitted(1);
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void turnsThatWaitAreErasedAndTheirQuestionsEnd(boolean overtake) throws Exception {
    agent = builder(workers).overtake(overtake).open();
    FakeWorker worker = workers.only();
    send("a1");
    Turn turn = worker.takeTurn("a1");
    worker.open(turn, "w1", "vote", System.currentTimeMillis() + 1_000_000, 0);
    worker.park(turn);
    agent.await("the turn waits", () -> waiting() == 1);
    if (!overtake) {
      send("a2");
    }
    agent.control(FORGET);
    send("a3");
    erase(worker);
    assertEquals(0, waiting());
    assertTrue(agent.emitted("waits").get(0).contains("cancelled"));
    worker.end(worker.takeTurn("a3"), "a3");
    agent.awaitEmitted(1);
    agent.control(FORGET);
    erase(worker);
    assertNothingIsStored();
  }

  @SuppressWarnings("unchecked")
  private int waiting() {
    return ((Gauge<Integer>) metrics.get("waiting")).getValue();
  }

  @Test
  void aRestoreRepeatsTheErasure() throws Exception {
    agent = builder(workers).open();
    send("a1");
    workers.only().takeTurn("a1");
    agent.control(FORGET);
    OperatorSubtaskState state = agent.snapshot(1, 1);
    agent.close();
    FakeWorkers others = new FakeWorkers();
    agent = builder(others).open(state);
    erase(others.only());
    assertNothingIsStored();
    assertEquals(List.of(), agent.emitted());
  }

  @Test
  void aTurnCanEraseItsKey() throws Exception {
    agent = builder(workers).events().open();
    FakeWorker worker = workers.only();
    send("a1");
    Turn turn = worker.takeTurn("a1");
    send("a2");
    int status = Frames.END_OK | Frames.END_FORGETS;
    worker.end(turn, status, Frames.SESSION_REPLACE, List.of("secret"), "", "a1");
    erase(worker);
    assertEquals(0, agent.keysOf("session"));
    Turn next = worker.takeTurn("a2");
    assertEquals(0, next.sessionVersion());
    assertFalse(agent.emitted("events").get(0).contains("\"a\""));
    assertTrue(agent.emitted("events").get(0).contains("key_sha256"));
  }

  @Test
  void whatTheWorkerCouldNotEraseIsAnErrorRecord() throws Exception {
    agent = builder(workers).open();
    FakeWorker worker = workers.only();
    agent.control("{'action':'forget','key':'[ 7, \\u0022x\\u0022 ]'}");
    // The record means a string or a list.
    for (int i = 0; i < 2; i++) {
      Turn turn = worker.takeTurn("");
      worker.end(turn, Frames.END_ERROR_RECORD, Frames.SESSION_KEEP, List.of(), "disk");
    }
    agent.await("two error records", () -> agent.emitted("errors").size() == 2);
    assertTrue(agent.emitted("errors").get(0).contains("not everywhere: disk"));
    assertNothingIsStored();
  }

  @Test
  void aStringThatBeginsWithANumberIsNoNumber() throws Exception {
    agent = builder(workers).open();
    agent.control("{'action':'forget','key':'12 Main Street'}");
    assertEquals("\"12 Main Street\"", workers.only().takeTurn("").key());
    agent.runMails();
    assertTrue(workers.only().turns.isEmpty());
  }

  @Test
  void onlyTheSubtaskOfAKeyErasesIt() throws Exception {
    int erasing = 0;
    for (int subtask = 0; subtask < 2; subtask++) {
      agent = builder(workers).subtask(subtask, 2).open();
      agent.control(FORGET);
      erasing += pending() + started();
      agent.close();
    }
    assertEquals(1, erasing);
  }

  @SuppressWarnings("unchecked")
  private int started() {
    return ((Gauge<Integer>) metrics.get("inFlight")).getValue();
  }
}
