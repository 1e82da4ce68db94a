package org.flinkskills.bridge.operator;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.util.List;
import org.apache.flink.api.common.JobID;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.watermark.Watermark;
import org.flinkskills.bridge.AgentTurnException;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.flinkskills.bridge.streams.AgentStream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Outputs of steps, and events of workers outside turns. */
@Timeout(60)
class AgentEventsTest {
  private static final String EVENTS = AgentOutputs.EVENTS;

  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();

  private AgentHarness.Builder builder(FakeWorkers of) {
    return new AgentHarness.Builder(of.provider(), tmp);
  }

  @Test
  void outputsOfAStepAreEmittedWithTheTimestampOfItsEvent() throws Exception {
    try (AgentHarness agent = builder(workers).open()) {
      FakeWorker worker = workers.only();
      agent.send("a", "a1", 7);
      agent.processWatermark(new Watermark(50));
      Turn turn = worker.takeTurn("a1");
      worker.step(turn, false, "j1", "events>e1", "events>e2", "main of a step");
      agent.await("the outputs of the step", () -> agent.emitted(EVENTS).size() == 2);
      assertEquals(List.of("e1@7", "e2@7"), agent.emitted(EVENTS));
      // The turn continues, so no watermark has been emitted, and its outputs are never late.
      assertEquals(List.of("main of a step@7"), agent.emitted());
      worker.end(turn, "a1", "events>e3");
      agent.awaitEmitted(3);
      assertEquals(List.of("main of a step@7", "a1@7", "Watermark @ 50"), agent.emitted());
      assertEquals(List.of("e1@7", "e2@7", "e3@7"), agent.emitted(EVENTS));
    }
  }

  @Test
  void whatATurnTellsLeavesAtOnceAndIsInNoJournal() throws Exception {
    OperatorSubtaskState snapshot;
    try (AgentHarness agent = builder(workers).open()) {
      FakeWorker worker = workers.only();
      agent.send("a", "a1", 7);
      Turn turn = worker.takeTurn("a1");
      worker.output(turn, "events>p1", "events>p2");
      agent.await("the pieces", () -> agent.emitted(EVENTS).size() == 2);
      worker.step(turn, false, "j1", "events>e1");
      worker.output(turn, "events>p3");
      agent.await("all events", () -> agent.emitted(EVENTS).size() == 4);
      assertEquals(List.of("p1@7", "p2@7", "e1@7", "p3@7"), agent.emitted(EVENTS));
      snapshot = agent.snapshot(1, 1);
      worker.end(turn, "a1");
      agent.awaitEmitted(1);
      // The turn is over.
      worker.output(turn, "events>late");
      worker.events(turn.plan(), "after it");
      agent.await("what came after it", () -> agent.emitted(EVENTS).size() == 5);
      assertEquals("after it", agent.emitted(EVENTS).get(4));
    }
    FakeWorkers after = new FakeWorkers();
    try (AgentHarness agent = builder(after).open(snapshot)) {
      assertEquals(List.of("j1"), after.only().takeTurn("a1").journal());
      agent.runMails();
      assertEquals(List.of(), agent.emitted(EVENTS));
    }
  }

  /**
   * A checkpoint is between two mails. So the steps whose outputs were emitted before it are those
   * in the journal of the restored turn.
   */
  @Test
  void aCheckpointHasAStepAndItsEventsOrNeither() throws Exception {
    for (int steps = 0; steps <= 3; steps++) {
      FakeWorkers before = new FakeWorkers();
      OperatorSubtaskState snapshot;
      List<String> emitted;
      try (AgentHarness agent = builder(before).open()) {
        FakeWorker worker = before.only();
        agent.send("a", "a1");
        Turn turn = worker.takeTurn("a1");
        for (int step = 0; step < steps; step++) {
          worker.step(turn, false, "s" + step, "events>s" + step);
          int wanted = step + 1;
          agent.await("a step", () -> agent.emitted(EVENTS).size() == wanted);
        }
        snapshot = agent.snapshot(1, 1);
        emitted = List.copyOf(agent.emitted(EVENTS));
        worker.step(turn, false, "after the checkpoint", "events>after the checkpoint");
        agent.await("a step", () -> agent.emitted(EVENTS).size() > emitted.size());
      }
      FakeWorkers after = new FakeWorkers();
      try (AgentHarness agent = builder(after).open(snapshot)) {
        FakeWorker worker = after.only();
        Turn turn = worker.takeTurn("a1");
        assertEquals(emitted, turn.journal());
        // Steps in the journal emit nothing again.
        agent.runMails();
        assertEquals(List.of(), agent.emitted(EVENTS));
        worker.end(turn, "done", "events>end");
        agent.await("the end", () -> agent.emitted(EVENTS).size() == 1);
      }
    }
  }

