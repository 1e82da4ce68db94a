package org.flinkskills.bridge.turns;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.function.LongSupplier;
import java.util.function.Predicate;
import java.util.stream.Stream;
import org.apache.flink.api.common.state.BroadcastState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.OperatorStateStore;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ArrayNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.flinkskills.bridge.frames.FrameWriter;
import org.flinkskills.bridge.metrics.AgentMetrics;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.flinkskills.bridge.outputs.ErrorRecord;
import org.flinkskills.bridge.outputs.RecordFormat;
import org.flinkskills.bridge.plan.AgentPlan;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Control records of one operator, and what is paused or refused: its agent, and the skills, tools
 * and sub-agents of its workers.
 *
 * <p>The broadcast state {@code control} has an entry for each target that is paused or refused.
 * All subtasks have the same entries. The first subtask reports: it emits an event for each record,
 * and an error record for one without an effect.
 */
public final class AgentControl {
  private static final Logger LOG = LoggerFactory.getLogger(AgentControl.class);

  /** The name of the state. */
  public static final String STATE = "control";

  private static final byte VERSION = 1;

  /** The entry with the number of records, which makes the ids of events. */
  private static final String COUNT = "#";

  private static final ObjectMapper JSON = new ObjectMapper();

  private final BroadcastState<String, byte[]> state;
  private final AgentPlan plan;
  private final AgentOutputs outputs;
  private final AgentMetrics metrics;
  private final LongSupplier clock;

  /** The subtask reports the records. */
  private final boolean reports;

  private final Predicate<String> owns;

  private final String own;
  private final Set<String> subAgents = new TreeSet<>();

  /** The names of the job's other agents that read control records. */
  private final Set<String> others = new TreeSet<>();

  /** The entries by their target. The entry of the operator's agent is {@link #ofAgent}. */
  private final Map<String, JsonNode> entries = new LinkedHashMap<>();

  private JsonNode ofAgent;

