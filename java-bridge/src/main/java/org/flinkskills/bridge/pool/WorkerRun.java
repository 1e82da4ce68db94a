package org.flinkskills.bridge.pool;

import java.io.IOException;
import java.io.OutputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.flinkskills.bridge.frames.Frame;
import org.flinkskills.bridge.frames.FrameBatch;
import org.flinkskills.bridge.frames.FrameParser;
import org.flinkskills.bridge.frames.Frames;
import org.flinkskills.bridge.processes.WorkerLauncher;
import org.flinkskills.bridge.processes.WorkerLog;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One run of a worker's process, from its start to its exit.
 *
 * <p>Three threads serve the process. The supervisor reads its frames. A writer sends frames, so
 * that no task thread blocks on a full pipe. Another thread drains the log until the process has
 * exited.
 */
final class WorkerRun {
  private static final Logger LOG = LoggerFactory.getLogger(WorkerRun.class);

  private static final long PROBATION_MS = 1000;

  /** Ends the writer after all frames before it. */
  private static final byte[] END = new byte[0];

  private final WorkerProcess process;
  private final String name;
  private final int epoch;
  private final WorkerLauncher.Worker worker;
  private final WorkerLog log;
  private final WorkerSilence silence;
  private final OpenPlans plans;
  private final WorkerFrames frames;
  private final LinkedBlockingQueue<byte[]> outgoing = new LinkedBlockingQueue<>();
  private volatile boolean opened;
  private volatile long openedNanos;

  /** The end of the open timeout, or 0 if no plan is being opened. */
  private volatile long openDeadlineNanos;

  private volatile boolean hadTurns;
  private volatile boolean onProbation;

  /** The reason why the supervisor kills the process, or null. */
  private volatile String killReason;

  private boolean hadProgress;
  private long steadyMs;

  WorkerRun(
      WorkerProcess process,
      int epoch,
      WorkerLauncher.Worker worker,
      WorkerSilence silence,
      boolean onProbation,
      OpenPlans plans,
      WorkerFrames frames) {
    WorkerProcess.Config config = process.config();
    this.process = process;
    this.name = config.name();
    this.epoch = epoch;
    this.worker = worker;
    this.silence = silence;
    this.onProbation = onProbation;
    this.plans = plans;
    this.frames = frames;
    this.log =
        new WorkerLog(
            name, config.jobId(), worker.log(), worker::awaitExit, config.launcher().prints());
  }

  int epoch() {
    return epoch;
  }

  void send(byte[] frame) {
    if (Frames.isTurn(frame)) {
      hadTurns = true;
    }
    outgoing.add(frame);
  }

  /** Request the exit of the process. */
  void requestExit() {
    outgoing.add(Frames.close());
    outgoing.add(END);
  }

  void kill() {
    worker.kill();
  }

  private void kill(String why) {
    if (killReason == null) {
      killReason = why;
    }
    worker.kill();
  }

  /** Stop the open timeout. The caller holds the lock of the supervisor. */
  void opened() {
    openDeadlineNanos = 0;
    if (!opened) {
      openedNanos = System.nanoTime();
      opened = true;
    }
  }

  /** Start the open timeout if it does not run. The caller holds the lock of the supervisor. */
  void opening() {
    if (openDeadlineNanos == 0) {
      openDeadlineNanos = WorkerProcess.deadline(process.config().openTimeoutMs());
    }
  }

  /** Return the last lines of the log. */
  List<String> logTail() {
    return log.tail();
  }

  WorkerRestarts.Ended ended() {
    long openMillis = opened ? TimeUnit.NANOSECONDS.toMillis(System.nanoTime() - openedNanos) : 0;
    return new WorkerRestarts.Ended(opened, openMillis, hadTurns, hadProgress);
  }

  /** Serve the process until it has exited. Return the reason of the exit. */
  String run() {
    Thread writer =
        WorkerProcess.daemon(() -> guarded("writing to the worker", this::write), name + "-writer");
    Thread drain =
        WorkerProcess.daemon(
            () -> guarded("reading the worker's log", this::readLog), name + "-log");
    try {
      writer.start();
      drain.start();
      plans.started(process, epoch, onProbation);
      read();
    } catch (IOException | RuntimeException | Error e) {
      // An error, such as insufficient memory for a frame, is also a lost worker.
      if (killReason == null) {
        killReason = "reading from the worker failed: " + messageOf(e);
      }
      LOG.warn("{}: reading from the worker failed.", name, e);
    }
    awaitExit();
    endRemaining();
    outgoing.add(END);
    WorkerProcess.join(writer, WorkerProcess.JOIN_MS);
    WorkerProcess.join(drain, WorkerProcess.JOIN_MS);
    String exit = worker.exitDescription();
    return killReason == null ? exit : exit + ": " + killReason;
  }

  /** Kill the process if one of its threads fails. */
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
    List<Frame> received = new ArrayList<>();
    while (readOnce(parser, received)) {
      if (!received.isEmpty()) {
        hadProgress = hadProgress || received.stream().anyMatch(Frame::isProgress);
        frames.dispatch(process, epoch, received);
        received = new ArrayList<>();
      }
    }
  }

  private boolean readOnce(FrameParser parser, List<Frame> received) throws IOException {
    silence.reading();
    try {
      return parser.read(worker.output(), received);
    } finally {
      silence.received();
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
      // The reader detects the exit of the process, and reports it.
      LOG.debug("{}: writing to the worker failed.", name, e);
    } catch (InterruptedException e) {
      LOG.debug("{}: the writer was interrupted.", name);
    }
  }

  /**
   * Read the log until the exit of the process, and terminate the processes that it left. One of
   * them may hold the pipe open that the supervisor reads.
   */
  private void readLog() {
    log.run();
    endRemaining();
  }

  private void endRemaining() {
    try {
      worker.endRemaining();
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    }
  }

  /** Wait for the exit of a process that closed its output, so that its exit code is available. */
  private void awaitExit() {
    try {
      if (killReason != null || !worker.awaitExit(process.exitGraceMs())) {
        worker.kill();
        worker.awaitExit(WorkerProcess.JOIN_MS);
      }
    } catch (InterruptedException e) {
      worker.kill();
    }
  }

  /**
   * Check the time limits of the process. The method counts its calls instead of the time between
   * them, because the TaskManager itself may be paused.
   */
  void tick() {
    if (openDeadlineNanos != 0) {
      if (WorkerProcess.millisUntil(openDeadlineNanos) <= 0) {
        kill(
            String.format(
                "the worker did not open the agent within %d ms (skills.worker.open-timeout)",
                process.config().openTimeoutMs()));
      }
      return;
    }
    if (opened) {
      tickSilence();
    }
    if (onProbation && opened) {
      steadyMs += WorkerProcess.TICK_MS;
      if (steadyMs > PROBATION_MS) {
        onProbation = false;
        plans.steady(process, epoch);
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
                  silence.limitMillis()));
      case QUIET -> {}
    }
  }

  static String messageOf(Throwable e) {
    return e.getMessage() == null || e instanceof Error ? e.toString() : e.getMessage();
  }
}
