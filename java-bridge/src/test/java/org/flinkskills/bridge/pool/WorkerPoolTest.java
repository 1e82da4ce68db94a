package org.flinkskills.bridge.pool;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.flink.api.common.JobID;
import org.apache.flink.metrics.Gauge;
import org.apache.flink.metrics.Metric;
import org.apache.flink.runtime.throwable.ThrowableClassifier;
import org.apache.flink.runtime.throwable.ThrowableType;
import org.apache.flink.shaded.jackson2.com.fasterxml.jackson.databind.ObjectMapper;
import org.flinkskills.bridge.AgentOpenException;
import org.flinkskills.bridge.AgentRejectedException;
import org.flinkskills.bridge.kit.AgentHarness;
import org.flinkskills.bridge.kit.FakeWorkers;
import org.flinkskills.bridge.kit.FakeWorkers.FakeWorker;
import org.flinkskills.bridge.kit.Waiting;
import org.flinkskills.bridge.plan.AgentPlan;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Timeout(60)
class WorkerPoolTest {
  @TempDir File tmp;

  private final FakeWorkers workers = new FakeWorkers();

  private AgentHarness.Builder builder() {
    return new AgentHarness.Builder(workers.provider(), tmp);
  }

  static List<Thread> threads(JobID job) {
    String prefix = "agent-worker-" + job.toString().substring(0, 8);
    return Thread.getAllStackTraces().keySet().stream()
        .filter(thread -> thread.getName().startsWith(prefix))
        .toList();
  }

  static List<String> poolThreads(JobID job) {
    return threads(job).stream().map(Thread::getName).toList();
  }

  @Test
  void theOperatorsOfAJobShareTheWorkersAndThePlan() throws Exception {
    JobID job = new JobID();
    AgentHarness one = builder().jobId(job).subtask(0, 2).open();
    AgentHarness two = builder().jobId(job).subtask(1, 2).open();
    AgentHarness other = builder().jobId(job).plan("{\"agent\":\"other\"}").open();
    assertEquals(1, workers.opened.get());
    assertEquals(1, workers.launched.size());
    FakeWorker worker = workers.only();
    assertEquals(2, worker.opens.size());
    one.send("a", "x");
    other.send("a", "y");
    FakeWorkers.Turn x = worker.takeTurn("x");
    FakeWorkers.Turn y = worker.takeTurn("y");
    assertTrue(x.operator() != y.operator() && x.plan() != y.plan());
    one.close();
    Waiting.until("CANCEL", () -> worker.cancelled.equals(List.of(x.operator())));
    assertTrue(Files.isDirectory(workers.scratch));
    other.close();
    assertEquals(0, workers.closed.get());
    two.close();
    assertEquals(1, workers.closed.get());
    assertFalse(Files.exists(workers.scratch));
    assertEquals(List.of(), poolThreads(job));
  }

  @Test
  void aPlansSecretsGoToTheWorkersAsTheyAreAndTellPlansApart() throws Exception {
    JobID job = new JobID();
    try (AgentHarness one = builder().jobId(job).secrets("{\"a\":\"planted\"}").open();
        AgentHarness two = builder().jobId(job).secrets("{\"a\":\"other\"}").open();
        AgentHarness same = builder().jobId(job).secrets("{\"a\":\"planted\"}").open()) {
      assertEquals(
          List.of("{\"a\":\"planted\"}", "{\"a\":\"other\"}"),
          workers.only().opens.stream().map(WorkerPoolTest::secretsOf).toList());
    }
    assertFalse(new AgentPlan("{}", "planted").toString().contains("planted"));
  }

