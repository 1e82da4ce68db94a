package org.flinkskills.bridge.processes;

import static org.junit.jupiter.api.Assertions.assertTrue;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

@Timeout(60)
class LeftProcessesTest {
  private final List<Process> started = new ArrayList<>();

  private Process marked(String mark) throws IOException {
    ProcessBuilder builder = new ProcessBuilder("sleep", "600");
    builder.environment().put(LeftProcesses.VARIABLE, mark);
    Process process = builder.start();
    started.add(process);
    return process;
  }

  @AfterEach
  void endAll() {
    started.forEach(Process::destroyForcibly);
  }

  @Test
  void processesOfTaskManagersThatWereKilledAreEnded() throws Exception {
    long own = ProcessHandle.current().pid();
    List<Process> left = List.of(marked("folder/0.1@" + own + "-1"), marked("a@" + own + "-2"));
    List<Process> others =
        List.of(
            marked(LeftProcesses.marker("folder/0.1")), marked("1-1"), marked("@1-1x"), marked(""));
    LeftProcesses.ofEndedTaskManagers().end("the test");
    for (Process process : left) {
      assertTrue(process.waitFor(20, TimeUnit.SECONDS));
    }
    others.forEach(process -> assertTrue(process.isAlive()));
  }

  @Test
  void processesOfOneWorkerAreEnded() throws Exception {
    Process worker = marked("one");
    LeftProcesses left = LeftProcesses.of(worker, "one");
    Process its = marked("one");
    List<Process> others = List.of(marked("on"), marked("one2"), marked("xone"));
    worker.destroyForcibly().waitFor();
    left.end("the test");
    assertTrue(its.waitFor(20, TimeUnit.SECONDS));
    others.forEach(process -> assertTrue(process.isAlive()));
  }
}
