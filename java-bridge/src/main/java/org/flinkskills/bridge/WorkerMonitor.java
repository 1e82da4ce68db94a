package org.flinkskills.bridge;

import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;

/** Thread in which each worker of a pool checks its time limits, until the pool closes. */
final class WorkerMonitor {
  private final WorkerProcess[] workers;
  private final Consumer<Exception> failed;
  private final CountDownLatch ended = new CountDownLatch(1);
  private final Thread thread;

  /**
   * @param failed receives the error after which the workers are not monitored
   */
  WorkerMonitor(WorkerProcess[] workers, String name, Consumer<Exception> failed) {
    this.workers = workers;
    this.failed = failed;
    this.thread = WorkerProcess.daemon(this::run, name);
  }

  void start() {
    thread.start();
  }

  void close() {
    ended.countDown();
  }

  Thread thread() {
    return thread;
  }

  private void run() {
    try {
      while (!ended.await(WorkerProcess.TICK_MS, TimeUnit.MILLISECONDS)) {
        for (WorkerProcess worker : workers) {
          worker.tick();
        }
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (RuntimeException | Error e) {
      failed.accept(new AgentWorkerException("The monitor of the agent workers failed: " + e, e));
    }
  }
}
