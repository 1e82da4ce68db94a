package org.flinkskills.bridge.turns;

import java.util.ArrayList;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Record of a control stream.
 *
 * @param action one of {@link #ACTIONS}
 * @param target what it names: {@code agent}, {@code skill} or {@code tool}
 * @param name the name of the target
 * @param agent the agent to which the record is limited; empty means all agents of the stream
 * @param reason the reason for users and models
 * @param by the person or program that sent the record; may be empty
 */
record ControlRecord(
    String action, String target, String name, String agent, String reason, String by) {
  static final String PAUSE = "pause";
  static final String REFUSE = "refuse";
  static final String RESUME = "resume";
  static final String AGENT = "agent";

  private static final List<String> ACTIONS = List.of(PAUSE, RESUME, REFUSE);
  private static final List<String> FIELDS =
      List.of("action", AGENT, "skill", "tool", "reason", "by");
  private static final int MAX_SHOWN = 200;
  private static final ObjectMapper JSON = new ObjectMapper();

  /** A record without an effect. The message names the problem and the fix. */
  static final class InvalidException extends Exception {
    private static final long serialVersionUID = 1L;

    InvalidException(String record, String problem) {
      super(String.format("the control record %s has no effect: %s", record, problem));
    }
  }

  /** Read a JSON object. */
  static ControlRecord parse(String json) throws InvalidException {
    JsonNode fields = read(json);
    String shown = json.length() <= MAX_SHOWN ? json : json.substring(0, MAX_SHOWN) + "…";
    if (fields == null || !fields.isObject()) {
      throw new InvalidException(
          shown, "it is not an object. Emit an object with the fields " + FIELDS + ".");
    }
    for (String name : (Iterable<String>) fields::fieldNames) {
      if (!FIELDS.contains(name)) {
        throw new InvalidException(
            shown,
            String.format("it has the unknown field '%s'. The fields are %s.", name, FIELDS));
      }
    }
    String action = text(fields, "action");
    if (!ACTIONS.contains(action)) {
      throw new InvalidException(
          shown,
          action.isEmpty()
              ? String.format("the field 'action' is missing. Set it to one of %s.", ACTIONS)
              : String.format("its action '%s' is unknown. Use one of %s.", action, ACTIONS));
    }
    List<String> targets = new ArrayList<>(List.of("skill", "tool"));
    targets.removeIf(target -> text(fields, target).isEmpty());
    String agent = text(fields, AGENT);
    if (targets.size() > 1) {
      throw new InvalidException(
          shown, "it names a skill and a tool. Emit a record for each of them.");
    }
    if (targets.isEmpty() && agent.isEmpty()) {
      throw new InvalidException(
          shown, "it names no target. Set the field 'agent', 'skill' or 'tool'.");
    }
    String reason = text(fields, "reason");
    if (reason.isEmpty() && !action.equals(RESUME)) {
      throw new InvalidException(
          shown,
          "the field 'reason' is missing. Set it: error records, events and models receive it.");
    }
    String target = targets.isEmpty() ? AGENT : targets.get(0);
    String name = targets.isEmpty() ? agent : text(fields, target);
    return new ControlRecord(
        action, target, name, targets.isEmpty() ? "" : agent, reason, text(fields, "by"));
  }

  private static JsonNode read(String json) {
    try {
      return JSON.readTree(json);
    } catch (JsonProcessingException e) {
      return null;
    }
  }

  private static String text(JsonNode fields, String name) {
    JsonNode value = fields.path(name);
    return value.isNull() ? "" : value.isTextual() ? value.textValue().strip() : value.asText();
  }

  boolean isOfAgent() {
    return target.equals(AGENT);
  }

  /** Return the target for messages. */
  String shown() {
    return String.format("%s '%s'%s", target, name, agent.isEmpty() ? "" : " of agent " + agent);
  }
}
