package org.flinkskills.bridge;

import java.io.IOException;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.python.shaded.net.razorvine.pickle.Pickler;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * The error record of a turn that no worker can end, or of an answer that no turn uses, and the
 * record of a wait that ends with such a turn. It has what the TaskManager knows: agent, key, turn
 * and error, as the records of workers ({@code flink_skills/agents/turn/turn_record.py}), and
 * neither the event nor the calls of the turn.
 */
final class ErrorRecord {
  private static final String TAG = "errors";
  private static final int LONGEST_ID = 200;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final JsonNode plan;
  private final String key;

  /** The number of the turn; null for an answer to no known turn. */
  private final Long number;

  private final String reason;

  /**
   * @param planJson the agent's plan
   */
  private ErrorRecord(String planJson, String key, Long number, String reason)
      throws JsonProcessingException {
    this.plan = JSON.readTree(planJson);
    this.key = key;
    this.number = number;
    this.reason = reason;
  }

  /**
   * The record of an answer that no turn uses.
   *
   * @param turn the number of the turn of the wait; null if it is not known
   */
  static ErrorRecord ofAnswer(String planJson, String key, Long turn, String waitId, String reason)
      throws JsonProcessingException {
    String id = waitId.length() <= LONGEST_ID ? waitId : waitId.substring(0, LONGEST_ID) + "…";
    return new ErrorRecord(
        planJson, key, turn, String.format("the answer to wait '%s' is not used. %s", id, reason));
  }

  /** The record of a turn whose workers died instead of returning one. */
  static ErrorRecord ofCrashes(String planJson, WorkerSlot.Turn turn)
      throws JsonProcessingException {
    String reason =
        String.format(
            "the turn crashed its worker process %d times, and no worker returned its error record:"
                + " read the reason in the TaskManager's log, before each line 'Restarting'",
            turn.crashes);
    return new ErrorRecord(planJson, turn.key.name, turn.number + 1, reason);
  }

  /** The record of a turn that no frame has room for. */
  static ErrorRecord ofSize(String planJson, WorkerSlot.Turn turn, long bytes)
      throws JsonProcessingException {
    String reason =
        String.format(
            "the event, the session and the finished steps of the turn have %d bytes, and a worker"
                + " accepts at most %d; pass large data by path or object key",
            bytes, Frames.MAX_FRAME_BYTES);
    return new ErrorRecord(planJson, turn.key.name, turn.number + 1, reason);
  }

  /** For the log and for a job that fails. */
  String message() {
    return String.format("key %s, turn %d failed: %s", key, number, reason);
  }

  /** Class and message of the error, as the record has them. */
  String error() {
    return "TurnError: " + reason;
  }

  /** Whether a failed turn fails the job. */
  boolean failsJob() {
    return plan.path("options").path("skills.turn.on-error").asText().equals("fail");
  }

  /** Returns the record, or a row of the table of errors, or nothing without such a table. */
  List<Frame.Output> outputs() throws IOException {
    return outputs(plan, TAG, record());
  }

  /**
   * Return the record of the side output {@code waits} for a wait that ended with its turn, as the
   * records of workers ({@code flink_skills/agents/rows/wait_record.py}). The state has neither the
   * question nor its payload: the record of the question has them, under the same id.
   */
  static List<Frame.Output> ofWait(
      String planJson, String key, String id, WaitState.Wait wait, long now) throws IOException {
    JsonNode plan = JSON.readTree(planJson);
    Map<String, Object> record = new LinkedHashMap<>();
    record.put("wait_id", id);
    record.put("status", "cancelled");
    record.put("agent", agent(plan));
    record.put("key", plain(key));
    record.put("turn", wait.turn() + 1);
    record.put("kind", wait.isIdOnly() ? "approval" : "wait");
    record.put("name", wait.name());
    record.put("question", "");
    record.put("payload", null);
    record.put("tool", "");
    record.put("arguments", null);
    record.put("deadline", wait.deadline() == WaitState.NO_DEADLINE ? null : wait.deadline());
    record.put("since", wait.since());
    record.put("attempt", null);
    record.put("answer", null);
    record.put("by", "");
    record.put("at", now);
    return outputs(plan, "waits", record);
  }

  private static List<Frame.Output> outputs(JsonNode plan, String tag, Map<String, Object> record)
      throws IOException {
    JsonNode rows = plan.path("rows");
    if (!rows.isObject()) {
      return List.of(output(tag, record));
    }
    JsonNode columns = rows.path(tag).path("columns");
    if (!columns.isArray()) {
      return List.of();
    }
    Object[] row = new Object[columns.size()];
    for (int i = 0; i < row.length; i++) {
      row[i] = value(columns.get(i), record);
    }
    return List.of(output(tag, row));
  }

  private static String agent(JsonNode plan) {
    String operator = plan.path("operator").asText("");
    return operator.isEmpty() ? plan.path("agent_id").asText("") : operator;
  }

  private Map<String, Object> record() {
    Map<String, Object> usage = new LinkedHashMap<>();
    for (String name : List.of("input_tokens", "output_tokens", "requests")) {
      usage.put(name, 0);
    }
    Map<String, Object> record = new LinkedHashMap<>();
    record.put("agent", agent(plan));
    record.put("key", plain(key));
    record.put("turn", number);
    record.put("output", null);
    record.put("error", error());
    record.put("skills", List.of());
    record.put("tool_calls", List.of());
    record.put("usage", usage);
    record.put("event", null);
    return record;
  }

  /** The key of its text, where that is JSON without the marks of other types. */
  private static Object plain(String key) {
    try {
      JsonNode node = JSON.readTree(key);
      return node.isContainerNode() ? key : JSON.treeToValue(node, Object.class);
    } catch (JsonProcessingException e) {
      return key;
    }
  }

  /** A column is {@code [name, [type, …], [path, …]]}; a path is a list of fields. */
  private static Object value(JsonNode column, Map<String, Object> record) {
    for (JsonNode path : column.path(2)) {
      Object found = path.size() == 1 ? record.get(path.path(0).asText()) : null;
      if (found != null) {
        return fitting(found, column.path(1).path(0).asText());
      }
    }
    return null;
  }

  private static Object fitting(Object value, String type) {
    return switch (type) {
      case "STRING", "VARCHAR", "CHAR" -> String.valueOf(value);
      case "BIGINT", "INTEGER", "INT" -> value instanceof Number ? value : null;
      case "TIMESTAMP_LTZ", "TIMESTAMP" -> value instanceof Long millis ? moment(millis) : null;
      default -> null;
    };
  }

  /** Seconds and nanoseconds, see {@link TableRows}. */
  private static Object[] moment(long millis) {
    return new Object[] {Math.floorDiv(millis, 1000L), Math.floorMod(millis, 1000) * 1_000_000};
  }

  private static Frame.Output output(String tag, Object value) throws IOException {
    return new Frame.Output(tag, new Pickler().dumps(value));
  }
}
