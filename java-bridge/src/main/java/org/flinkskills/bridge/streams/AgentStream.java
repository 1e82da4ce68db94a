package org.flinkskills.bridge.streams;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.connector.source.Boundedness;
import org.apache.flink.api.dag.Transformation;
import org.apache.flink.api.java.functions.KeySelector;
import org.apache.flink.configuration.ExecutionOptions;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.KeyedStream;
import org.apache.flink.streaming.api.datastream.MultipleConnectedStreams;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.operators.StreamOperatorFactory;
import org.apache.flink.streaming.api.transformations.AbstractMultipleInputTransformation;
import org.apache.flink.streaming.api.transformations.KeyedMultipleInputTransformation;
import org.apache.flink.streaming.api.transformations.OneInputTransformation;
import org.apache.flink.streaming.api.transformations.PhysicalTransformation;
import org.apache.flink.streaming.api.transformations.WithBoundedness;
import org.apache.flink.streaming.api.typeinfo.python.PickledByteArrayTypeInfo;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.types.Row;
import org.flinkskills.bridge.operator.AgentOperatorFactory;
import org.flinkskills.bridge.plan.AgentPlan;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.table.RowShape;
import org.flinkskills.bridge.table.TableRows;

/**
 * Methods with which the Python package adds agents to a job graph. All streams between them have
 * elements {@code Row(String key, byte[] event)}, in which the key is canonical JSON. Elements with
 * a third field are answers to the wait with that id or name, unless the field is null.
 */
public final class AgentStream {
  private static final TypeInformation<Row> KEYED_EVENT =
      Types.ROW_NAMED(
          new String[] {"key", "event"}, Types.STRING, Types.PRIMITIVE_ARRAY(Types.BYTE));

  private static final TypeInformation<Row> KEYED_ANSWER =
      Types.ROW_NAMED(
          new String[] {"key", "event", "wait"},
          Types.STRING,
          Types.PRIMITIVE_ARRAY(Types.BYTE),
          Types.STRING);

  private AgentStream() {}

  /** Return true if {@link #keyRows} can use that field as the key. Fail for an unknown field. */
  public static boolean canKeyInJava(DataStream<?> in, String field) {
    return canKeyInJava(in.getType(), field);
  }

  /** Return true if {@link #keyRows} can use that field as the key. Fail for an unknown field. */
  public static boolean canKeyInJava(TypeInformation<?> type, String field) {
    RowShape shape = RowShape.ofRow(type);
    return shape.keyable()[shape.indexOf(field)];
  }

  /**
   * Convert rows with named fields to keyed events. The key is that field's value, and the event is
   * a pickled dict.
   */
  public static DataStream<Row> keyRows(DataStream<Row> in, String field) {
    RowShape shape = RowShape.ofRow(in.getType());
    return inOrder(in, in.flatMap(KeyedEvents.FromRows.byField(shape, field), KEYED_EVENT))
        .name("key by " + field);
  }

  /** Convert rows to keyed events with the values of several fields, in this order, as the key. */
  public static DataStream<Row> keyRows(DataStream<Row> in, String[] fields) {
    RowShape shape = RowShape.ofRow(in.getType());
    return inOrder(in, in.flatMap(KeyedEvents.FromRows.byFields(shape, fields), KEYED_EVENT))
        .name("key by " + String.join(", ", fields));
  }

  /**
   * Convert rows to keyed events, some of which are answers to waits.
   *
   * @param waitField the field with the id or the name of the wait; null or empty for an event
   */
  public static DataStream<Row> keyEvents(DataStream<Row> in, String field, String waitField) {
    return withWait(
        in, KeyedEvents.FromRows.byField(RowShape.ofRow(in.getType()), field), waitField);
  }

  /** Convert rows to keyed events with the values of several fields as the key. */
  public static DataStream<Row> keyEvents(DataStream<Row> in, String[] fields, String waitField) {
    return withWait(
        in, KeyedEvents.FromRows.byFields(RowShape.ofRow(in.getType()), fields), waitField);
  }

  /**
   * Convert rows to keyed answers to waits.
   *
   * @param waitField the field with the id or the name of the wait
   */
  public static DataStream<Row> keyAnswers(DataStream<Row> in, String field, String waitField) {
    return answers(keyEvents(in, field, waitField));
  }

