package org.flinkskills.bridge;

import java.io.IOException;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.dag.Transformation;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.transformations.OneInputTransformation;
import org.apache.flink.streaming.api.transformations.WithBoundedness;
import org.apache.flink.streaming.api.typeinfo.python.PickledByteArrayTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.Row;

/**
 * Puts agents into a job graph. The Python package calls these methods; all streams between them
 * are of {@code Row(String key, byte[] event)}, the key being canonical JSON.
 */
public final class AgentStream {
  private static final TypeInformation<Row> KEYED_EVENT =
      Types.ROW_NAMED(
          new String[] {"key", "event"}, Types.STRING, Types.PRIMITIVE_ARRAY(Types.BYTE));

  private AgentStream() {}

  /** Whether {@link #keyRows} can use that field as the key; an error for an unknown field. */
  public static boolean canKeyInJava(DataStream<?> in, String field) {
    return canKeyInJava(in.getType(), field);
  }

  /** Whether {@link #keyRows} can use that field as the key; an error for an unknown field. */
  public static boolean canKeyInJava(TypeInformation<?> type, String field) {
    RowShape shape = RowShape.ofRow(type);
    return shape.keyable()[shape.indexOf(field)];
  }

  /**
   * Rows with named fields as keyed events: the key is that field's value, the event a pickled
   * dict.
   */
  public static DataStream<Row> keyRows(DataStream<Row> in, String field) {
    RowShape shape = RowShape.ofRow(in.getType());
    return inOrder(in, in.flatMap(KeyedEvents.FromRows.byField(shape, field), KEYED_EVENT))
        .name("key by " + field);
  }

  /** The same with the values of several fields, in this order, as the key. */
  public static DataStream<Row> keyRows(DataStream<Row> in, String[] fields) {
    RowShape shape = RowShape.ofRow(in.getType());
    return inOrder(in, in.flatMap(KeyedEvents.FromRows.byFields(shape, fields), KEYED_EVENT))
        .name("key by " + String.join(", ", fields));
  }

  /**
   * What workers write for the columns of a table as rows of it.
   *
   * @param in pickled tuples, as {@link TableRows} describes them
   * @param names the columns
   * @param types their types
   */
  public static SingleOutputStreamOperator<Row> tableRows(
      DataStream<byte[]> in, String[] names, DataType[] types) {
    LogicalType[] logical =
        Arrays.stream(types).map(DataType::getLogicalType).toArray(LogicalType[]::new);
    return inOrder(in, in.map(TableRows.of(logical), TableRows.typeOf(names, logical)));
  }

  /** Lines of a JSON key, a tabulator and a JSON event as keyed events. */
  public static DataStream<Row> keyLines(DataStream<String> in) {
    return inOrder(in, in.map(new KeyedEvents.FromLines(), KEYED_EVENT)).name("key by line");
  }

  /**
   * Events that an agent writes for another agent, as keyed events.
   *
   * @param in pickled pairs of a key's text and an event's bytes
   * @param name shown in Flink's web UI
   */
  public static DataStream<Row> keyPairs(DataStream<byte[]> in, String name) {
    return inOrder(in, in.map(new KeyedEvents.FromPairs(), KEYED_EVENT)).name(name);
  }

  /**
   * Events of a key keep their order only when nothing is redistributed before the key is known.
   */
  private static SingleOutputStreamOperator<Row> inOrder(
      DataStream<?> in, SingleOutputStreamOperator<Row> keyed) {
    if (in.getParallelism() > 0) {
      keyed.setParallelism(in.getParallelism());
    }
    return keyed;
  }

  /** Runs an agent that has no secrets on keyed events. */
  public static SingleOutputStreamOperator<byte[]> apply(
      StreamExecutionEnvironment env,
      DataStream<Row> keyed,
      String uid,
      String name,
      String description,
      String planJson,
      String settingsJson) {
    return apply(env, keyed, uid, name, description, planJson, settingsJson, "{}");
  }

