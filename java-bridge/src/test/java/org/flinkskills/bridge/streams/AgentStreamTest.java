package org.flinkskills.bridge.streams;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.flink.api.common.RuntimeExecutionMode;
import org.apache.flink.runtime.testutils.MiniClusterResourceConfiguration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;
import org.apache.flink.util.ExceptionUtils;
import org.flinkskills.bridge.AgentOpenException;
import org.flinkskills.bridge.AgentRejectedException;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.pool.PythonWorkerTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;

/** Whole jobs in a local cluster, with real processes. */
@Timeout(120)
class AgentStreamTest {
  @RegisterExtension
  static final MiniClusterExtension CLUSTER =
      new MiniClusterExtension(
          new MiniClusterResourceConfiguration.Builder()
              .setNumberTaskManagers(1)
              .setNumberSlotsPerTaskManager(2)
              .build());

  @TempDir Path modules;

  private StreamExecutionEnvironment env() throws Exception {
    PythonWorkerTest.installEchoWorker(modules);
    StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
    env.setParallelism(2);
    return env;
  }

  private String settings() {
    return "{\"pythonExecutable\":\"python3\",\"workers\":2,\"openTimeoutMs\":30000,\"env\":"
        + "{\"PYTHONPATH\":\""
        + modules
        + "\"}}";
  }

  @Test
  void aJobRunsFromLinesToOutputs() throws Exception {
    StreamExecutionEnvironment env = env();
    List<String> lines = new ArrayList<>();
    for (int i = 0; i < 50; i++) {
      lines.add("\"k" + i % 5 + "\"\t{\"n\":" + i + "}");
    }
    DataStream<Row> keyed = AgentStream.keyLines(env.fromData(lines).setParallelism(1));
    SingleOutputStreamOperator<byte[]> out =
        AgentStream.apply(env, keyed, "agent-uid", "agent", "models: none", "{}", settings(), "{}");
    assertEquals("agent-uid", out.getTransformation().getUid());
    assertEquals("agent", out.getName());
    assertEquals("models: none", out.getTransformation().getDescription());
    List<String> outputs = new ArrayList<>();
    try (CloseableIterator<byte[]> results = out.executeAndCollect()) {
      results.forEachRemaining(bytes -> outputs.add(new String(bytes, StandardCharsets.UTF_8)));
    }
    assertEquals(50, outputs.size());
    List<String> ofOneKey =
        outputs.stream()
            .filter(output -> output.startsWith("\"k2\""))
            .sorted(Comparator.comparingInt(AgentStreamTest::numberOf))
            .toList();
    for (int i = 0; i < 10; i++) {
      assertEquals("\"k2\"#" + (i + 1) + "/0:{\"n\":" + (2 + 5 * i) + "}", ofOneKey.get(i));
    }
  }

  private static int numberOf(String output) {
    return Integer.parseInt(output.substring(output.indexOf('#') + 1, output.indexOf('/')));
  }

  @Test
  void aPlanThatIsRefusedFailsTheJobWithTheWorkersWords() throws Exception {
    StreamExecutionEnvironment env = env();
    DataStream<Row> keyed = AgentStream.keyLines(env.fromData("1\t{}"));
    SingleOutputStreamOperator<byte[]> out =
        AgentStream.apply(
            env, keyed, null, "agent", null, "{\"refuse\":\"No skill 'x'.\"}", settings(), "{}");
    Exception failure =
        assertThrows(
            Exception.class,
            () -> {
              try (CloseableIterator<byte[]> results = out.executeAndCollect()) {
                results.forEachRemaining(bytes -> {});
              }
            });
    String message =
        ExceptionUtils.findThrowable(failure, AgentOpenException.class)
            .map(Throwable::getMessage)
            .orElse("no AgentOpenException: " + failure);
    assertEquals("No skill 'x'.", message);
  }

  @Test
  void batchModeIsRejectedByName() throws Exception {
    StreamExecutionEnvironment env = env();
    for (RuntimeExecutionMode mode :
        List.of(RuntimeExecutionMode.BATCH, RuntimeExecutionMode.AUTOMATIC)) {
      env.setRuntimeMode(mode);
      DataStream<Row> keyed = AgentStream.keyLines(env.fromData("1\t{}"));
      IllegalArgumentException rejected =
          assertThrows(
              IllegalArgumentException.class,
              () -> AgentStream.apply(env, keyed, null, "agent", null, "{}", settings(), "{}"));
      assertTrue(
          rejected.getMessage().startsWith("execution.runtime-mode is " + mode + ","),
          rejected.getMessage());
    }
  }

  @Test
  void automaticModeWithAnUnboundedSourceIsStreaming() throws Exception {
    StreamExecutionEnvironment env = env();
    env.setRuntimeMode(RuntimeExecutionMode.AUTOMATIC);
    DataStream<String> unbounded = env.socketTextStream("localhost", 1);
    DataStream<Row> keyed = AgentStream.keyLines(unbounded.union(env.fromData("1\t{}")));
    AgentStream.apply(env, keyed, null, "agent", null, "{}", settings(), "{}");
  }

  /** The mode may be set after the agent was put into the job. */
  @Test
  void aJobThatRunsInBatchModeNevertheless() throws Exception {
    StreamExecutionEnvironment env = env();
    DataStream<Row> keyed = AgentStream.keyLines(env.fromData("1\t{}"));
    SingleOutputStreamOperator<byte[]> out =
        AgentStream.apply(env, keyed, null, "agent", null, "{}", settings(), "{}");
    env.setRuntimeMode(RuntimeExecutionMode.BATCH);
    Exception failure =
        assertThrows(
            Exception.class,
            () -> {
              try (CloseableIterator<byte[]> results = out.executeAndCollect()) {
                results.forEachRemaining(bytes -> {});
              }
            });
    String message =
        ExceptionUtils.findThrowable(failure, AgentRejectedException.class)
            .map(Throwable::getMessage)
            .orElse("no AgentRejectedException: " + failure);
    assertTrue(message.startsWith("execution.runtime-mode is BATCH"), message);
  }

  @Test
  void wrongSettingsAreNamed() throws Exception {
    IllegalArgumentException unknown =
        assertThrows(
            IllegalArgumentException.class, () -> AgentSettings.fromJson("{\"maxInflight\": 1}"));
    assertTrue(unknown.getMessage().contains("maxInflight"), unknown.getMessage());
    IllegalArgumentException bad =
        assertThrows(
            IllegalArgumentException.class, () -> AgentSettings.fromJson("{\"maxInFlight\": 0}"));
    assertTrue(bad.getMessage().contains("at least 1"), bad.getMessage());
    assertThrows(
        IllegalArgumentException.class, () -> AgentSettings.fromJson("{\"maxInFlight\": \"x\"}"));
    assertEquals(7, AgentSettings.fromJson("{\"maxInFlight\": 7}").maxInFlight());
    assertEquals(AgentSettings.defaults(), AgentSettings.fromJson("{}"));
  }
}
