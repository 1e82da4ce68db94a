package org.flinkskills.bridge.turns;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.accumulators.Accumulator;
import org.apache.flink.api.common.accumulators.ListAccumulator;
import org.apache.flink.api.common.accumulators.LongCounter;
import org.apache.flink.api.common.functions.RuntimeContext;
import org.apache.flink.api.common.state.ListState;
import org.apache.flink.api.common.state.ListStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.JsonNode;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.flink.streaming.api.operators.AbstractStreamOperator;

/**
 * Numbers of ended and failed turns, as accumulators of the job: {@code <operator>: turns}, {@code
 * <operator>: failed turns: <class of the error>}, and {@code <operator>: first failure}.
 *
 * <p>Flink resets accumulators when a task restarts. So the numbers are also operator state: after
 * a restart they continue from the checkpoint, which also has the effects of these turns. The state
 * names its job, and a job that starts from the savepoint of another one starts at zero.
 */
public final class TurnCounts {
  private static final String STATE = "turn-counts";
  private static final byte VERSION = 1;

  /** The maximum number of error classes. Further ones are counted as {@link #OTHER_KINDS}. */
  private static final int MAX_KINDS = 50;

  private static final String OTHER_KINDS = "others";
  private static final String FIRST = "first failure";
  private static final int MAX_KIND_LENGTH = 100;
  private static final int MAX_KEY_LENGTH = 200;
  private static final int MAX_MESSAGE_LENGTH = 500;
  private static final ObjectMapper JSON = new ObjectMapper();

  private final RuntimeContext context;
  private final String prefix;
  private final String jobId;
  private final ListState<byte[]> state;

  private final LongCounter ended;
  private long turns;
  private final Map<String, Long> failures = new TreeMap<>();
  private String first = "";

  private TurnCounts(
      RuntimeContext context, String operator, JobID jobId, ListState<byte[]> state) {
    this.context = context;
    this.prefix = operator + ": ";
    this.jobId = jobId.toString();
    this.state = state;
    this.ended = context.getLongCounter(prefix + "turns");
  }

  /** Register the accumulators, and add the numbers of the checkpoint. */
  public static TurnCounts open(AbstractStreamOperator<?> operator) throws Exception {
    ListStateDescriptor<byte[]> descriptor =
        new ListStateDescriptor<>(STATE, PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);
    TurnCounts counts =
        new TurnCounts(
            operator.getRuntimeContext(),
            operator.getOperatorConfig().getOperatorName(),
            operator.getContainingTask().getEnvironment().getJobID(),
            operator.getOperatorStateBackend().getListState(descriptor));
    for (byte[] stored : counts.state.get()) {
      counts.restore(stored);
    }
    return counts;
  }

  /**
   * Count a turn.
   *
   * @param failure class and message of the error, as in the error record; empty if the turn
   *     succeeded
   * @param number the turn's number
   */
  void ended(String failure, String key, long number) {
    addTurns(1);
    if (failure.isEmpty()) {
      return;
    }
    addFailures(kindOf(failure), 1);
    if (first.isEmpty()) {
      setFirst(
          String.format(
              "%s (key %s, turn %d)",
              shortened(failure, MAX_MESSAGE_LENGTH), shortened(key, MAX_KEY_LENGTH), number));
    }
  }

  /** Erase the message of a failure of a key. */
  void forget(String key) {
    if (first.contains("(key " + shortened(key, MAX_KEY_LENGTH) + ", turn ")) {
      first = "";
      Accumulator<?, ?> messages = context.getAccumulator(prefix + FIRST);
      if (messages != null) {
        messages.resetLocal();
      }
    }
  }

  /** Write the numbers to the operator's state. */
  public void snapshot() throws Exception {
    ObjectNode stored = JSON.createObjectNode().put("job", jobId).put("turns", turns);
    ObjectNode kinds = stored.putObject("failures");
    failures.forEach(kinds::put);
    stored.put("first", first);
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    bytes.write(VERSION);
    bytes.write(JSON.writeValueAsBytes(stored));
    state.update(List.of(bytes.toByteArray()));
  }

  private void restore(byte[] stored) throws IOException {
    if (stored.length == 0 || stored[0] != VERSION) {
      throw new IOException(
          String.format(
              "A later version of flink_skills wrote the state %s. Restore the savepoint with that"
                  + " version.",
              STATE));
    }
    JsonNode counts = JSON.readTree(stored, 1, stored.length - 1);
    if (!counts.path("job").asText().equals(jobId)) {
      return;
    }
    addTurns(counts.path("turns").asLong());
    List<String> kinds = new ArrayList<>();
    counts.path("failures").fieldNames().forEachRemaining(kinds::add);
    kinds.forEach(kind -> addFailures(kind, counts.path("failures").path(kind).asLong()));
    String message = counts.path("first").asText();
    if (first.isEmpty() && !message.isEmpty()) {
      setFirst(message);
    }
  }

  private void addTurns(long number) {
    turns += number;
    ended.add(number);
  }

  private void addFailures(String kind, long number) {
    String counted = failures.containsKey(kind) || failures.size() < MAX_KINDS ? kind : OTHER_KINDS;
    failures.merge(counted, number, Long::sum);
    context.getLongCounter(prefix + "failed turns: " + counted).add(number);
  }

  private void setFirst(String message) {
    first = message;
    String name = prefix + FIRST;
    Accumulator<String, ArrayList<String>> messages = context.getAccumulator(name);
    if (messages == null) {
      messages = new ListAccumulator<>();
      context.addAccumulator(name, messages);
    }
    messages.add(message);
  }

  private static String kindOf(String failure) {
    int colon = failure.indexOf(':');
    return shortened(colon < 0 ? failure : failure.substring(0, colon), MAX_KIND_LENGTH);
  }

  private static String shortened(String text, int max) {
    return text.length() <= max ? text : text.substring(0, max) + "…";
  }
}