  @Test
  void aWorkerThatDiesLeavesTheEventsOfFinishedStepsAlone() throws Exception {
    try (AgentHarness agent = builder(workers).open()) {
      FakeWorker first = workers.only();
      agent.send("a", "a1");
      Turn turn = first.takeTurn("a1");
      first.step(turn, false, "j1", "events>j1");
      agent.await("a step", () -> agent.emitted(EVENTS).size() == 1);
      first.die(9);
      FakeWorker second = workers.started(1);
      agent.await("the turn again", () -> !second.turns.isEmpty());
      Turn again = second.takeTurn("a1");
      assertEquals(List.of("j1"), again.journal());
      second.step(again, false, "j2", "events>j2");
      // The last frames of the dead worker are dropped: another worker runs its turn.
      second.end(again, "done");
      agent.awaitEmitted(1);
      assertEquals(List.of("j1", "j2"), agent.emitted(EVENTS));
    }
  }

  @Test
  void aTurnThatFailsTheJobEmitsNothing() throws Exception {
    AgentHarness agent = builder(workers).open();
    FakeWorker worker = workers.only();
    agent.send("a", "a1");
    worker.end(worker.takeTurn("a1"), Frames.END_FAIL_JOB, 0, List.of(), "bad", "events>end");
    assertThrows(
        AgentTurnException.class,
        () -> agent.await("the failure", () -> !agent.emitted(EVENTS).isEmpty()));
    assertEquals(List.of(), agent.emitted(EVENTS));
    agent.close();
  }

  @Test
  void eventsOutsideOfTurnsGoToOneOperatorOfThePlanWithoutATimestamp() throws Exception {
    workers.onOpen =
        (worker, open) -> {
          worker.events(open.plan(), "open", "diagnostic");
          worker.opened(open);
        };
    JobID job = new JobID();
    try (AgentHarness one = builder(workers).jobId(job).events().subtask(0, 2).open();
        AgentHarness two = builder(workers).jobId(job).events().subtask(1, 2).open()) {
      one.await("events", () -> one.emitted(EVENTS).size() == 2);
      workers.only().events(1, "refresh");
      one.await("events", () -> one.emitted(EVENTS).size() == 3);
      two.runMails();
      assertEquals(List.of("open", "diagnostic", "refresh"), one.emitted(EVENTS));
      assertEquals(List.of(), two.emitted(EVENTS));
      assertEquals(1, workers.launched.size());
      assertEquals(1, workers.only().opens.size());
    }
  }

  @Test
  void workersAreToldWhetherAnybodyAsksForEvents() throws Exception {
    JobID job = new JobID();
    try (AgentHarness without = builder(workers).jobId(job).open();
        AgentHarness with = builder(workers).jobId(job).events().open()) {
      // One plan each: a worker must not build events for a plan without a consumer.
      List<FakeWorkers.Open> opens = workers.only().opens;
      assertEquals(2, opens.size());
      assertTrue(opens.get(0).config().contains("\"events\":false"), opens.get(0).config());
      assertTrue(opens.get(1).config().contains("\"events\":true"), opens.get(1).config());
    }
  }

  @Test
  void onlyAnAgentHasEvents() {
    var numbers = StreamExecutionEnvironment.getExecutionEnvironment().fromData(new byte[] {1});
    IllegalArgumentException refused =
        assertThrows(IllegalArgumentException.class, () -> AgentStream.enableEvents(numbers));
    assertTrue(refused.getMessage().contains("Not the output of an agent"), refused.getMessage());
  }
}
