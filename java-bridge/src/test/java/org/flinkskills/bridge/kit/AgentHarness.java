package org.flinkskills.bridge.kit;

import java.io.File;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobID;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.metrics.Metric;
import org.apache.flink.runtime.checkpoint.OperatorSubtaskState;
import org.apache.flink.runtime.clusterframework.types.ResourceID;
import org.apache.flink.runtime.executiongraph.ExecutionGraphTestUtils;
import org.apache.flink.runtime.io.network.api.writer.ResultPartitionWriter;
import org.apache.flink.runtime.metrics.groups.TaskManagerMetricGroup;
import org.apache.flink.runtime.metrics.groups.TaskMetricGroup;
import org.apache.flink.runtime.metrics.util.TestingMetricRegistry;
import org.apache.flink.runtime.operators.testutils.MockEnvironment;
import org.apache.flink.runtime.operators.testutils.MockEnvironmentBuilder;
import org.apache.flink.runtime.state.KeyGroupRangeAssignment;
import org.apache.flink.runtime.state.StateBackend;
import org.apache.flink.runtime.state.VoidNamespace;
import org.apache.flink.runtime.util.TestingTaskManagerRuntimeInfo;
import org.apache.flink.streaming.runtime.streamrecord.StreamRecord;
import org.apache.flink.streaming.runtime.tasks.mailbox.Mail;
import org.apache.flink.streaming.runtime.tasks.mailbox.TaskMailbox;
import org.apache.flink.streaming.util.OneInputStreamOperatorTestHarness;
import org.apache.flink.types.Row;
import org.apache.flink.util.OutputTag;
import org.apache.flink.util.function.ThrowingRunnable;
import org.flinkskills.bridge.operator.AgentOperator;
import org.flinkskills.bridge.operator.AgentOperatorFactory;
import org.flinkskills.bridge.outputs.AgentOutputs;
import org.flinkskills.bridge.plan.AgentPlan;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.plan.JobResources;
import org.flinkskills.bridge.streams.KeyedEvents;
import org.flinkskills.bridge.turns.KeyedTurns;
import org.flinkskills.bridge.turns.StateFormat;

/** One agent operator on a test's own mailbox. Mails run when the test waits. */
public final class AgentHarness extends OneInputStreamOperatorTestHarness<Row, byte[]> {
  public static final String PLAN = "{\"agent\":\"test\"}";
  public static final int MAX_PARALLELISM = 16;

  private final MockEnvironment mockEnvironment;

  /** Settings of a test. */
  public static final class Builder {
    private final AgentOperatorFactory.LauncherProvider launchers;
    private final File tmp;
    private JobID jobId = new JobID();
    private String plan = PLAN;
    private String secrets = "{}";
    private boolean events;
    private boolean controlled;
    private int maxInFlight = 100;
    private int maxPending = 1000;
    private int workers = 1;
    private long openTimeoutMs = 20_000;
    private long maxSilenceMs = 60_000;
    private int maxCrashes = 3;
    private long sessionTtlMs;
    private boolean overtake;
    private long waitsKeepMs = 3_600_000;
    private boolean drainEndsWaits;
    private int waitsMaxEarly = 100;
    private int parallelism = 1;
    private int subtask;
    private List<String> resources = List.of();
    private String python;
    private LinkedHashMap<String, String> env = new LinkedHashMap<>();
    private ClassLoader classLoader;
    private StateBackend stateBackend;
    private TaskMetricGroup metrics;
    private List<ResultPartitionWriter> writers = List.of();

    public Builder(AgentOperatorFactory.LauncherProvider launchers, File tmp) {
      this.launchers = launchers;
      this.tmp = tmp;
    }

    public Builder jobId(JobID value) {
      jobId = value;
      return this;
    }

    public Builder plan(String value) {
      plan = value;
      return this;
    }

    public Builder secrets(String value) {
      secrets = value;
      return this;
    }

    public Builder events() {
      events = true;
      return this;
    }

    /** Accept control records. */
    public Builder controlled() {
      controlled = true;
      return this;
    }

    public Builder maxInFlight(int value) {
      maxInFlight = value;
      return this;
    }

    public Builder maxPending(int value) {
      maxPending = value;
      return this;
    }

    public Builder workers(int value) {
      workers = value;
      return this;
    }

    public Builder openTimeoutMs(long value) {
      openTimeoutMs = value;
      return this;
    }

