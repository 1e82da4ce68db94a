package org.flinkskills.bridge.outputs;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.python.shaded.net.razorvine.pickle.Pickler;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.flinkskills.bridge.frames.Frame;

/**
 * Format of an agent's records in its side outputs: a pickled dict, or a row of the agent's table
 * for that output.
 */
public final class RecordFormat {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** The start of a pickle of an event: the protocol, and the Python function that returns it. */
  private static final byte[] EVENT_OF =
      "\u0080\u0002cflink_skills.telemetry.event_record\nevent_of_fields\n"
          .getBytes(StandardCharsets.ISO_8859_1);

  /** The end: the call of the function with a tuple of one item. */
  private static final byte[] CALL = "\u0085R.".getBytes(StandardCharsets.ISO_8859_1);

  private static final int PROTOCOL_BYTES = 2;

  private final JsonNode plan;

  /**
   * @param planJson the agent's plan
   */
  public RecordFormat(String planJson) throws JsonProcessingException {
    this.plan = JSON.readTree(planJson);
  }

  /** Return the name of the agent in records. */
  public String agent() {
    String operator = plan.path("operator").asText("");
    return operator.isEmpty() ? plan.path("agent_id").asText("") : operator;
  }

  /** Return an option of the agent, or an empty string. */
  String option(String name) {
    return plan.path("options").path(name).asText();
  }

  /** Return a key as a value, if it is JSON without the markers of other types. */
  public static Object plainKey(String key) {
    try {
      JsonNode node = JSON.readTree(key);
      return node.isContainerNode() ? key : JSON.treeToValue(node, Object.class);
    } catch (JsonProcessingException e) {
      return key;
    }
  }

  /** Encode a record for a side output. Return an empty list if no table of the agent has it. */
  public List<Frame.Output> encode(String tag, Map<String, Object> record) throws IOException {
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

  /** Encode an event, which Python reads as an {@code AgentEvent}, or a row of its table. */
  public List<Frame.Output> encodeEvent(Map<String, Object> event) throws IOException {
    if (plan.path("rows").isObject()) {
      return encode(AgentOutputs.EVENTS, event);
    }
    byte[] fields = new Pickler().dumps(event);
    ByteArrayOutputStream pickle = new ByteArrayOutputStream();
    pickle.write(EVENT_OF);
    pickle.write(fields, PROTOCOL_BYTES, fields.length - PROTOCOL_BYTES - 1);
    pickle.write(CALL);
    return List.of(new Frame.Output(AgentOutputs.EVENTS, pickle.toByteArray()));
  }

  /** A column is {@code [name, [type, …], [path, …]]}; a path is a list of fields. */
  private static Object value(JsonNode column, Map<String, Object> record) {
    for (JsonNode path : column.path(2)) {
      Object found = path.size() == 1 ? record.get(path.path(0).asText()) : null;
      if (found != null) {
        return convert(found, column.path(1).path(0).asText());
      }
    }
    return null;
  }

  private static Object convert(Object value, String type) {
    return switch (type) {
      case "STRING", "VARCHAR", "CHAR" -> String.valueOf(value);
      case "BIGINT", "INTEGER", "INT" -> value instanceof Number ? value : null;
      case "TIMESTAMP_LTZ", "TIMESTAMP" -> value instanceof Long millis ? timestamp(millis) : null;
      default -> null;
    };
  }

  /** Return seconds and nanoseconds, the format of points in time in the rows of workers. */
  private static Object[] timestamp(long millis) {
    return new Object[] {Math.floorDiv(millis, 1000L), Math.floorMod(millis, 1000) * 1_000_000};
  }

  private static Frame.Output output(String tag, Object value) throws IOException {
    return new Frame.Output(tag, new Pickler().dumps(value));
  }
}
