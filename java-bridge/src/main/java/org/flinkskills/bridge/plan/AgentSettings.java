package org.flinkskills.bridge.plan;

import java.io.Serializable;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.core.JsonProcessingException;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;

/**
 * Options of an agent that the operator itself uses. The operator does not parse the plan.
 *
 * @param maxInFlight maximum number of turns that one subtask runs concurrently
 * @param maxPending maximum number of events of a subtask that wait behind an event of their key
 * @param workers worker processes per job and TaskManager; 0 means one per CPU, at most four
 * @param openTimeoutMs time in which a worker must open a plan, in milliseconds
 * @param maxSilenceMs time without a response after which a worker is killed, in milliseconds; 0
 *     means no limit
 * @param maxCrashes number of worker crashes after which a turn fails
 * @param sessionTtlMs time after which the session of an idle key expires, in milliseconds; 0 means
 *     never
 * @param resources names of resources inside the job's jars
 * @param resourceLimits limits of the copies out of a jar
 * @param pythonExecutable the interpreter if the job's configuration sets none; may be null
 * @param env additional environment variables of the worker processes
 * @param showPrints whether prints of user code are also written to standard output, for jobs in a
 *     MiniCluster
 * @param overtake whether the next events of a key overtake a turn that waits
 * @param waitsKeepMs time in milliseconds for which early answers and ended waits are stored
 * @param drainEndsWaits whether a stop with drain ends waits, instead of being rejected
 * @param waitsMaxEarly maximum number of answers of a key that arrived before their questions, and
 *     of the further answers of one wait
 */
public record AgentSettings(
    int maxInFlight,
    int maxPending,
    int workers,
    long openTimeoutMs,
    long maxSilenceMs,
    int maxCrashes,
    long sessionTtlMs,
    ArrayList<String> resources,
    JobResources.Limits resourceLimits,
    String pythonExecutable,
    LinkedHashMap<String, String> env,
    boolean showPrints,
    boolean overtake,
    long waitsKeepMs,
    boolean drainEndsWaits,
    int waitsMaxEarly)
    implements Serializable {

  /** The number of further crashes after which the TaskManager builds the error record. */
  private static final int CRASHES_OF_ERROR_RECORD = 3;

  private static final List<String> FIELDS =
      List.of(
          "maxInFlight",
          "maxPending",
          "workers",
          "openTimeoutMs",
          "maxSilenceMs",
          "maxCrashes",
          "sessionTtlMs",
          "resources",
          "resourceEntries",
          "resourceFileBytes",
          "resourceTotalBytes",
          "pythonExecutable",
          "env",
          "showPrints",
          "whenWaiting",
          "waitsKeepMs",
          "drainEndsWaits",
          "waitsMaxEarly");

  public AgentSettings {
    atLeast("maxInFlight", maxInFlight, 1);
    atLeast("maxPending", maxPending, 0);
    atLeast("workers", workers, 0);
    atLeast("openTimeoutMs", openTimeoutMs, 1);
    atLeast("maxSilenceMs", maxSilenceMs, 0);
    atLeast("maxCrashes", maxCrashes, 1);
    atLeast("sessionTtlMs", sessionTtlMs, 0);
    atLeast("waitsKeepMs", waitsKeepMs, 0);
    atLeast("waitsMaxEarly", waitsMaxEarly, 0);
  }

  public static AgentSettings defaults() {
    return new AgentSettings(
        1000,
        10_000,
        0,
        300_000,
        630_000,
        3,
        0,
        new ArrayList<>(),
        JobResources.Limits.defaults(),
        null,
        new LinkedHashMap<>(),
        false,
        false,
        3_600_000,
        false,
        100);
  }

  /** Return the crashes of a turn after one more crash of its worker. */
  public int crashesAfter(int crashes, boolean alone) {
    boolean counts = alone || crashes < lastShared() || crashes >= maxCrashes;
    return counts ? crashes + 1 : crashes;
  }

  /**
   * Return true if the turn must run alone. A turn fails only after a crash in which it ran alone.
   */
  public boolean isSuspect(int crashes) {
    return crashes >= lastShared() && crashes < maxCrashes;
  }

  /** Return true if no worker returned the error record of a failed turn. */
  public boolean endsWithoutWorker(int crashes) {
    return crashes >= maxCrashes + CRASHES_OF_ERROR_RECORD;
  }

  /** Return the maximum of the counted crashes of a turn that did not run alone. */
  private int lastShared() {
    return Math.max(1, maxCrashes - 1);
  }

  /** Return the number of worker processes on this host. */
  public int workerCount() {
    return workers > 0 ? workers : Math.min(4, Runtime.getRuntime().availableProcessors());
  }

  /** Read a JSON object. A missing field has its default, and an unknown field is an error. */
  public static AgentSettings fromJson(String json) {
    JsonNode node;
    try {
      node = new ObjectMapper().readTree(json);
    } catch (JsonProcessingException e) {
      throw new IllegalArgumentException(
          "The settings of an agent operator are not valid JSON.", e);
    }
    if (node == null || !node.isObject()) {
      throw new IllegalArgumentException(
          "The settings of an agent operator must be a JSON object.");
    }
    for (Iterator<String> names = node.fieldNames(); names.hasNext(); ) {
      String name = names.next();
      if (!FIELDS.contains(name)) {
        throw new IllegalArgumentException(
            "Unknown setting '" + name + "' of an agent operator. Valid settings: " + FIELDS + ".");
      }
    }
    AgentSettings defaults = defaults();
    ArrayList<String> resources = new ArrayList<>();
    node.path("resources").forEach(item -> resources.add(item.asText()));
    LinkedHashMap<String, String> env = new LinkedHashMap<>();
    node.path("env")
        .fieldNames()
        .forEachRemaining(name -> env.put(name, node.path("env").path(name).asText()));
    return new AgentSettings(
        (int) number(node, "maxInFlight", defaults.maxInFlight),
        (int) number(node, "maxPending", defaults.maxPending),
        (int) number(node, "workers", defaults.workers),
        number(node, "openTimeoutMs", defaults.openTimeoutMs),
        number(node, "maxSilenceMs", defaults.maxSilenceMs),
        (int) number(node, "maxCrashes", defaults.maxCrashes),
        number(node, "sessionTtlMs", defaults.sessionTtlMs),
        resources,
        new JobResources.Limits(
            (int) number(node, "resourceEntries", defaults.resourceLimits.entries()),
            number(node, "resourceFileBytes", defaults.resourceLimits.fileBytes()),
            number(node, "resourceTotalBytes", defaults.resourceLimits.totalBytes())),
        node.path("pythonExecutable").asText(null),
        env,
        node.path("showPrints").asBoolean(),
        node.path("whenWaiting").asText("queue").equals("next"),
        number(node, "waitsKeepMs", defaults.waitsKeepMs()),
        node.path("drainEndsWaits").asBoolean(),
        (int) number(node, "waitsMaxEarly", defaults.waitsMaxEarly()));
  }

  private static long number(JsonNode node, String name, long defaultValue) {
    JsonNode value = node.path(name);
    if (value.isMissingNode() || value.isNull()) {
      return defaultValue;
    }
    if (!value.isIntegralNumber()) {
      throw new IllegalArgumentException(
          "Setting '" + name + "' of an agent operator must be a whole number, not " + value + ".");
    }
    return value.longValue();
  }

  private static void atLeast(String name, long value, long min) {
    if (value < min) {
      throw new IllegalArgumentException(
          String.format(
              "Setting '%s' of an agent operator must be at least %d, not %d.", name, min, value));
    }
  }
}
