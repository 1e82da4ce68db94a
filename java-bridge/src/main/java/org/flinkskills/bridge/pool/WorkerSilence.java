package org.flinkskills.bridge.pool;

/**
 * Detector of a worker process that runs but sends nothing: stopped by a signal, swapped out, or
 * blocked with Python's lock held. The process first receives a PING.
 *
 * <p>Silence is counted in ticks of the pool's monitor, because a paused TaskManager, for example
 * in a garbage collection, has no ticks. Time that the reader spends on received frames is not
 * silence: the response may wait in the pipe.
 */
final class WorkerSilence {
  private static final int TICKS_BEFORE_PING = (int) (1000 / WorkerProcess.TICK_MS);

  private final Limit limit;
  private volatile boolean reading;
  private volatile long reads;

  private long readsSeen;
  private long silentTicks;
  private boolean pinged;

  /** The next action. */
  enum Verdict {
    QUIET,
    PING,
    DEAD
  }

  /** The longest silence, shared by the processes that follow each other. */
  static final class Limit {
    private volatile long millis;
    private boolean isSet;

    /** Extend the limit to {@code allowed}; 0 means unlimited. */
    synchronized void allow(long allowed) {
      boolean unlimited = allowed == 0 || isSet && millis == 0;
      millis = unlimited ? 0 : Math.max(millis, allowed);
      isSet = true;
    }

    long millis() {
      return millis;
    }
  }

  WorkerSilence(Limit limit) {
    this.limit = limit;
  }

  /** Return the longest silence in milliseconds, or 0 if it is unlimited. */
  long limitMillis() {
    return limit.millis();
  }

  /** Record that the reader waits for bytes. Only the reader calls this. */
  void reading() {
    reading = true;
  }

  /** Record received bytes, of a whole frame or a part. Only the reader calls this. */
  void received() {
    reading = false;
    reads = reads + 1;
  }

  /** Count one tick. Only the monitor calls this, after the process has opened its plans. */
  Verdict tick() {
    long now = reads;
    if (now != readsSeen || !reading) {
      readsSeen = now;
      silentTicks = 0;
      pinged = false;
      return Verdict.QUIET;
    }
    silentTicks++;
    if (!pinged) {
      if (silentTicks < TICKS_BEFORE_PING) {
        return Verdict.QUIET;
      }
      pinged = true;
      silentTicks = 0;
      return Verdict.PING;
    }
    long max = limit.millis();
    return max > 0 && silentTicks * WorkerProcess.TICK_MS > max ? Verdict.DEAD : Verdict.QUIET;
  }
}
