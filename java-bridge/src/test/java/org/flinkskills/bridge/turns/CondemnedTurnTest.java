package org.flinkskills.bridge.turns;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.flink.api.python.shaded.net.razorvine.pickle.Unpickler;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.types.Row;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.flinkskills.bridge.waits.WaitState;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A turn whose worker dies instead of returning its error record ends in the TaskManager. */
@Timeout(120)
class CondemnedTurnTest {
  private static final String ROWS =
      "{\"agent_id\": \"desk\", \"rows\": {\"errors\": {\"table\": \"failures\", \"columns\": ["
          + "[\"id\", [\"STRING\", true, 0, 0, []], [[\"event\", \"id\"], [\"key\"]]],"
          + "[\"turn\", [\"BIGINT\", true, 0, 0, []], [[\"turn\"]]],"
          + "[\"error\", [\"STRING\", true, 0, 0, []], [[\"error\"]]],"
          + "[\"at\", [\"TIMESTAMP\", true, 0, 0, []], [[\"timestamp\"]]]]}}}";

  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();

  private AgentHarness.Builder builder() {
    workers.onTurn =
        (worker, turn) -> {
          if (turn.event().equals("poison")) {
            worker.die(139);
          } else {
            worker.end(turn, turn.event());
          }
        };
    return new AgentHarness.Builder(workers.provider(), tmp).maxCrashes(2);
  }

  private static Object failure(AgentHarness agent) throws Exception {
    agent.await("the error record", () -> records(agent) != null);
    byte[] record = records(agent).peek().getValue();
    return new Unpickler().loads(record);
  }

  private static ConcurrentLinkedQueue<StreamRecord<byte[]>> records(AgentHarness agent) {
    return agent.getSideOutput(AgentOutputs.tag("errors"));
  }

  @Test
  void itHasAnErrorRecordAndItsKeyContinues() throws Exception {
    try (AgentHarness agent = builder().plan("{\"agent_id\": \"desk\", \"rows\": null}").open()) {
      agent.send("\"bad\"", "poison");
      agent.send("\"bad\"", "next");
      agent.send("\"good\"", "other");
      Map<?, ?> record = (Map<?, ?>) failure(agent);
      assertEquals("desk", record.get("agent"));
      assertEquals("bad", record.get("key"));
      assertEquals(1, ((Number) record.get("turn")).intValue());
      assertTrue(
          record.get("error").toString().startsWith("TurnError: the turn crashed its worker"),
          record.toString());
      agent.awaitEmitted(2);
      List<String> emitted = new ArrayList<>(agent.emitted());
      emitted.sort(null);
      assertEquals(List.of("next", "other"), emitted);
    }
  }

  @Test
  void anEventThatNoFrameHasRoomForHasAnErrorRecord() throws Exception {
    try (AgentHarness agent =
        builder().plan("{\"agent_id\": \"desk\", \"rows\": null}").maxInFlight(1).open()) {
      agent.processElement(new StreamRecord<>(Row.of("\"bad\"", new byte[Frames.MAX_FRAME_BYTES])));
      agent.send("\"bad\"", "next");
      agent.send("\"good\"", "other");
      Map<?, ?> record = (Map<?, ?>) failure(agent);
      assertEquals("bad", record.get("key"));
      assertTrue(record.get("error").toString().contains("at most 268435456"), record.toString());
      agent.awaitEmitted(2);
      assertEquals(1, workers.launched.size());
    }
  }

  @Test
  void aTableOfErrorsHasARow() throws Exception {
    try (AgentHarness agent = builder().plan(ROWS).open()) {
      agent.send("7", "poison");
      Object[] row = (Object[]) failure(agent);
      assertEquals("7", row[0]);
      assertEquals(1, ((Number) row[1]).intValue());
      assertTrue(row[2].toString().contains("no worker returned its error record"));
      assertEquals(null, row[3]);
      assertEquals(4, row.length, Arrays.toString(row));
    }
  }

