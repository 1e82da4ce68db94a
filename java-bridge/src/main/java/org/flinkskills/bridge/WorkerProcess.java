package org.flinkskills.bridge;

import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.flink.api.common.JobID;
import org.apache.flink.util.MdcUtils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps one worker process running: starts it, moves frames to and from it, and starts it again
 * when it dies. Each start is an <em>epoch</em>; frames for an older epoch are dropped.
 *
 * <p>Three threads: the supervisor starts the process and reads its frames (it must be the one that
 * starts it, see {@link WorkerLauncher#launch}); a writer, so that no task thread ever blocks on a
 * full pipe; and one that drains the log until the process has ended.
 */
final class WorkerProcess {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerProcess.class);

  /** The time between calls of {@link #tick}. */
  static final long TICK_MS = 100;

  private static final long PROBATION_MS = 1000;
  private static final long EXIT_GRACE_MS = 500;
  private static final long JOIN_MS = 1000;

  /** Receives reports of the supervisor, on its thread except for {@link #steady}. */
  interface Events {
    /** A process runs. On probation it must get no turns before {@link #steady}. */
    void started(WorkerProcess worker, int epoch, boolean onProbation);

    /** The process has stood its probation; called by the thread that calls {@link #tick}. */
    void steady(WorkerProcess worker, int epoch);

    void frames(WorkerProcess worker, int epoch, List<Frames.Frame> frames) throws IOException;

    void lost(WorkerProcess worker, int epoch, String reason);

    /** The worker cannot be kept running; nothing follows. */
    void gaveUp(WorkerProcess worker, Exception failure);
  }

  private final String name;
  private final JobID jobId;
  private final int index;
  private final WorkerLauncher launcher;
  private final long openTimeoutMs;
  private final Events events;
  private final Thread supervisor;

  private final WorkerSilence.Limit silenceLimit = new WorkerSilence.Limit();

  private final Object lock = new Object();
  private Incarnation current;
  private boolean closing;
  private long closeDeadlineNanos;
  private int epochs;

  WorkerProcess(
      String name,
      JobID jobId,
      int index,
      WorkerLauncher launcher,
      long openTimeoutMs,
      Events events) {
    this.name = name;
    this.jobId = jobId;
    this.index = index;
    this.launcher = launcher;
    this.openTimeoutMs = openTimeoutMs;
    this.events = events;
    this.supervisor = daemon(this::supervise, name);
  }

  int index() {
    return index;
  }

  void start() {
    supervisor.start();
  }

  /** Queues a frame; it is dropped when the worker of that epoch is gone. */
  void send(int epoch, byte[] frame) {
    Incarnation target;
    synchronized (lock) {
      target = current;
    }
    if (target != null && target.epoch == epoch) {
      target.hadTurns |= Frames.isTurn(frame);
      target.outgoing.add(frame);
    }
  }

  /**
   * Looks at the time that the process takes; called every {@link #TICK_MS}. It counts these calls
   * and not the time between them, where the TaskManager itself may have stood still.
   */
  void tick() {
    Incarnation target;
    synchronized (lock) {
      target = closing ? null : current;
    }
    if (target != null) {
      target.tick();
    }
  }

  /** Sets the time without an answer. Of several agents the most patient one counts; 0: no limit. */
  void allowSilence(long millis) {
    silenceLimit.allow(millis);
  }

  /** The worker of that epoch has opened everything it was asked to. */
  void opened(int epoch) {
    synchronized (lock) {
      if (current != null && current.epoch == epoch) {
        current.openDeadlineNanos = 0;
        if (!current.opened) {
          current.openedNanos = System.nanoTime();
          current.opened = true;
        }
      }
    }
  }

  /** The worker of that epoch was asked to open something: from now on its time runs. */
  void opening(int epoch) {
    synchronized (lock) {
      if (current != null && current.epoch == epoch && current.openDeadlineNanos == 0) {
        current.openDeadlineNanos = deadline(openTimeoutMs);
      }
    }
  }

  /** Asks the worker to end, without waiting. */
  void beginClose(long graceMs) {
    synchronized (lock) {
      closing = true;
      closeDeadlineNanos = deadline(graceMs);
      if (current != null) {
        current.outgoing.add(Frames.close());
        current.outgoing.add(Incarnation.END);
      }
      lock.notifyAll();
    }
  }

  /** Waits for the end that {@link #beginClose} asked for, and kills what still runs after it. */
  void awaitClosed() {
    boolean interrupted = join(supervisor, millisUntil(closeDeadlineNanos));
    if (supervisor.isAlive()) {
      synchronized (lock) {
        if (current != null) {
          LOG.warn("{} did not exit after the close request; killing it.", name);
          current.worker.kill();
        }
      }
      interrupted |= join(supervisor, EXIT_GRACE_MS + 2 * JOIN_MS + LeftProcesses.LONGEST_MS);
      if (supervisor.isAlive()) {
        LOG.error("{}: a process that holds its output pipe is still running.", name);
      }
    }
    if (interrupted) {
      Thread.currentThread().interrupt();
    }
  }

  private void supervise() {
    try (MdcUtils.MdcCloseable ignored = MdcUtils.withContext(MdcUtils.asContextData(jobId))) {
      keepRunning();
    } catch (RuntimeException | Error e) {
      LOG.error("The supervision of {} failed.", name, e);
      events.gaveUp(this, new AgentWorkerException(name + " is lost: " + e, e));
    }
  }

  private void keepRunning() {
    WorkerRestarts restarts = new WorkerRestarts();
    while (true) {
      Incarnation incarnation;
      try {
        incarnation = begin(restarts.onProbation());
      } catch (IOException | RuntimeException e) {
        LOG.error("{} cannot be started.", name, e);
        events.gaveUp(this, new AgentRejectedException(messageOf(e)));
        return;
      }
      if (incarnation == null) {
        return;
      }
      String reason = incarnation.run();
      synchronized (lock) {
        current = null;
        if (closing) {
          return;
        }
      }
      long pause = restarts.pauseAfter(incarnation.ended());
      events.lost(this, incarnation.epoch, reason);
      if (pause == WorkerRestarts.GIVE_UP) {
        String message = givingUp(restarts.failedStarts(), reason, incarnation);
        events.gaveUp(this, new AgentWorkerException(message));
        return;
      }
      LOG.warn("Restarting {} in {} ms: {}", name, pause, reason);
      if (!pause(pause)) {
        return;
      }
    }
  }

  private String givingUp(int starts, String reason, Incarnation incarnation) {
    List<String> tail = incarnation.log.tail();
    return String.format(
        incarnation.opened
            ? "The agent worker process exited %d times in a row before it had a turn to run:"
                + " %s. %s"
            : "The agent worker process exited %d times in a row before it was ready: %s. %s",
        starts,
        reason,
        tail.isEmpty()
            ? "It logged nothing: check that flink_skills is installed for its interpreter."
            : "The last lines of its log:\n  " + String.join("\n  ", tail));
  }

  /** Starts the process; null when the pool is closing. */
  private Incarnation begin(boolean onProbation) throws IOException {
    synchronized (lock) {
      if (closing) {
        return null;
      }
      current = new Incarnation(++epochs, launcher.launch(index), onProbation);
      return current;
    }
  }

  /** Waits; false when the pool is closing. */
  private boolean pause(long millis) {
    long until = deadline(millis);
    synchronized (lock) {
      try {
        long left;
        while (!closing && (left = millisUntil(until)) > 0) {
          lock.wait(left);
        }
      } catch (InterruptedException e) {
        return false;
      }
      return !closing;
    }
  }

  /** One run of the process. */
  private final class Incarnation {
    /** Ends the writer after everything before it is written. */
    private static final byte[] END = new byte[0];

    private final int epoch;
    private final WorkerLauncher.Worker worker;
    private final LinkedBlockingQueue<byte[]> outgoing = new LinkedBlockingQueue<>();
    private final WorkerLog log;
    private final WorkerSilence silence = new WorkerSilence(silenceLimit);
    private volatile boolean opened;
    private volatile long openedNanos;
    private volatile long openDeadlineNanos;
    private volatile boolean hadTurns;
    private volatile boolean onProbation;
    private volatile String complaint;
    private boolean hadProgress;
    private long steadyMs;

    Incarnation(int epoch, WorkerLauncher.Worker worker, boolean onProbation) {
      this.epoch = epoch;
      this.onProbation = onProbation;
      this.worker = worker;
      this.log = new WorkerLog(name, jobId, worker.log(), worker::awaitExit, launcher.prints());
    }

    /** Runs until the worker is gone and answers why it is. */
    String run() {
      Thread writer = daemon(() -> guarded("writing to the worker", this::write), name + "-writer");
      Thread drain =
          daemon(() -> guarded("reading the worker's log", this::readLog), name + "-log");
      try {
        writer.start();
        drain.start();
        events.started(WorkerProcess.this, epoch, onProbation);
        read();
      } catch (IOException | RuntimeException | Error e) {
        // An error, such as memory that does not suffice for a frame, is a lost worker too.
        if (complaint == null) {
          complaint = "reading from the worker failed: " + messageOf(e);
        }
        LOG.warn("{}: reading from the worker failed.", name, e);
      }
      end();
      endLeft();
      outgoing.add(END);
      join(writer, JOIN_MS);
      join(drain, JOIN_MS);
      String exit = worker.exitDescription();
      return complaint == null ? exit : exit + ": " + complaint;
    }

    /**
     * Reads the log until the end of the process, and ends the processes that it left. One of them
     * may keep the pipe open that the supervisor reads.
     */
    private void readLog() {
      log.run();
      endLeft();
    }

    private void endLeft() {
      try {
        worker.endLeft();
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
    }

    /** Kills the worker when one of its threads fails. */
    private void guarded(String what, Runnable body) {
      try {
        body.run();
      } catch (RuntimeException | Error e) {
        LOG.error("{}: {} failed.", name, what, e);
        kill(what + " failed: " + messageOf(e));
      }
    }

    private void read() throws IOException {
      FrameParser parser = new FrameParser();
      List<Frames.Frame> frames = new ArrayList<>();
      while (readOnce(parser, frames)) {
        if (!frames.isEmpty()) {
          hadProgress = hadProgress || frames.stream().anyMatch(Frames.Frame::isProgress);
          events.frames(WorkerProcess.this, epoch, frames);
          frames = new ArrayList<>();
        }
      }
    }

    private boolean readOnce(FrameParser parser, List<Frames.Frame> frames) throws IOException {
      silence.reading();
      try {
        return parser.read(worker.output(), frames);
      } finally {
        silence.received();
      }
    }

    WorkerRestarts.Ended ended() {
      long openMillis =
          opened ? TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - openedNanos) : 0;
      return new WorkerRestarts.Ended(opened, openMillis, hadTurns, hadProgress);
    }

    void tick() {
      if (openDeadlineNanos != 0) {
        if (millisUntil(openDeadlineNanos) <= 0) {
          kill(
              String.format(
                  "the worker did not open the agent within %d ms (skills.worker.open-timeout)",
                  openTimeoutMs));
        }
        return;
      }
      if (opened) {
        tickSilence();
      }
      if (onProbation && opened) {
        steadyMs += TICK_MS;
        if (steadyMs > PROBATION_MS) {
          onProbation = false;
          events.steady(WorkerProcess.this, epoch);
        }
      }
    }

    private void tickSilence() {
      switch (silence.tick()) {
        case PING -> outgoing.add(Frames.ping());
        case DEAD ->
            kill(
                String.format(
                    "the worker sent nothing for %d ms (skills.worker.max-silence); the process may"
                        + " be stopped or swapped out, or code in it holds Python's lock",
                    silenceLimit.millis()));
        case QUIET -> {}
      }
    }

    private void kill(String why) {
      if (complaint == null) {
        complaint = why;
      }
      worker.kill();
    }

    /** Lets a worker that closed its output end by itself, so that its exit code is known. */
    private void end() {
      long grace;
      synchronized (lock) {
        grace = closing ? millisUntil(closeDeadlineNanos) : EXIT_GRACE_MS;
      }
      try {
        if (complaint != null || !worker.awaitExit(grace)) {
          worker.kill();
          worker.awaitExit(JOIN_MS);
        }
      } catch (InterruptedException e) {
        worker.kill();
      }
    }

    private void write() {
      try (OutputStream input = worker.input()) {
        FrameBatch batch = new FrameBatch(input);
        while (true) {
          byte[] frame = outgoing.take();
          if (frame == END) {
            return;
          }
          boolean last = false;
          while (frame != null && !last) {
            batch.add(frame);
            frame = outgoing.poll();
            last = frame == END;
          }
          batch.flush();
          if (last) {
            return;
          }
        }
      } catch (IOException e) {
        // The reader sees the end of the process and reports it.
        LOG.debug("{}: writing to the worker failed.", name, e);
      } catch (InterruptedException e) {
        LOG.debug("{}: the writer was interrupted.", name);
      }
    }
  }

  private static String messageOf(Throwable e) {
    return e.getMessage() == null || e instanceof Error ? e.toString() : e.getMessage();
  }

  /**
   * Returns a thread of a pool. It needs no class of the job by name, and has Flink's class loader:
   * Java's own pooled threads that wait for processes inherit that of the thread that starts a
   * process, and would keep the job's after the job.
   */
  static Thread daemon(Runnable body, String name) {
    Thread thread = new Thread(body, name);
    thread.setDaemon(true);
    thread.setContextClassLoader(ClassLoader.getSystemClassLoader());
    return thread;
  }

  /** Joins without giving in to an interrupt; true when there was one. */
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

  private static long deadline(long millis) {
    return System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis);
  }

  private static long millisUntil(long deadlineNanos) {
    return TimeUnit.NANOSECONDS.toMillis(deadlineNanos - System.nanoTime());
  }
}
