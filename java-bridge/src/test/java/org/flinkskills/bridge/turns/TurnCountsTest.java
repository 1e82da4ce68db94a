package org.flinkskills.bridge.turns;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.io.File;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.JobID;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Turns and failed turns are accumulators of the job, whose numbers continue after a restart. */
@Timeout(60)
class TurnCountsTest {
  private static final JobID JOB = new JobID();

  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();

  private AgentHarness.Builder builder(JobID job) {
    workers.onTurn =
        (worker, turn) -> {
          String event = turn.event();
          boolean failed = event.contains("Error");
          worker.end(
              turn,
              failed ? Frames.END_ERROR_RECORD : Frames.END_OK,
              Frames.SESSION_KEEP,
              List.of(),
              failed ? event : "",
              event);
        };
    return new AgentHarness.Builder(workers.provider(), tmp).jobId(job);
  }

  /** The accumulators without the name of the operator, which begins each of their names. */
  private static Map<String, Object> counts(AgentHarness agent) throws Exception {
    Map<String, Object> found = new TreeMap<>();
    agent
        .getEnvironment()
        .getAccumulatorRegistry()
        .getSnapshot()
        .deserializeUserAccumulators(TurnCountsTest.class.getClassLoader())
        .forEach(
            (name, value) ->
                found.put(name.substring(name.indexOf(": ") + 2), value.getLocalValue()));
    return found;
  }

  @Test
  void theyAreCountedByTheClassOfTheError() throws Exception {
    try (AgentHarness agent = builder(JOB).open()) {
      assertEquals(Map.of("turns", 0L), counts(agent));
      agent.send("\"a\"", "fine");
      agent.send("\"a\"", "KeyError: 'x: y'");
      agent.send("\"a\"", "ValueError: z");
      agent.send("\"a\"", "KeyError: other");
      agent.endInput();
      assertEquals(
          Map.of(
              "turns",
              4L,
              "failed turns: KeyError",
              2L,
              "failed turns: ValueError",
              1L,
              "first failure",
              List.of("KeyError: 'x: y' (key \"a\", turn 2)")),
          counts(agent));
    }
  }

  @Test
  void theyContinueAfterARestartAndNotInAnotherJob() throws Exception {
    OperatorSubtaskState snapshot;
    try (AgentHarness agent = builder(JOB).open()) {
      agent.send("\"a\"", "KeyError: one");
      agent.send("\"a\"", "fine");
      agent.awaitEmitted(2);
      snapshot = agent.snapshot(1, 1);
      // Repeated after the restart, and counted once.
      agent.send("\"a\"", "KeyError: late");
      agent.awaitEmitted(3);
    }
    try (AgentHarness agent = builder(JOB).open(snapshot)) {
      agent.send("\"a\"", "KeyError: late");
      agent.endInput();
      assertEquals(
          Map.of(
              "turns",
              3L,
              "failed turns: KeyError",
              2L,
              "first failure",
              List.of("KeyError: one (key \"a\", turn 1)")),
          counts(agent));
    }
    try (AgentHarness agent = builder(new JobID()).open(snapshot)) {
      assertEquals(Map.of("turns", 0L), counts(agent));
    }
  }

  @Test
  void theirSumStaysWhenTheParallelismChanges() throws Exception {
    OperatorSubtaskState snapshot;
    try (AgentHarness agent = builder(JOB).open()) {
      agent.send("\"a\"", "KeyError: one");
      agent.send("\"b\"", "fine");
      agent.awaitEmitted(2);
      snapshot = agent.snapshot(1, 1);
    }
    long turns = 0;
    for (int subtask = 0; subtask < 2; subtask++) {
      OperatorSubtaskState part =
          AgentHarness.repartitionOperatorState(
              snapshot, AgentHarness.MAX_PARALLELISM, 1, 2, subtask);
      try (AgentHarness agent = builder(JOB).subtask(subtask, 2).open(part)) {
        turns += (Long) counts(agent).get("turns");
      }
    }
    assertEquals(2, turns);
  }

  @Test
  void theNumberOfKindsIsBounded() throws Exception {
    try (AgentHarness agent = builder(JOB).open()) {
      for (int i = 0; i < 60; i++) {
        agent.send("\"a\"", "Error" + i + ": x");
      }
      agent.endInput();
      Map<String, Object> counts = counts(agent);
      assertEquals(53, counts.size(), "turns, the first failure, 50 kinds and the others");
      assertEquals(10L, counts.get("failed turns: others"));
    }
  }
}