    public Builder maxSilenceMs(long value) {
      maxSilenceMs = value;
      return this;
    }

    public Builder maxCrashes(int value) {
      maxCrashes = value;
      return this;
    }

    public Builder sessionTtlMs(long value) {
      sessionTtlMs = value;
      return this;
    }

    public Builder overtake() {
      overtake = true;
      return this;
    }

    public Builder waitsKeepMs(long value) {
      waitsKeepMs = value;
      return this;
    }

    public Builder overtake(boolean value) {
      overtake = value;
      return this;
    }

    public Builder waitsMaxEarly(int value) {
      waitsMaxEarly = value;
      return this;
    }

    Builder drainEndsWaits() {
      drainEndsWaits = true;
      return this;
    }

    public Builder subtask(int index, int of) {
      subtask = index;
      parallelism = of;
      return this;
    }

    Builder resources(List<String> value, ClassLoader loader) {
      resources = value;
      classLoader = loader;
      return this;
    }

    public Builder python(String executable, LinkedHashMap<String, String> variables) {
      python = executable;
      env = variables;
      return this;
    }

    public Builder stateBackend(StateBackend value) {
      stateBackend = value;
      return this;
    }

    /** Adds the writer of an output of the task. */
    public Builder writer(ResultPartitionWriter value) {
      writers = List.of(value);
      return this;
    }

    /** Collects the operator's metrics by the last part of their names. */
    public Builder metrics(Map<String, Metric> registered) {
      metrics =
          TaskManagerMetricGroup.createTaskManagerMetricGroup(
                  TestingMetricRegistry.builder()
                      .setRegisterConsumer((metric, name, group) -> registered.put(name, metric))
                      .build(),
                  "localhost",
                  ResourceID.generate())
              .addJob(jobId, "job")
              .addTask(ExecutionGraphTestUtils.createExecutionAttemptId(), "task");
      return this;
    }

    /** An operator that is set up, and neither restored nor open. */
    public AgentHarness build() throws Exception {
      AgentSettings settings =
          new AgentSettings(
              maxInFlight,
              maxPending,
              workers,
              openTimeoutMs,
              maxSilenceMs,
              maxCrashes,
              sessionTtlMs,
              new ArrayList<>(resources),
              JobResources.Limits.defaults(),
              python,
              env,
              false,
              overtake,
              waitsKeepMs,
              drainEndsWaits,
              waitsMaxEarly);
      AgentPlan agentPlan = new AgentPlan(plan, secrets, events);
      AgentOperatorFactory factory =
          launchers == null
              ? new AgentOperatorFactory(agentPlan, settings, null)
              : new AgentOperatorFactory(agentPlan, settings, null, launchers);
      if (controlled) {
        factory.enableControl();
      }
      MockEnvironmentBuilder environment =
          new MockEnvironmentBuilder()
              .setJobID(jobId)
              .setMaxParallelism(MAX_PARALLELISM)
              .setParallelism(parallelism)
              .setSubtaskIndex(subtask)
              .setManagedMemorySize(64 * 1024 * 1024)
              .setTaskManagerRuntimeInfo(
                  new TestingTaskManagerRuntimeInfo(new Configuration(), tmp));
      if (metrics != null) {
        environment.setMetricGroup(metrics);
      }
      if (classLoader != null) {
        environment.setUserCodeClassLoader(classLoader);
      }
      MockEnvironment task = environment.build();
      task.addOutputs(writers);
      AgentHarness harness = new AgentHarness(factory, task);
      if (stateBackend != null) {
        harness.setStateBackend(stateBackend);
      }
      harness.setup();
      return harness;
    }

    public AgentHarness open() throws Exception {
      return open(null);
    }

    public AgentHarness open(OperatorSubtaskState restored) throws Exception {
      AgentHarness harness = build();
      if (restored == null) {
        harness.initializeEmptyState();
      } else {
        harness.initializeState(restored);
      }
      harness.open();
      return harness;
    }
  }

  private AgentHarness(AgentOperatorFactory factory, MockEnvironment environment) throws Exception {
    super(factory, environment);
    this.mockEnvironment = environment;
    config.setStatePartitioner(0, new KeyedEvents.KeyOf());
    config.setStateKeySerializer(
        Types.STRING.createSerializer(executionConfig.getSerializerConfig()));
    config.serializeAllConfigs();
  }