  /** Convert rows to keyed answers with the values of several fields as the key. */
  public static DataStream<Row> keyAnswers(DataStream<Row> in, String[] fields, String waitField) {
    return answers(keyEvents(in, fields, waitField));
  }

  private static DataStream<Row> withWait(
      DataStream<Row> in, KeyedEvents.FromRows keys, String waitField) {
    return inOrder(in, in.flatMap(keys.withWait(waitField), KEYED_ANSWER)).name("key events");
  }

  private static DataStream<Row> answers(DataStream<Row> keyed) {
    return inOrder(keyed, keyed.map(new KeyedEvents.ToAnswers(), KEYED_ANSWER)).name("key answers");
  }

  /**
   * Convert the values that workers write for the columns of a table to its rows.
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

  /** Convert lines of a JSON key, a tab and a JSON event to keyed events. */
  public static DataStream<Row> keyLines(DataStream<String> in) {
    return inOrder(in, in.map(new KeyedEvents.FromLines(), KEYED_EVENT)).name("key by line");
  }

  /**
   * Convert events that an agent emits for another agent to keyed events.
   *
   * @param in pickled pairs of a key's string and an event's bytes
   * @param name shown in Flink's web UI
   */
  public static DataStream<Row> keyPairs(DataStream<byte[]> in, String name) {
    return inOrder(in, in.map(new KeyedEvents.FromPairs(), KEYED_EVENT)).name(name);
  }

  /**
   * Keep the parallelism of the input, because a redistribution without a key would change the
   * order of the events of a key.
   */
  private static SingleOutputStreamOperator<Row> inOrder(
      DataStream<?> in, SingleOutputStreamOperator<Row> keyed) {
    if (in.getParallelism() > 0) {
      keyed.setParallelism(in.getParallelism());
    }
    return keyed;
  }

  /**
   * Return the mode of a job that cannot have an agent on this stream: {@code BATCH}, or {@code
   * AUTOMATIC} if each source of the stream is bounded. Return null for any other job.
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

  private static boolean isUnbounded(Transformation<?> transformation) {
    return transformation instanceof WithBoundedness source
        && source.getBoundedness() != Boundedness.BOUNDED;
  }

  /**
   * Run an agent on keyed events. Throws {@link IllegalArgumentException} for a job in batch mode.
   *
   * @param uid stable id of the operator and its state; null or empty means Flink's own id
   * @param name shown in Flink's web UI
   * @param description shown in Flink's web UI; may be null
   * @param planJson the agent's plan, a JSON object that only the worker parses
   * @param settingsJson the operator's own settings, see {@link AgentSettings}
   * @param secretsJson the part of the plan that only the workers receive; it appears in no name,
   *     description, log or message
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
      throw new IllegalArgumentException(AgentOperatorFactory.noBatchMode(mode));
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

  /**
   * Add an input with answers to an agent. The agent keeps its uid.
   *
   * @param agent the result of {@link #apply}, from which no stream is derived yet
   * @param answers keyed answers, see {@link #keyAnswers}
   * @return the outputs of the agent, which replace {@code agent}
   */
  public static SingleOutputStreamOperator<byte[]> withAnswers(
      StreamExecutionEnvironment env, DataStream<byte[]> agent, DataStream<Row> answers) {
    agentOf(agent).enableAnswers();
    KeyedStream<Row, String> keyed = answers.keyBy(new KeyedEvents.KeyOf(), Types.STRING);
    return withInput(env, agent, 1, keyed.getTransformation(), keyed.getKeySelector());
  }

  /**
   * Add an input with control records to an agent. The agent keeps its uid. All subtasks receive
   * each record.
   *
   * @param agent the result of {@link #apply} or {@link #withAnswers}, from which no stream is
   *     derived yet
   * @param records control records, see {@link #controlRecords}
   * @return the outputs of the agent, which replace {@code agent}
   */
  public static SingleOutputStreamOperator<byte[]> withControl(
      StreamExecutionEnvironment env, DataStream<byte[]> agent, DataStream<String> records) {
    agentOf(agent).enableControlInput();
    return withInput(env, agent, Integer.MAX_VALUE, records.broadcast().getTransformation(), null);
  }

