package org.flinkskills.bridge.pool;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.stream.Stream;
import org.apache.flink.api.common.JobID;
import org.flinkskills.bridge.AgentOpenException;
import org.flinkskills.bridge.AgentWorkerException;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.Waiting;
import org.flinkskills.bridge.processes.LeftProcesses;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** The operator with real processes: a small Python program instead of the agent worker. */
@Timeout(60)
public class PythonWorkerTest {
  @TempDir File tmp;
  @TempDir Path modules;

  @BeforeEach
  void installWorker() throws Exception {
    installEchoWorker(modules);
  }

  /** Makes a module {@code flink_skills.worker} of the echo worker. */
  public static void installEchoWorker(Path modules) throws Exception {
    Path module = Files.createDirectories(modules.resolve("flink_skills"));
    Files.createFile(module.resolve("__init__.py"));
    try (InputStream script = PythonWorkerTest.class.getResourceAsStream("/echo_worker.py")) {
      Files.copy(script, module.resolve("worker.py"));
    }
  }

  private AgentHarness.Builder builder(String... variables) {
    LinkedHashMap<String, String> env = new LinkedHashMap<>();
    env.put("PYTHONPATH", modules.toString());
    for (String variable : variables) {
      env.put(variable, "1");
    }
    return new AgentHarness.Builder(null, tmp).python("python3", env);
  }

  private List<Path> leftOvers() throws Exception {
    try (Stream<Path> files = Files.list(tmp.toPath())) {
      return files
          .filter(path -> path.getFileName().toString().matches("(flink-skills|python-dist)-.*"))
          .toList();
    }
  }

  private static long workersOfThisJvm() {
    return ProcessHandle.current()
        .descendants()
        .filter(p -> p.info().commandLine().orElse("").contains("flink_skills.worker"))
        .count();
  }

  @Test
  void turnsRunInAPythonProcessThatIsGoneAfterwards() throws Exception {
    try (AgentHarness agent = builder("MARKER").workers(2).open()) {
      assertEquals(2, workersOfThisJvm());
      for (int i = 0; i < 100; i++) {
        agent.send("k" + i % 10, "event", i);
      }
      agent.endInput();
      assertEquals(100, agent.getOutput().size());
      assertTrue(agent.emitted().contains("k3#10/0:event@93"), agent.emitted().toString());
      agent.send("k", "env");
      agent.awaitEmitted(101);
      String env = agent.emitted().get(100);
      assertTrue(env.contains("\"MARKER\": \"1\""), env);
      assertTrue(env.contains("\"PYFLINK_GATEWAY_DISABLED\": \"true\""), env);
    }
    assertEquals(0, workersOfThisJvm());
    assertEquals(List.of(), leftOvers());
  }

  @Test
  void aProcessThatDiesIsReplacedAndItsTurnResumed() throws Exception {
    try (AgentHarness agent = builder().open()) {
      agent.send("a", "crash");
      agent.awaitEmitted(1);
      assertEquals(List.of("a#1/1:crash"), agent.emitted());
    }
  }

  @Test
  void aProcessThatIsStoppedIsReplacedAndItsTurnResumed() throws Exception {
    try (AgentHarness agent = builder().maxSilenceMs(2000).open()) {
      agent.send("a", "stop");
      agent.awaitEmitted(1);
      assertEquals(List.of("a#1/1:stop"), agent.emitted());
      assertEquals(1, workersOfThisJvm());
    }
  }

