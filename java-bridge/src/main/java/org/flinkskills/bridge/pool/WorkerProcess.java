package org.flinkskills.bridge.pool;

import java.io.IOException;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.util.MdcUtils;
import org.flinkskills.bridge.AgentRejectedException;
import org.flinkskills.bridge.AgentWorkerException;
import org.flinkskills.bridge.processes.LeftProcesses;
import org.flinkskills.bridge.processes.WorkerLauncher;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Supervisor of one worker: it starts the process, and starts it again after an exit. Each start is
 * an <em>epoch</em>. A frame for an older epoch is dropped.
 *
 * <p>The supervisor's thread also reads the frames of the process, see {@link WorkerRun}. The
 * thread that starts a process must live as long as the process, see {@link WorkerLauncher#launch}.
 */
final class WorkerProcess {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerProcess.class);

  /** The time between calls of {@link #tick}. */
  static final long TICK_MS = 100;

  /** The time in which a thread of a process ends after the process. */
  static final long JOIN_MS = 1000;

  private static final long EXIT_GRACE_MS = 500;

  /**
   * Constant properties of a worker.
   *
   * @param name the name in logs, and the prefix of the names of threads
   * @param openTimeoutMs the time in which a process must open its plans
   */
  record Config(String name, JobID jobId, int index, WorkerLauncher launcher, long openTimeoutMs) {}

  private final Config config;
  private final OpenPlans plans;
  private final WorkerFrames frames;
  private final Thread supervisor;

  private final WorkerSilence.Limit silenceLimit = new WorkerSilence.Limit();

  private final Object lock = new Object();
  private WorkerRun current;
  private boolean closing;
  private long closeDeadlineNanos;
  private int epochs;

  /**
   * @param plans receives the starts and exits of the process, on the supervisor's thread
   * @param frames receives the frames of the process, on the supervisor's thread
   */
  WorkerProcess(Config config, OpenPlans plans, WorkerFrames frames) {
    this.config = config;
    this.plans = plans;
    this.frames = frames;
    this.supervisor = daemon(this::supervise, config.name);
  }

  Config config() {
    return config;
  }

  int index() {
    return config.index;
  }

  void start() {
    supervisor.start();
  }

  /** Queue a frame. The frame is dropped if the process of that epoch has exited. */
  void send(int epoch, byte[] frame) {
    WorkerRun target;
    synchronized (lock) {
      target = current;
    }
    if (target != null && target.epoch() == epoch) {
      target.send(frame);
    }
  }

  /** Check the time limits of the process. The monitor calls this every {@link #TICK_MS}. */
  void tick() {
    WorkerRun target;
    synchronized (lock) {
      target = closing ? null : current;
    }
    if (target != null) {
      target.tick();
    }
  }

  /** Extend the limit of the time without a frame. The longest limit applies; 0 means unlimited. */
  void allowSilence(long millis) {
    silenceLimit.allow(millis);
  }

  /** Stop the open timeout of the process of that epoch. */
  void opened(int epoch) {
    synchronized (lock) {
      if (current != null && current.epoch() == epoch) {
        current.opened();
      }
    }
  }

  /** Start the open timeout of the process of that epoch, unless the timeout already runs. */
  void opening(int epoch) {
    synchronized (lock) {
      if (current != null && current.epoch() == epoch) {
        current.opening();
      }
    }
  }

  /** Request the exit of the process, without waiting. */
  void beginClose(long graceMs) {
    synchronized (lock) {
      closing = true;
      closeDeadlineNanos = deadline(graceMs);
      if (current != null) {
        current.requestExit();
      }
      lock.notifyAll();
    }
  }

  /** Wait for the exit that {@link #beginClose} requested, and kill the process after its grace. */
  void awaitClosed() {
    boolean interrupted = join(supervisor, millisUntil(closeDeadlineNanos));
    if (supervisor.isAlive()) {
      synchronized (lock) {
        if (current != null) {
          LOG.warn("{} did not exit after the close request; killing it.", config.name);
          current.kill();
        }
      }
      interrupted |= join(supervisor, EXIT_GRACE_MS + 2 * JOIN_MS + LeftProcesses.MAX_MS);
      if (supervisor.isAlive()) {
        LOG.error("{}: a process that holds its output pipe is still running.", config.name);
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  /** Return the time in which a process that has closed its output may exit by itself. */
  long exitGraceMs() {
    synchronized (lock) {
      return closing ? millisUntil(closeDeadlineNanos) : EXIT_GRACE_MS;
    }
  }

  private void supervise() {
    try (MdcUtils.MdcCloseable ignored =
        MdcUtils.withContext(MdcUtils.asContextData(config.jobId))) {
      keepRunning();
    } catch (RuntimeException | Error e) {
      LOG.error("The supervision of {} failed.", config.name, e);
      plans.fail(new AgentWorkerException(config.name + " is lost: " + e, e));
    }
  }

  private void keepRunning() {
    WorkerRestarts restarts = new WorkerRestarts();
    while (true) {
      WorkerRun run;
      try {
        run = launch(restarts.onProbation());
      } catch (IOException | RuntimeException e) {
        LOG.error("{} cannot be started.", config.name, e);
        plans.fail(new AgentRejectedException(WorkerRun.messageOf(e)));
        return;
      }
      if (run == null) {
        return;
      }
      String reason = run.run();
      synchronized (lock) {
        current = null;
        if (closing) {
          return;
        }
      }
      long pause = restarts.pauseAfter(run.ended());
      plans.lost(this, run.epoch(), reason);
      if (pause == WorkerRestarts.GIVE_UP) {
        plans.fail(new AgentWorkerException(failureOf(run, restarts.failedStarts(), reason)));
        return;
      }
      LOG.warn("Restarting {} in {} ms: {}", config.name, pause, reason);
      if (!pause(pause)) {
        return;
      }
    }
  }

  private static String failureOf(WorkerRun run, int starts, String reason) {
    List<String> tail = run.logTail();
    return String.format(
        run.ended().opened()
            ? "The agent worker process exited %d times in a row before it had a turn to run:"
                + " %s. %s"
            : "The agent worker process exited %d times in a row before it was ready: %s. %s",
        starts,
        reason,
        tail.isEmpty()
            ? "It logged nothing: check that flink_skills is installed for its interpreter."
            : "The last lines of its log:\n  " + String.join("\n  ", tail));
  }

  /** Start the process. Return null if the pool is closing. */
  private WorkerRun launch(boolean onProbation) throws IOException {
    synchronized (lock) {
      if (closing) {
        return null;
      }
      WorkerLauncher.Worker worker = config.launcher.launch(config.index);
      WorkerSilence silence = new WorkerSilence(silenceLimit);
      current = new WorkerRun(this, ++epochs, worker, silence, onProbation, plans, frames);
      return current;
    }
  }

  /** Wait. Return false if the pool is closing. */
  private boolean pause(long millis) {
    long until = deadline(millis);
    synchronized (lock) {
      try {
        long remaining;
        while (!closing && (remaining = millisUntil(until)) > 0) {
          lock.wait(remaining);
        }
      } catch (InterruptedException e) {
        return false;
      }
      return !closing;
    }
  }

  /**
   * Return a thread of a pool, with Flink's class loader. Java's pooled threads that wait for
   * processes inherit the class loader of the thread that starts a process. With the job's class
   * loader, they would reference it after the job.
   */
  static Thread daemon(Runnable body, String name) {
    Thread thread = new Thread(body, name);
    thread.setDaemon(true);
    thread.setContextClassLoader(ClassLoader.getSystemClassLoader());
    return thread;
  }

  /** Join a thread despite interrupts. Return true if there was an interrupt. */
  static boolean join(Thread thread, long millis) {
    long until = deadline(millis);
    boolean interrupted = false;
    while (thread.isAlive() && millisUntil(until) > 0) {
      try {
        thread.join(Math.max(1, millisUntil(until)));
      } catch (InterruptedException e) {
        interrupted = true;
      }
    }
    return interrupted;
  }

  static long deadline(long millis) {
    return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
  }

  static long millisUntil(long deadlineNanos) {
    return TimeUnit.NANOSECONDS.toMillis(deadlineNanos - System.nanoTime());
  }
}