  /** Let a turn ask two questions and sleep, and then crash its worker again and again. */
  private void askAndCrash(boolean withoutWorker) {
    workers.onTurn =
        (worker, turn) -> {
          if (turn.journal().isEmpty()) {
            worker.open(turn, "w1", "approval", 5000, WaitState.ID_ONLY);
            worker.open(turn, "w2", "sleep", 5000, WaitState.SLEEP);
            worker.open(turn, "w3", "answered", "outputs>asked");
            worker.close(turn, "w3");
          }
          if (turn.crashes() > 2 && !withoutWorker) {
            worker.end(
                turn, Frames.END_ERROR_RECORD, Frames.SESSION_KEEP, List.of(), "e", "errors>e");
          } else {
            worker.die(139);
          }
        };
  }

  private static List<Object> waits(AgentHarness agent) throws Exception {
    agent.await("the record of the wait", () -> !agent.emitted("waits").isEmpty());
    List<Object> found = new ArrayList<>();
    ConcurrentLinkedQueue<StreamRecord<byte[]>> records =
        agent.getSideOutput(AgentOutputs.tag("waits"));
    for (StreamRecord<byte[]> record : records) {
      found.add(new Unpickler().loads(record.getValue()));
    }
    return found;
  }

  @ParameterizedTest
  @ValueSource(booleans = {true, false})
  void itsOpenQuestionEnds(boolean withoutWorker) throws Exception {
    askAndCrash(withoutWorker);
    try (AgentHarness agent =
        new AgentHarness.Builder(workers.provider(), tmp)
            .maxCrashes(2)
            .plan("{\"agent_id\": \"desk\", \"rows\": null}")
            .open()) {
      agent.send("\"bad\"", "poison");
      List<Object> records = waits(agent);
      assertEquals(1, records.size());
      Map<?, ?> record = (Map<?, ?>) records.get(0);
      assertEquals("cancelled", record.get("status"));
      assertEquals(FakeWorkers.id("w1"), record.get("wait_id"));
      assertEquals("approval", record.get("kind"));
      assertEquals("approval", record.get("name"));
      assertEquals("bad", record.get("key"));
      assertEquals(1, ((Number) record.get("turn")).intValue());
      assertEquals(5000, ((Number) record.get("deadline")).longValue());
      assertEquals(1, agent.emitted("errors").size());
      agent.sendAnswer("\"bad\"", "w1", "late");
      assertTrue(agent.emitted("errors").get(1).contains("The turn of the wait has ended"));
    }
  }

  @Test
  void aTableOfQuestionsHasARowOfTheEnd() throws Exception {
    askAndCrash(true);
    String columns =
        "[\"wait\", [\"STRING\", true, 0, 0, []], [[\"wait_id\"]]],"
            + "[\"status\", [\"STRING\", true, 0, 0, []], [[\"status\"]]],"
            + "[\"deadline\", [\"TIMESTAMP_LTZ\", true, 3, 0, []], [[\"deadline\"]]],"
            + "[\"payload\", [\"STRING\", true, 0, 0, []], [[\"payload\"]]]";
    String plan =
        "{\"agent_id\": \"desk\", \"rows\": {\"waits\": {\"columns\": [" + columns + "]}}}";
    try (AgentHarness agent =
        new AgentHarness.Builder(workers.provider(), tmp).maxCrashes(2).plan(plan).open()) {
      agent.send("7", "poison");
      Object[] row = (Object[]) waits(agent).get(0);
      assertEquals(FakeWorkers.id("w1"), row[0]);
      assertEquals("cancelled", row[1]);
      assertEquals(5, ((Number) ((Object[]) row[2])[0]).intValue());
      assertEquals(null, row[3]);
    }
  }

  @Test
  void aJobThatEndsWithAFailedTurnFails() throws Exception {
    String plan = "{\"agent_id\": \"desk\", \"options\": {\"skills.turn.on-error\": \"fail\"}}";
    try (AgentHarness agent = builder().plan(plan).open()) {
      agent.send("k", "poison");
      Exception error =
          assertThrows(
              Exception.class, () -> agent.await("a failure", () -> records(agent) != null));
      assertTrue(causes(error).contains("no worker returned its error record"), causes(error));
    }
  }

  private static String causes(Throwable error) {
    StringBuilder found = new StringBuilder();
    for (Throwable cause = error; cause != null; cause = cause.getCause()) {
      found.append(cause).append('\n');
    }
    return new String(found.toString().getBytes(StandardCharsets.UTF_8), StandardCharsets.UTF_8);
  }
}