  @Test
  void aProcessThatDoesNotEndIsKilledWithItsChildren() throws Exception {
    long child;
    long started;
    try (AgentHarness agent = builder("ECHO_IGNORES_CLOSE", "ECHO_IGNORES_EOF").open()) {
      agent.send("a", "child");
      agent.awaitEmitted(1);
      child = Long.parseLong(agent.emitted().get(0));
      assertTrue(ProcessHandle.of(child).isPresent());
      started = System.nanoTime();
    }
    assertTrue(System.nanoTime() - started < 8_000_000_000L);
    Waiting.until("the child is gone", () -> !isAlive(child));
    assertEquals(0, workersOfThisJvm());
    assertEquals(List.of(), leftOvers());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "leave session",
        "leave session orphan",
        "leave session orphan quiet",
        "leave session orphan bare",
        "leave orphan bare quiet",
        "leave session orphan quiet stubborn"
      })
  void noProcessAndNoThreadIsLeftWhenTheWorkerEnds(String event) throws Exception {
    long left;
    JobID job = new JobID();
    try (AgentHarness agent = builder().jobId(job).open()) {
      agent.send("a", event);
      agent.awaitEmitted(1);
      left = Long.parseLong(agent.emitted().get(0));
      assertTrue(isAlive(left));
    }
    assertEquals(List.of(), WorkerPoolTest.poolThreads(job));
    Waiting.until("the process that was left is gone", () -> !isAlive(left));
    assertEquals(List.of(), leftOvers());
  }

  @ParameterizedTest
  @ValueSource(
      strings = {
        "leave session",
        "leave session orphan quiet",
        "leave session orphan bare",
        "leave bare quiet"
      })
  void whatAKilledWorkerLeftIsEndedAndNothingElse(String event) throws Exception {
    Process other = new ProcessBuilder("sleep", "600").start();
    try (AgentHarness agent = builder().open();
        AgentHarness neighbor = builder().open()) {
      agent.send("a", event);
      agent.awaitEmitted(1);
      long left = Long.parseLong(agent.emitted().get(0));
      neighbor.send("a", "leave session");
      neighbor.awaitEmitted(1);
      agent.send("a", "pid");
      agent.awaitEmitted(2);
      ProcessHandle.of(Long.parseLong(agent.emitted().get(1))).orElseThrow().destroyForcibly();
      agent.send("a", "again");
      agent.awaitEmitted(3);
      Waiting.until("the process that was left is gone", () -> !isAlive(left));
      assertTrue(isAlive(Long.parseLong(neighbor.emitted().get(0))));
      assertTrue(other.isAlive());
    } finally {
      other.destroyForcibly();
    }
  }

  @Test
  void whatTheWorkersOfAKilledTaskManagerLeftIsEndedByTheNextJob() throws Exception {
    ProcessBuilder program = new ProcessBuilder("sleep", "600");
    String ended = ProcessHandle.current().pid() + "-1";
    program.environment().put(LeftProcesses.VARIABLE, "flink-skills-x/0.1@" + ended);
    Process left = program.start();
    try (AgentHarness agent = builder().open()) {
      Waiting.until("the process is gone", () -> !left.isAlive());
    } finally {
      left.destroyForcibly();
    }
  }

  private static boolean isAlive(long pid) {
    return ProcessHandle.of(pid).map(ProcessHandle::isAlive).orElse(false);
  }

  @Test
  void aWorkerThatCannotBeImportedFailsWithThePythonError() throws Exception {
    Files.writeString(modules.resolve("flink_skills/worker.py"), "import no_such_module_here\n");
    AgentHarness agent = builder().build();
    agent.initializeEmptyState();
    AgentWorkerException failure = assertThrows(AgentWorkerException.class, agent::open);
    assertTrue(failure.getMessage().contains("no_such_module_here"), failure.getMessage());
    assertTrue(failure.getMessage().contains("exit code 1"), failure.getMessage());
    agent.close();
    assertEquals(List.of(), leftOvers());
  }

  @Test
  void anInterpreterThatDoesNotExistIsNamed() throws Exception {
    AgentHarness agent =
        new AgentHarness.Builder(null, tmp)
            .python("/no/such/python", new LinkedHashMap<>())
            .build();
    agent.initializeEmptyState();
    AgentOpenException failure = assertThrows(AgentOpenException.class, agent::open);
    assertTrue(failure.getMessage().contains("/no/such/python"), failure.getMessage());
    assertTrue(failure.getMessage().contains("-pyexec"), failure.getMessage());
    agent.close();
    assertFalse(workersOfThisJvm() > 0);
    assertEquals(List.of(), leftOvers());
  }
}
