package org.flinkskills.bridge.turns;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
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
import org.flinkskills.bridge.frames.FrameWriter;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Agents that control records pause, refuse and resume. */
@Timeout(60)
class AgentControlTest {
  private static final String PLAN =
      "{'agent_id':'desk','controlled':['desk','till'],'agents':{'ask':{'agent_id':'expert'}}}"
          .replace('\'', '"');
  private static final String PAUSE = "{'action':'pause','agent':'desk','reason':'loops'}";
  private static final String REFUSE = "{'action':'refuse','agent':'desk','reason':'loops'}";
  private static final String RESUME = "{'action':'resume','agent':'desk'}";
  private static final String NO_TOOL = "{'action':'refuse','tool':'pay','reason':'twice'}";

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

  private AgentHarness.Builder builder() {
    return new AgentHarness.Builder(workers.provider(), tmp)
        .plan(PLAN)
        .controlled()
        .metrics(metrics);
  }

  private void run(FakeWorker worker, String event) throws Exception {
    int before = agent.getOutput().size();
    worker.end(worker.takeTurn(event), event);
    agent.awaitEmitted(before + 1);
  }

  @SuppressWarnings("unchecked")
  private int gauge(String name) {
    return ((Gauge<Integer>) metrics.get(name)).getValue();
  }

  @Test
  void aPausedAgentAcceptsAllEventsAndStartsThemInOrderAfterwards() throws Exception {
    agent = builder().maxInFlight(1).maxPending(1).open();
    FakeWorker worker = workers.only();
    agent.control(PAUSE);
    assertEquals(1, gauge("paused"));
    // Without the pause the operator would accept one event and wait.
    for (String event : List.of("a1", "b1", "a2", "a3", "c1")) {
      agent.send(event.substring(0, 1), event);
    }
    agent.runMails();
    assertTrue(worker.turns.isEmpty());
    assertEquals(5, gauge("pending"));
    agent.control(RESUME);
    assertEquals(0, gauge("paused"));
    for (String event : List.of("a1", "b1", "c1", "a2", "a3")) {
      run(worker, event);
    }
    assertEquals(List.of("a1", "b1", "c1", "a2", "a3"), agent.emitted());
  }

  @Test
  void aTurnThatRunsEndsWhileItsAgentIsPaused() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a1");
    Turn turn = worker.takeTurn("a1");
    agent.control(PAUSE);
    agent.send("a", "a2");
    worker.end(turn, "a1");
    agent.awaitEmitted(1);
    assertTrue(worker.turns.isEmpty());
    agent.control(RESUME);
    run(worker, "a2");
  }

  @Test
  void watermarksWaitForTheEventsOfAPausedAgent() throws Exception {
    agent = builder().open();
    agent.control(PAUSE);
    agent.send("a", "a1", 5);
    agent.processWatermark(new Watermark(10));
    assertEquals(List.of(), agent.emitted());
    agent.control(RESUME);
    workers.only().end(workers.only().takeTurn("a1"), "a1");
    agent.awaitEmitted(2);
    assertEquals("a1@5", agent.emitted().get(0));
  }

  @Test
  void aRestoreContinuesThePauseAndTheRecordsForWorkers() throws Exception {
    agent = builder().open();
    agent.control(PAUSE);
    agent.control(NO_TOOL);
    agent.send("a", "a1");
    OperatorSubtaskState state = agent.snapshot(1, 1);
    agent.close();
    FakeWorkers others = new FakeWorkers();
    agent =
        new AgentHarness.Builder(others.provider(), tmp)
            .plan(PLAN)
            .controlled()
            .metrics(metrics)
            .open(state);
    FakeWorker worker = others.only();
    assertTrue(worker.controls.take().contains("\"name\":\"pay\""));
    agent.runMails();
    assertEquals(1, gauge("paused"));
    assertTrue(worker.turns.isEmpty());
    agent.control(RESUME);
    run(worker, "a1");
  }

  @Test
  void aJobWithoutAControlStreamRunsAPausedAgent() throws Exception {
    agent = builder().open();
    agent.control(PAUSE);
    agent.send("a", "a1");
    OperatorSubtaskState state = agent.snapshot(1, 1);
    agent.close();
    FakeWorkers others = new FakeWorkers();
    agent = new AgentHarness.Builder(others.provider(), tmp).plan(PLAN).open(state);
    run(others.only(), "a1");
  }

  @Test
  void refusedEventsGoToTheWorkerWithTheReason() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.send("a", "a1");
    Turn running = worker.takeTurn("a1");
    assertNull(running.refusal());
    agent.control(REFUSE);
    agent.send("b", "b1");
    assertEquals("loops", worker.takeTurn("b1").refusal());
    worker.end(running, "a1");
    agent.awaitEmitted(1);
  }

  @Test
  void aNewWorkerReceivesTheEntries() throws Exception {
    agent = builder().open();
    agent.control(NO_TOOL);
    assertTrue(workers.only().controls.take().contains("\"reason\":\"twice\""));
    workers.only().die(1);
    FakeWorker next = workers.started(1);
    agent.await("the entries in the next worker", () -> !next.controls.isEmpty());
  }

  @Test
  void aWorkerChecksNamesAndItsProblemIsAnErrorRecord() throws Exception {
    agent = builder().open();
    FakeWorker worker = workers.only();
    agent.control("{'action':'refuse','tool':'pya','agent':'desk','reason':'twice'}");
    assertTrue(worker.controls.take().contains("\"agent\":\"\""));
    worker.controls.take();
    assertEquals(List.of("tool", "pya", "error"), checked(worker));
    worker.answer(new FrameWriter(Frames.CONTROLLED).u32(1).u64(0).str("'pya' matches no tool"));
    agent.await("an error record", () -> !agent.emitted("errors").isEmpty());
    assertTrue(agent.emitted("errors").get(0).contains("'pya' matches no tool"));
    // Another agent may have the tool.
    agent.control(NO_TOOL);
    worker.controls.take();
    worker.controls.take();
    assertEquals(List.of("tool", "pay", "log"), checked(worker));
  }

  private static List<String> checked(FakeWorker worker) throws InterruptedException {
    return List.of(worker.controls.take(), worker.controls.take(), worker.controls.take());
  }

  @Test
  void recordsForOtherAgentsHaveNoEffectAndUnknownNamesAreErrors() throws Exception {
    agent = builder().open();
    agent.control("{'action':'pause','agent':'till','reason':'x'}");
    agent.control("{'action':'refuse','agent':'expert','reason':'x'}");
    assertEquals(List.of(), agent.emitted("errors"));
    assertTrue(workers.only().controls.take().contains("expert"));
    agent.control("{'action':'pause','agent':'dek','reason':'x'}");
    assertTrue(agent.emitted("errors").get(0).contains("Use one of [desk, expert, till]"));
    assertEquals(1, ((Counter) metrics.get("unusedControlRecords")).getCount());
    assertEquals(3, ((Counter) metrics.get("controlRecords")).getCount());
  }

  @Test
  void onlyTheFirstAgentAndItsFirstSubtaskReport() throws Exception {
    agent = builder().subtask(1, 2).open();
    agent.control("{'action':'pause','agent':'dek','reason':'x'}");
    assertEquals(List.of(), agent.emitted("errors"));
    agent.close();
    agent = builder().plan(PLAN.replace("\"agent_id\":\"desk\"", "\"agent_id\":\"till\"")).open();
    agent.control("{'action':'pause','agent':'dek','reason':'x'}");
    assertEquals(List.of(), agent.emitted("errors"));
  }
}