  private static String secretsOf(FakeWorkers.Open open) {
    try {
      return new ObjectMapper().readTree(open.config()).get("secrets").asText();
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  @Test
  void whatAWorkerReportsBeforeAnOperatorIsThereIsShownAndHandedOn() throws Exception {
    JobID job = new JobID();
    workers.onOpen =
        (worker, open) -> {
          worker.metrics(open.plan(), "{\"skills\": " + open.plan() + "}");
          worker.metrics(open.plan(), "{\"counters\": [[\"steps\", [], 0]], \"memory\": 5}");
          worker.opened(open);
        };
    Map<String, Metric> first = new ConcurrentHashMap<>();
    Map<String, Metric> second = new ConcurrentHashMap<>();
    Map<String, Metric> other = new ConcurrentHashMap<>();
    AgentHarness one = builder().jobId(job).metrics(first).subtask(0, 2).open();
    AgentHarness two = builder().jobId(job).metrics(second).subtask(1, 2).open();
    AgentHarness separate =
        builder().jobId(job).metrics(other).plan("{\"agent\":\"other\"}").open();
    one.await("the metrics", () -> first.containsKey("skills"));
    separate.await("the metrics of the other plan", () -> other.containsKey("skills"));
    assertEquals(1, ((Gauge<?>) first.get("skills")).getValue());
    assertEquals(2, ((Gauge<?>) other.get("skills")).getValue());
    assertFalse(second.containsKey("skills"), "a sum over subtasks counts a plan's skills once");
    one.await("what was counted before", () -> first.containsKey("steps"));
    assertFalse(second.containsKey("steps"));
    one.close();
    two.await("the metrics of the operator that closed", () -> second.containsKey("skills"));
    assertEquals(5, ((Gauge<?>) second.get("memory")).getValue(), "of all reports");
    two.close();
    separate.close();
  }

  @Test
  void closingLeavesNoFolderWhateverIsInIt() throws Exception {
    JobID job = new JobID();
    Path outside = Files.createFile(tmp.toPath().resolve("outside"));
    AgentHarness agent = builder().jobId(job).open();
    Path folder = Files.createDirectories(workers.scratch.resolve("store/skill"));
    Files.createFile(folder.resolve("SKILL.md"));
    Files.createSymbolicLink(folder.resolve("link"), outside);
    Files.createSymbolicLink(folder.resolve("parent"), tmp.toPath());
    Files.setPosixFilePermissions(
        folder.resolve("SKILL.md"), PosixFilePermissions.fromString("r--r--r--"));
    Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("r-xr-xr-x"));
    assertTrue(workers.scratch.getFileName().toString().startsWith("flink-skills-" + job));
    agent.close();
    assertFalse(Files.exists(workers.scratch));
    assertTrue(Files.exists(outside));
    assertEquals(List.of(), poolThreads(job));
    agent.getOperator().close();
  }

  @Test
  void aRefusedPlanFailsWithTheWorkersOwnWords() throws Exception {
    JobID job = new JobID();
    workers.onOpen = (worker, open) -> worker.openFailed(open, "No skill 'x'. Did you mean 'y'?");
    AgentHarness agent = builder().jobId(job).workers(2).build();
    agent.initializeEmptyState();
    AgentOpenException failure = assertThrows(AgentRejectedException.class, agent::open);
    assertEquals("No skill 'x'. Did you mean 'y'?", failure.getMessage());
    assertEquals(
        ThrowableType.NonRecoverableError,
        ThrowableClassifier.getThrowableType(failure),
        "a restart would not help");
    agent.close();
    assertEquals(1, workers.closed.get());
    assertFalse(Files.exists(workers.scratch));
    assertEquals(List.of(), poolThreads(job));
  }

  @Test
  void aPlanThatMayOpenLaterIsLeftToTheRestartStrategy() throws Exception {
    workers.onOpen = (worker, open) -> worker.openFailed(open, "The server is down.", true);
    AgentHarness agent = builder().build();
    agent.initializeEmptyState();
    AgentOpenException failure = assertThrows(AgentOpenException.class, agent::open);
    assertEquals("The server is down.", failure.getMessage());
    assertEquals(ThrowableType.RecoverableError, ThrowableClassifier.getThrowableType(failure));
    agent.close();
  }

  @Test
  void aRefusedPlanDoesNotHarmTheOthers() throws Exception {
    JobID job = new JobID();
    try (AgentHarness good = builder().jobId(job).openTimeoutMs(2000).open()) {
      workers.onOpen = (worker, open) -> worker.openFailed(open, "no");
      AgentHarness bad = builder().jobId(job).plan("{\"agent\":\"bad\"}").build();
      bad.initializeEmptyState();
      assertThrows(AgentOpenException.class, bad::open);
      bad.close();
      long later = System.nanoTime() + 2_100_000_000L;
      Waiting.until("the open timeout has gone by", () -> System.nanoTime() > later);
      good.send("a", "a");
      FakeWorker worker = workers.only();
      worker.end(worker.takeTurn("a"), "a");
      good.awaitEmitted(1);
      assertEquals(1, workers.launched.size(), "the worker was not killed");
    }
  }

  @Test
  void aPlanThatIsNotOpenedInTimeFails() throws Exception {
    workers.onOpen = (worker, open) -> {};
    AgentHarness agent = builder().openTimeoutMs(200).build();
    agent.initializeEmptyState();
    AgentOpenException failure = assertThrows(AgentOpenException.class, agent::open);
    assertTrue(failure.getMessage().contains("skills.worker.open-timeout"), failure.getMessage());
    agent.close();
    assertFalse(Files.exists(workers.scratch));
  }

  @Test
  void aWorkerThatHangsWhenItIsStartedAgainIsKilled() throws Exception {
    try (AgentHarness agent = builder().openTimeoutMs(200).open()) {
      workers.onOpen =
          (worker, open) -> {
            if (workers.launched.size() > 2) {
              worker.opened(open);
            }
          };
      workers.only().die(1);
      FakeWorker hanging = workers.started(1);
      FakeWorker third = workers.started(2);
      assertEquals("exit code 137", hanging.exitDescription());
      agent.send("a", "a");
      agent.await("the turn", () -> !third.turns.isEmpty());
    }
  }

  @Test
  void openingCanBeInterrupted() throws Exception {
    workers.onOpen = (worker, open) -> {};
    AgentHarness agent = builder().build();
    agent.initializeEmptyState();
    Thread task = Thread.currentThread();
    AtomicReference<Exception> problem = new AtomicReference<>();
    Thread canceller =
        new Thread(
            () -> {
              try {
                Waiting.until("OPEN", () -> !workers.only().opens.isEmpty());
              } catch (Exception e) {
                problem.set(e);
              }
              task.interrupt();
            });
    canceller.start();
    assertThrows(InterruptedException.class, agent::open);
    canceller.join();
    assertEquals(null, problem.get());
    agent.close();
    assertFalse(Files.exists(workers.scratch));
  }

  @Test
  void anInterpreterThatIsNotThereIsSaidAtOnce() throws Exception {
    workers.launchFailure = new IOException("The Python interpreter 'nopython' …");
    AgentHarness agent = builder().build();
    agent.initializeEmptyState();
    AgentOpenException failure = assertThrows(AgentOpenException.class, agent::open);
    assertTrue(failure.getMessage().contains("nopython"), failure.getMessage());
    agent.close();
    assertEquals(0, workers.launched.size());
  }

  @Test
  void anOperatorThatWasNeverOpenedCloses() throws Exception {
    AgentHarness agent = builder().build();
    agent.close();
    assertEquals(0, workers.opened.get());
  }
}
