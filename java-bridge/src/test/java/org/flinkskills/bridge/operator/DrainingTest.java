package org.flinkskills.bridge.operator;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.flink.api.common.functions.MapFunction;
import org.apache.flink.api.common.state.CheckpointListener;
import org.apache.flink.api.common.typeinfo.PrimitiveArrayTypeInfo;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.runtime.testutils.MiniClusterResourceConfiguration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.datastream.SingleOutputStreamOperator;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.typeinfo.python.PickledByteArrayTypeInfo;
import org.apache.flink.test.junit5.MiniClusterExtension;
import org.apache.flink.types.Row;
import org.apache.flink.util.CloseableIterator;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.FakeWorkers.Turn;
import org.flinkskills.bridge.kit.Waiting;
import org.flinkskills.bridge.plan.AgentPlan;
import org.flinkskills.bridge.plan.AgentSettings;
import org.flinkskills.bridge.streams.KeyedEvents;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

/** Bounded input whose last turns take long, in a local cluster. */
@Timeout(120)
class DrainingTest {
  @RegisterExtension
  static final MiniClusterExtension CLUSTER =
      new MiniClusterExtension(
          new MiniClusterResourceConfiguration.Builder()
              .setNumberTaskManagers(1)
              .setNumberSlotsPerTaskManager(4)
              .build());

  private static final AtomicInteger COMPLETED = new AtomicInteger();

  /** Counts the completed checkpoints in the chain of the last agent. */
  private static final class Counting
      implements MapFunction<byte[], String>, CheckpointListener, Serializable {
    private static final long serialVersionUID = 1L;

    @Override
    public String map(byte[] output) {
      return new String(output, StandardCharsets.UTF_8);
    }

    @Override
    public void notifyCheckpointComplete(long checkpoint) {
      COMPLETED.incrementAndGet();
    }
  }

  /** A task behind the agent that is slower than it. */
  private static final class Slow implements MapFunction<String, Integer> {
    private static final long serialVersionUID = 1L;
    private static final AtomicInteger SEEN = new AtomicInteger();

    @Override
    public Integer map(String output) throws InterruptedException {
      // Slowness is what the test is about; it waits for none of it.
      Thread.sleep(10);
      return SEEN.incrementAndGet();
    }
  }

  private static final class KeyedByText implements MapFunction<byte[], Row> {
    private static final long serialVersionUID = 1L;

    @Override
    public Row map(byte[] output) {
      return Row.of(new String(output, StandardCharsets.UTF_8), output);
    }
  }

  /** Neither agents one behind the other nor several subtasks keep barriers back. */
  @ParameterizedTest(name = "{0} agents, parallelism {1}, unaligned: {2}, chained: {3}")
  @CsvSource({"1, 1, false, true", "1, 2, true, false", "2, 2, false, true", "2, 1, true, true"})
  void checkpointsCompleteWhileTheLastTurnsRun(
      int agents, int parallelism, boolean unaligned, boolean chained) throws Exception {
    Configuration options = new Configuration();
    options.set(CheckpointingOptions.ENABLE_UNALIGNED, unaligned);
    StreamExecutionEnvironment env =
        StreamExecutionEnvironment.getExecutionEnvironment(options).setParallelism(parallelism);
    env.enableCheckpointing(20);
    if (!chained) {
      env.disableOperatorChaining();
    }
    FakeWorkers workers = new FakeWorkers();
    DataStream<Row> keyed = env.fromData(keyedEvent(), row("a"), row("b"), row("c"));
    SingleOutputStreamOperator<byte[]> outputs = agent(env, keyed, workers, 1);
    for (int i = 2; i <= agents; i++) {
      outputs = agent(env, outputs.map(new KeyedByText(), keyedEvent()), workers, i);
    }
    CompletableFuture<Void> answers =
        CompletableFuture.runAsync(() -> answer(workers, agents, parallelism));
    List<String> found = new ArrayList<>();
    try (CloseableIterator<String> results =
        outputs.map(new Counting(), Types.STRING).executeAndCollect()) {
      results.forEachRemaining(found::add);
    } finally {
      try {
        answers.get();
      } catch (ExecutionException e) {
        throw new AssertionError(e.getCause());
      }
    }
    assertEquals(List.of("a", "b", "c"), found.stream().sorted().toList());
  }