  /** A key that begins with the text and belongs to that subtask. */
  public static String keyOf(int subtask, int parallelism, String text) {
    String key = text;
    while (KeyGroupRangeAssignment.assignKeyToParallelOperator(key, MAX_PARALLELISM, parallelism)
        != subtask) {
      key += "+";
    }
    return key;
  }

  public void send(String key, String event) throws Exception {
    processElement(new StreamRecord<>(row(key, event)));
  }

  public void send(String key, String event, long timestamp) throws Exception {
    processElement(new StreamRecord<>(row(key, event), timestamp));
  }

  /** Send an answer to the wait with that name, or that label of {@link FakeWorkers#id}. */
  public void sendAnswer(String key, String wait, String answer) throws Exception {
    Row row = Row.of(key, answer.getBytes(StandardCharsets.UTF_8), FakeWorkers.id(wait));
    processElement(new StreamRecord<>(row));
  }

  /** Send a control record. */
  public void control(String json) throws Exception {
    ((AgentOperator) getOperator()).acceptControl(json.replace('\'', '"'));
  }

  private static Row row(String key, String event) {
    return Row.of(key, event.getBytes(StandardCharsets.UTF_8));
  }

  /** Runs mails until the condition holds. */
  public void await(String what, Callable<Boolean> condition) throws Exception {
    Waiting.until(
        what,
        () -> {
          runMails();
          return condition.call();
        });
  }

  public void runMails() throws Exception {
    Optional<Mail> mail;
    while ((mail = getTaskMailbox().tryTake(0)).isPresent()) {
      mail.get().run();
    }
  }

  /** The number of keys that a state has, by its name, without the markers of its format. */
  public long keysOf(String state) {
    AgentOperator agent = (AgentOperator) getOperator();
    try (Stream<String> keys =
        agent.<String>getKeyedStateBackend().getKeys(state, VoidNamespace.INSTANCE)) {
      return keys.filter(key -> !StateFormat.isMarker(key)).count();
    }
  }

  /** Write another version to the markers of the state's format. Return their number. */
  public int mark(byte version) throws Exception {
    int marked = 0;
    for (String key : markers()) {
      marker(key).put(0L, new byte[] {version});
      marked++;
    }
    return marked;
  }

  /** The version of the only marker of the state's format. */
  public byte marked() throws Exception {
    return marker(markers().get(0)).get(0L)[0];
  }

  private List<String> markers() {
    try (Stream<String> keys =
        ((AgentOperator) getOperator())
            .<String>getKeyedStateBackend()
            .getKeys(KeyedTurns.PENDING, VoidNamespace.INSTANCE)) {
      return keys.filter(StateFormat::isMarker).toList();
    }
  }

  private MapState<Long, byte[]> marker(String key) throws Exception {
    AgentOperator agent = (AgentOperator) getOperator();
    agent.setCurrentKey(key);
    return agent
        .getRuntimeContext()
        .getMapState(
            new MapStateDescriptor<>(
                KeyedTurns.PENDING,
                Types.LONG,
                PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO));
  }

  /** Run an action in a separate mail of the task, as Flink does with checkpoints. */
  public void inTask(ThrowingRunnable<Exception> action) {
    getTaskMailbox().put(new Mail(action, TaskMailbox.MIN_PRIORITY, "a test's"));
  }

  /** Emitted records as strings, watermarks and statuses. */
  public List<String> emitted() {
    return getOutput().stream()
        .map(
            element ->
                element instanceof StreamRecord<?> record
                    ? new String((byte[]) record.getValue(), StandardCharsets.UTF_8)
                        + (record.hasTimestamp() ? "@" + record.getTimestamp() : "")
                    : element.toString())
        .toList();
  }

  public List<String> emitted(String tag) {
    OutputTag<byte[]> outputTag = AgentOutputs.tag(tag);
    ConcurrentLinkedQueue<StreamRecord<byte[]>> records = getSideOutput(outputTag);
    return records == null
        ? List.of()
        : records.stream()
            .map(
                record ->
                    new String(record.getValue(), StandardCharsets.UTF_8)
                        + (record.hasTimestamp() ? "@" + record.getTimestamp() : ""))
            .toList();
  }

  public void awaitEmitted(int count) throws Exception {
    await(count + " outputs", () -> getOutput().size() >= count);
  }

  @Override
  public void close() throws Exception {
    super.close();
    mockEnvironment.close();
  }
}