  /**
   * The mode of a job that cannot have an agent on this stream: {@code BATCH}, or {@code AUTOMATIC}
   * where each source of the stream is bounded. Null for any other job.
   */
  public static String batchModeOf(StreamExecutionEnvironment env, DataStream<?> in) {
    RuntimeExecutionMode mode = env.getConfiguration().get(ExecutionOptions.RUNTIME_MODE);
    boolean batch =
        mode == RuntimeExecutionMode.BATCH
            || mode == RuntimeExecutionMode.AUTOMATIC
                && in.getTransformation().getTransitivePredecessors().stream()
                    .noneMatch(AgentStream::isUnbounded);
    return batch ? mode.name() : null;
  }

  /** Batch mode keeps the state of one key at a time, and turns of many keys run together. */
  static String noBatchMode(String mode) {
    return "execution.runtime-mode is "
        + mode
        + ", but agents are streaming operators. Set it to STREAMING: a streaming job also ends"
        + " after its bounded sources.";
  }

  private static boolean isUnbounded(Transformation<?> transformation) {
    return transformation instanceof WithBoundedness source
        && source.getBoundedness() != Boundedness.BOUNDED;
  }

  /**
   * Runs an agent on keyed events. Throws {@link IllegalArgumentException} for a job in batch mode.
   *
   * @param uid stable id of the operator, which its state belongs to; null or empty: Flink's own
   * @param name shown in Flink's web UI
   * @param description shown in Flink's web UI; may be null
   * @param planJson the agent's plan, a JSON object that only the worker understands
   * @param settingsJson the operator's own settings, see {@link AgentSettings}
   * @param secretsJson what only the workers may know of the plan: it is handed to them as it is
   *     and appears in no name, description, log or message
   * @return pickled outputs; side outputs under the tags that the plan names
   */
  public static SingleOutputStreamOperator<byte[]> apply(
      StreamExecutionEnvironment env,
      DataStream<Row> keyed,
      String uid,
      String name,
      String description,
      String planJson,
      String settingsJson,
      String secretsJson) {
    String mode = batchModeOf(env, keyed);
    if (mode != null) {
      throw new IllegalArgumentException(noBatchMode(mode));
    }
    AgentOperatorFactory factory =
        new AgentOperatorFactory(
            new AgentPlan(planJson, secretsJson), AgentSettings.fromJson(settingsJson), env);
    SingleOutputStreamOperator<byte[]> result =
        keyed
            .keyBy(new KeyedEvents.KeyOf(), Types.STRING)
            .transform(name, PickledByteArrayTypeInfo.PICKLED_BYTE_ARRAY_TYPE_INFO, factory);
    if (uid != null && !uid.isEmpty()) {
      result.uid(uid);
    }
    if (description != null && !description.isEmpty()) {
      result.setDescription(description);
    }
    return result;
  }

  /** Names of a savepoint's operators with keyed state, by their uids. */
  public static Map<String, String> operatorsIn(String savepoint) throws IOException {
    return SavepointKeys.operators(savepoint);
  }

  /** State backends that may be able to read a savepoint or checkpoint. */
  public static List<String> backendsFor(String savepoint) throws IOException {
    return SavepointKeys.backends(savepoint);
  }

  /** What an agent knew of its keys, see {@link SavepointKeys#read}. */
  public static DataStream<byte[]> keysIn(
      StreamExecutionEnvironment env,
      String savepoint,
      String uid,
      String only,
      boolean expiring,
      String backend)
      throws IOException {
    return SavepointKeys.read(env, savepoint, uid, only, expiring, backend);
  }

  /**
   * Has an agent tell what happens in its turns, on the side output {@value
   * AgentOperator#EVENTS_OUTPUT}.
   *
   * @param agent what {@link #apply} returned
   */
  public static void enableEvents(DataStream<byte[]> agent) {
    if (agent.getTransformation() instanceof OneInputTransformation<?, ?> transformation
        && transformation.getOperatorFactory() instanceof AgentOperatorFactory factory) {
      factory.enableEvents();
    } else {
      throw new IllegalArgumentException(
          "Not the output of an agent: " + agent.getTransformation().getName());
    }
  }
}
