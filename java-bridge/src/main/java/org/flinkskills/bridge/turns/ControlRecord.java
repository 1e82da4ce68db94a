package org.flinkskills.bridge.turns;

import java.util.ArrayList;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Set;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.DeserializationFeature;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.flinkskills.bridge.table.CanonicalKey;

/**
 * Record of a control stream.
 *
 * @param action one of {@link #ACTIONS}
 * @param target what it names: {@code agent}, {@code skill} or {@code tool}
 * @param name the name of the target
 * @param agent the agent to which the record is limited; empty means all agents of the stream
 * @param reason the reason for users and models
 * @param by the person or program that sent the record; may be empty
 * @param keys the canonical strings of the keys that the record can mean; empty if it erases none
 */
record ControlRecord(
    String action,
    String target,
    String name,
    String agent,
    String reason,
    String by,
    List<String> keys) {
  static final String PAUSE = "pause";
  static final String REFUSE = "refuse";
  static final String RESUME = "resume";
  static final String FORGET = "forget";
  static final String AGENT = "agent";
  private static final String KEY = "key";

  private static final List<String> ACTIONS = List.of(PAUSE, RESUME, REFUSE, FORGET);
  private static final List<String> FIELDS =
      List.of("action", AGENT, "skill", "tool", KEY, "reason", "by");
  private static final int MAX_SHOWN = 200;
  private static final ObjectMapper JSON =
      new ObjectMapper().enable(DeserializationFeature.FAIL_ON_TRAILING_TOKENS);

  /** A record without an effect. The message names the problem and the fix. */
  static final class InvalidException extends Exception {
    private static final long serialVersionUID = 1L;

    InvalidException(String format, Object... values) {
      super(String.format(format, values));
    }
  }

  /** Read a JSON object. */
  static ControlRecord parse(String json) throws InvalidException {
    JsonNode fields = read(json);
    String shown = shown(fields, json);
    if (fields == null || !fields.isObject()) {
      throw new InvalidException(
          "The control record %s has no effect: it is not an object. Emit an object with the fields"
              + " %s.",
          shown, FIELDS);
    }
    for (String name : (Iterable<String>) fields::fieldNames) {
      if (!FIELDS.contains(name)) {
        throw new InvalidException(
            "The control record %s has no effect: it has the unknown field '%s'. The fields are %s.",
            shown, name, FIELDS);
      }
    }
    String action = text(fields, "action");
    if (!ACTIONS.contains(action)) {
      throw new InvalidException(
          "The control record %s has no effect: its action '%s' is unknown. Use one of %s.",
          shown, action, ACTIONS);
    }
    if (action.equals(FORGET)) {
      return ofKey(fields, shown);
    }
    List<String> targets = new ArrayList<>(List.of("skill", "tool"));
    targets.removeIf(target -> text(fields, target).isEmpty());
    String agent = text(fields, AGENT);
    if (targets.size() > 1) {
      throw new InvalidException(
          "The control record %s has no effect: it names a skill and a tool. Emit a record for each"
              + " of them.",
          shown);
    }
    if (targets.isEmpty() && agent.isEmpty()) {
      throw new InvalidException(
          "The control record %s has no effect: it names no target. Set the field 'agent', 'skill'"
              + " or 'tool'.",
          shown);
    }
    String reason = text(fields, "reason");
    if (reason.isEmpty() && !action.equals(RESUME)) {
      throw new InvalidException(
          "The control record %s has no effect: the field 'reason' is missing. Set it: error"
              + " records, events and models receive it.",
          shown);
    }
    String target = targets.isEmpty() ? AGENT : targets.get(0);
    String name = targets.isEmpty() ? agent : text(fields, target);
    return new ControlRecord(
        action,
        target,
        name,
        targets.isEmpty() ? "" : agent,
        reason,
        text(fields, "by"),
        List.of());
  }

  private static ControlRecord ofKey(JsonNode fields, String shown) throws InvalidException {
    JsonNode key = fields.path(KEY);
    if (key.isMissingNode() || key.isNull()) {
      throw new InvalidException(
          "The control record %s has no effect: the field 'key' is missing. Set it to the key to"
              + " erase.",
          shown);
    }
    if (!text(fields, "skill").isEmpty() || !text(fields, "tool").isEmpty()) {
      throw new InvalidException(
          "The control record %s has no effect: it erases a key, and names a skill or a tool."
              + " Remove that field.",
          shown);
    }
    Set<String> keys = new LinkedHashSet<>(List.of(CanonicalKey.ofJson(key)));
    JsonNode value = key.isTextual() ? read(key.textValue()) : null;
    if (value != null && !value.isMissingNode()) {
      // As in tables: a string verbatim, any other key as JSON.
      keys.add(CanonicalKey.ofJson(value));
    }
    return new ControlRecord(
        FORGET,
        KEY,
        "",
        text(fields, AGENT),
        text(fields, "reason"),
        text(fields, "by"),
        List.copyOf(keys));
  }

  /** Return a record for messages, without its key, which may be personal data. */
  private static String shown(JsonNode fields, String json) {
    String text = json;
    if (fields != null && fields.isObject()) {
      text = ((ObjectNode) fields.deepCopy()).without(KEY).toString();
    }
    return text.length() <= MAX_SHOWN ? text : text.substring(0, MAX_SHOWN) + "…";
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
    if (action.equals(FORGET)) {
      return "a key" + (agent.isEmpty() ? "" : " of agent " + agent);
    }
    return String.format("%s '%s'%s", target, name, agent.isEmpty() ? "" : " of agent " + agent);
  }
}