  /**
   * Convert rows with named fields to control records, which are JSON objects.
   *
   * @param fields the fields of records that the rows have
   */
  public static DataStream<String> controlRecords(DataStream<Row> in, String[] fields) {
    RowShape shape = RowShape.ofRow(in.getType());
    return oneByOne(in.flatMap(new KeyedEvents.ToControlRecords(shape, fields), Types.STRING));
  }

  /** Convert JSON objects to control records in one subtask. */
  public static DataStream<String> controlRecords(DataStream<String> in) {
    return oneByOne(in.filter(record -> true));
  }

  /** All subtasks of an agent must receive the records in the same order. */
  private static DataStream<String> oneByOne(SingleOutputStreamOperator<String> records) {
    return records.setParallelism(1).setMaxParallelism(1).name("control records");
  }

  private static SingleOutputStreamOperator<byte[]> withInput(
      StreamExecutionEnvironment env,
      DataStream<byte[]> agent,
      int position,
      Transformation<?> input,
      KeySelector<?, ?> key) {
    PhysicalTransformation<?> before = (PhysicalTransformation<?>) agent.getTransformation();
    List<Transformation<?>> inputs = new ArrayList<>(before.getInputs());
    List<KeySelector<?, ?>> keys = new ArrayList<>();
    if (before instanceof OneInputTransformation<?, ?> one) {
      keys.add(one.getStateKeySelector());
    } else {
      keys.addAll(((KeyedMultipleInputTransformation<?>) before).getStateKeySelectors());
    }
    inputs.add(Math.min(position, inputs.size()), input);
    keys.add(Math.min(position, keys.size()), key);
    KeyedMultipleInputTransformation<byte[]> several =
        new KeyedMultipleInputTransformation<>(
            before.getName(),
            agentOf(agent),
            agent.getType(),
            before.getParallelism(),
            Types.STRING);
    for (int i = 0; i < inputs.size(); i++) {
      several.addInput(inputs.get(i), keys.get(i));
    }
    env.getTransformations().remove(before);
    env.addOperator(several);
    SingleOutputStreamOperator<byte[]> result =
        new MultipleConnectedStreams(env).transform(several);
    if (before.getUid() != null) {
      result.uid(before.getUid());
    }
    if (before.getDescription() != null) {
      result.setDescription(before.getDescription());
    }
    return result;
  }

  /** Return the names of a savepoint's operators with keyed state, by their uids. */
  public static Map<String, String> operatorsIn(String savepoint) throws IOException {
    return SavepointKeys.operators(savepoint);
  }

  /** Return the state backends that may be able to read a savepoint or checkpoint. */
  public static List<String> backendsFor(String savepoint) throws IOException {
    return SavepointKeys.backends(savepoint);
  }

  /** Read the keyed state of an agent, see {@link SavepointKeys#read}. */
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
   * Emit the events of an agent's turns to the side output {@value AgentOutputs#EVENTS}.
   *
   * @param agent the result of {@link #apply}
   */
  public static void enableEvents(DataStream<byte[]> agent) {
    agentOf(agent).enableEvents();
  }

  /**
   * Replace the plan of an agent before the job is submitted, because the plan depends on agents
   * that are added later. The secrets stay.
   *
   * @param agent the result of {@link #apply}
   */
  public static void replacePlan(DataStream<byte[]> agent, String planJson) {
    agentOf(agent).replacePlan(planJson);
  }

  private static AgentOperatorFactory agentOf(DataStream<byte[]> agent) {
    if (agent.getTransformation() instanceof PhysicalTransformation<?> transformation
        && factoryOf(transformation) instanceof AgentOperatorFactory factory) {
      return factory;
    }
    throw new IllegalArgumentException(
        "Not the output of an agent: " + agent.getTransformation().getName());
  }

  private static StreamOperatorFactory<?> factoryOf(PhysicalTransformation<?> transformation) {
    if (transformation instanceof OneInputTransformation<?, ?> one) {
      return one.getOperatorFactory();
    }
    return transformation instanceof AbstractMultipleInputTransformation<?> several
        ? several.getOperatorFactory()
        : null;
  }
}