  /**
   * @param store the operator's state
   * @param reports whether the subtask reports the records
   * @param owns returns true for the keys of the subtask
   */
  public AgentControl(
      OperatorStateStore store,
      AgentPlan plan,
      AgentOutputs outputs,
      AgentMetrics metrics,
      LongSupplier clock,
      boolean reports,
      Predicate<String> owns)
      throws Exception {
    this.plan = plan;
    this.outputs = outputs;
    this.metrics = metrics;
    this.clock = clock;
    this.reports = reports;
    this.owns = owns;
    JsonNode json = JSON.readTree(plan.json());
    own = new RecordFormat(plan.json()).agent();
    addCallees(json);
    json.path("controlled").forEach(name -> others.add(name.asText()));
    others.remove(own);
    state =
        store.getBroadcastState(
            new MapStateDescriptor<>(
                STATE, Types.STRING, PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
    for (Map.Entry<String, byte[]> entry : state.immutableEntries()) {
      if (!entry.getKey().equals(COUNT)) {
        put(entry.getKey(), decode(entry.getValue()));
      }
    }
    metrics.control(() -> isPaused() ? 1 : 0);
  }

  private void addCallees(JsonNode agent) {
    for (JsonNode callee : agent.path("agents")) {
      subAgents.add(callee.path("agent_id").asText());
      addCallees(callee);
    }
  }

  /** Return true if no turn of the agent starts. */
  boolean isPaused() {
    return ofAgent != null && ofAgent.path("action").asText().equals(ControlRecord.PAUSE);
  }

  /** Return the reason why events are refused; null if they are not. */
  String refusal() {
    return ofAgent != null && ofAgent.path("action").asText().equals(ControlRecord.REFUSE)
        ? ofAgent.path("reason").asText()
        : null;
  }

  /** Refuse the events of an agent that no record can resume. */
  void refusePaused() {
    if (isPaused()) {
      ofAgent =
          ((ObjectNode) ofAgent.deepCopy())
              .put("action", ControlRecord.REFUSE)
              .put(
                  "reason",
                  "the inputs have ended while the agent was paused: "
                      + ofAgent.path("reason").asText());
    }
  }

  /** Return true if workers need the entries of skills, tools and sub-agents. */
  boolean isForWorkers() {
    return !entries.isEmpty();
  }

  /**
   * Return these entries as JSON for workers. One of the operator's agent is for all its agents.
   */
  byte[] forWorkers() throws IOException {
    ArrayNode found = JSON.createArrayNode();
    for (JsonNode entry : entries.values()) {
      boolean isForAll = entry.path("agent").asText().equals(own);
      found.add(isForAll ? ((ObjectNode) entry.deepCopy()).put("agent", "") : entry);
    }
    return JSON.writeValueAsBytes(found);
  }

  /** Return true if that is the name of the operator's agent. */
  boolean isOperator(String agent) {
    return agent.equals(own);
  }

  /**
   * Return what a worker checks in a record: the target, its name, and {@code error} if no other
   * agent can have it, else {@code log}. Return an empty list if it checks nothing.
   */
  List<byte[]> checked(ControlRecord record) {
    if (!reports
        || record.isOfAgent()
        || record.action().equals(ControlRecord.RESUME)
        || record.action().equals(ControlRecord.FORGET)) {
      return List.of();
    }
    String how = others.isEmpty() || !record.agent().isEmpty() ? "error" : "log";
    return Stream.of(record.target(), record.name(), how).map(FrameWriter::utf8).toList();
  }

  /** Return the keys of this subtask that a record erases. */
  List<String> keys(ControlRecord record) {
    return record.keys().stream().filter(owns).toList();
  }

  /** Apply a record, and report it. Return it, or null if it has no effect on this operator. */
  ControlRecord accept(String json) throws Exception {
    metrics.controlRecords.inc();
    long number = count();
    ControlRecord record;
    try {
      record = ControlRecord.parse(json);
      checkAgent(record);
    } catch (ControlRecord.InvalidException e) {
      if (reports && isFirst()) {
        reject(e.getMessage());
      }
      return null;
    }
    String agent = record.isOfAgent() ? record.name() : record.agent();
    if (!agent.isEmpty() && !isOwn(agent)) {
      return null;
    }
    boolean changes = apply(record);
    if (reports && changes) {
      LOG.info(
          "Control record of {}: {} {} ({}).",
          own,
          record.action(),
          record.shown(),
          record.reason());
      emitEvent(record, number);
    } else if (reports && (!agent.isEmpty() || isFirst())) {
      reject(
          String.format(
              "The control record resume has no effect: %s is neither paused nor refused. Paused or"
                  + " refused are %s.",
              record.shown(), shownEntries()));
    }
    return changes ? record : null;
  }

  private boolean isOwn(String agent) {
    return agent.equals(own) || subAgents.contains(agent);
  }

  /** Return true for the first agent of the control stream, which reports records for no agent. */
  private boolean isFirst() {
    return others.stream().allMatch(other -> own.compareTo(other) < 0);
  }

  private void checkAgent(ControlRecord record) throws ControlRecord.InvalidException {
    String agent = record.isOfAgent() ? record.name() : record.agent();
    if (!agent.isEmpty() && !isOwn(agent) && !others.contains(agent)) {
      Set<String> names = new TreeSet<>(others);
      names.add(own);
      names.addAll(subAgents);
      throw new ControlRecord.InvalidException(
          "The control record %s of %s has no effect: no agent with this control stream is named"
              + " '%s'. Use one of %s.",
          record.action(), record.shown(), agent, names);
    }
  }

  private long count() throws Exception {
    byte[] bytes = state.get(COUNT);
    long number = bytes == null ? 1 : decode(bytes).path("count").asLong() + 1;
    state.put(COUNT, encode(JSON.createObjectNode().put("count", number)));
    return number;
  }

  /** Return false if nothing has changed, because the target was neither paused nor refused. */
  private boolean apply(ControlRecord record) throws Exception {
    if (record.action().equals(ControlRecord.FORGET)) {
      return true;
    }
    String target = String.join("\t", record.target(), record.name(), record.agent());
    if (record.action().equals(ControlRecord.RESUME)) {
      boolean known = state.contains(target);
      state.remove(target);
      put(target, null);
      return known;
    }
    JsonNode entry =
        JSON.createObjectNode()
            .put("action", record.action())
            .put("target", record.target())
            .put("name", record.name())
            .put("agent", record.agent())
            .put("reason", record.reason())
            .put("by", record.by())
            .put("since", clock.getAsLong());
    state.put(target, encode(entry));
    put(target, entry);
    return true;
  }

  private void put(String target, JsonNode entry) {
    if (target.equals(String.join("\t", ControlRecord.AGENT, own, ""))) {
      ofAgent = entry;
    } else if (entry == null) {
      entries.remove(target);
    } else {
      entries.put(target, entry);
    }
  }

  private static byte[] encode(JsonNode entry) throws IOException {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    bytes.write(VERSION);
    bytes.write(JSON.writeValueAsBytes(entry));
    return bytes.toByteArray();
  }

  private static JsonNode decode(byte[] bytes) throws IOException {
    if (bytes.length == 0 || bytes[0] != VERSION) {
      throw new IOException(
          String.format(
              "A later version of flink_skills wrote the state %s. Restore the savepoint with that"
                  + " version.",
              STATE));
    }
    return JSON.readTree(Arrays.copyOfRange(bytes, 1, bytes.length));
  }

  /** Report a record without an effect. */
  void reject(String problem) throws Exception {
    LOG.warn("{}: {}", own, problem);
    metrics.unusedControlRecords.inc();
    outputs.emit(null, ErrorRecord.ofControl(plan.json(), problem).outputs());
  }

  private void emitEvent(ControlRecord record, long number) throws IOException {
    if (!plan.events()) {
      return;
    }
    ObjectNode detail = JSON.createObjectNode().put("target", record.target());
    if (!record.keys().isEmpty()) {
      ArrayNode digests = detail.putArray("key_sha256");
      record.keys().forEach(key -> digests.add(digest(key)));
    }
    if (!record.reason().isEmpty()) {
      detail.put("reason", record.reason());
    }
    if (!record.by().isEmpty()) {
      detail.put("by", record.by());
    }
    String id = String.join("\t", own, Long.toString(number), record.action(), record.shown());
    Map<String, Object> event = event("control", id, own, clock.getAsLong(), detail);
    event.put("name", record.name().isEmpty() ? null : record.name());
    if (!record.isOfAgent() && !record.name().isEmpty()) {
      event.put(record.target(), record.name());
    }
    event.put("action", record.action());
    outputs.emit(null, new RecordFormat(plan.json()).encodeEvent(event));
  }

  /**
   * Return an event of the operator.
   *
   * @param id a string that is the same if a failover emits the event again
   */
  static Map<String, Object> event(String kind, String id, String agent, long at, JsonNode detail) {
    Map<String, Object> event = new LinkedHashMap<>();
    event.put("version", 1);
    event.put(
        "id",
        UUID.nameUUIDFromBytes((kind + "\t" + id).getBytes(StandardCharsets.UTF_8)).toString());
    event.put("kind", kind);
    event.put("at", at);
    event.put("status", "ok");
    event.put("agent", agent);
    event.put("detail", detail.toString());
    return event;
  }

  /** Return the digest that stands for an erased key in events. */
  static String digest(String key) {
    try {
      MessageDigest sha256 = MessageDigest.getInstance("SHA-256");
      return HexFormat.of().formatHex(sha256.digest(FrameWriter.utf8(key)));
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("Each Java platform has SHA-256.", e);
    }
  }

  private List<String> shownEntries() {
    List<String> found = new ArrayList<>();
    if (ofAgent != null) {
      found.add("agent '" + own + "'");
    }
    for (JsonNode entry : entries.values()) {
      String agent = entry.path("agent").asText();
      found.add(
          String.format(
              "%s '%s'%s",
              entry.path("target").asText(),
              entry.path("name").asText(),
              agent.isEmpty() ? "" : " of agent " + agent));
    }
    return found;
  }
}