  @Test
  void anUnalignedBarrierDoesNotWaitBehindOutputs() throws Exception {
    Configuration options = new Configuration();
    options.set(CheckpointingOptions.ENABLE_UNALIGNED, true);
    StreamExecutionEnvironment env =
        StreamExecutionEnvironment.getExecutionEnvironment(options).setParallelism(1);
    FakeWorkers workers = new FakeWorkers();
    int outputs = 600;
    AtomicInteger seen = new AtomicInteger();
    CompletableFuture<Void> answers =
        CompletableFuture.runAsync(
            () -> {
              try {
                Turn turn = workers.only().takeTurn();
                awaitCheckpoints(1);
                for (int i = 0; i < outputs; i++) {
                  workers.only().output(turn, "x".repeat(40_000));
                }
                // The first of them may have begun before the outputs.
                awaitCheckpoints(2);
                seen.set(Slow.SEEN.get());
                workers.only().end(turn);
              } catch (Exception e) {
                throw new IllegalStateException(e);
              }
            });
    env.enableCheckpointing(100);
    DataStream<Row> keyed = env.fromData(keyedEvent(), row("a"));
    List<Integer> found = new ArrayList<>();
    try (CloseableIterator<Integer> results =
        agent(env, keyed, workers, 1)
            .map(new Counting(), Types.STRING)
            .rebalance()
            .map(new Slow())
            .executeAndCollect()) {
      results.forEachRemaining(found::add);
    }
    answers.get();
    assertEquals(outputs, found.size());
    assertTrue(seen.get() < outputs / 2, "Checkpoints came only after outputs: " + seen);
  }

  private static void awaitCheckpoints(int more) throws Exception {
    int before = COMPLETED.get();
    Waiting.until("checkpoints", () -> COMPLETED.get() >= before + more);
  }

  /** Ends the turns of each agent only after some checkpoints, and so long after the input. */
  private static void answer(FakeWorkers workers, int agents, int parallelism) {
    try {
      FakeWorker worker = workers.only();
      for (int agent = 1; agent <= agents; agent++) {
        List<Turn> turns = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
          turns.add(worker.takeTurn());
        }
        int before = COMPLETED.get();
        try {
          Waiting.until(
              "checkpoints while agent " + agent + " drains",
              () -> COMPLETED.get() >= before + 5 * parallelism);
        } finally {
          turns.forEach(turn -> worker.end(turn, turn.event()));
        }
      }
    } catch (Exception e) {
      throw new IllegalStateException(e);
    }
  }

  private static SingleOutputStreamOperator<byte[]> agent(
      StreamExecutionEnvironment env, DataStream<Row> keyed, FakeWorkers workers, int number) {
    String settings = "{\"workers\":1}";
    AgentOperatorFactory factory =
        new AgentOperatorFactory(
            new AgentPlan("{\"agent\":" + number + "}", "{}"),
            AgentSettings.fromJson(settings),
            env,
            workers.provider());
    return keyed
        .keyBy(new KeyedEvents.KeyOf(), Types.STRING)
        .transform(
            "agent " + number, PickledByteArrayTypeInfo.PICKLED_BYTE_ARRAY_TYPE_INFO, factory);
  }

  private static TypeInformation<Row> keyedEvent() {
    return Types.ROW(Types.STRING, PrimitiveArrayTypeInfo.BYTE_PRIMITIVE_ARRAY_TYPE_INFO);
  }

  private static Row row(String text) {
    return Row.of(text, text.getBytes(StandardCharsets.UTF_8));
  }
}
