package org.flinkskills.bridge;

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
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

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
