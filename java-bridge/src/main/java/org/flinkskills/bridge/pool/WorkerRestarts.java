package org.flinkskills.bridge.pool;

import java.util.concurrent.ThreadLocalRandom;

/**
 * Restart strategy of one worker, for its supervisor.
 *
 * <p>A process that finished a step or a turn, or that was open for a minute, was healthy: the next
 * one starts immediately. A process that exited before its first turn is a failed start: the pauses
 * grow, and the job fails after several of them in a row.
 *
 * <p>A process that exited with turns and finished none of them is fruitless. Its turns may be the
 * cause, and they end after several crashes, so fruitless processes do not fail the job. After two
 * of them the process itself may be the cause. The next one is therefore on probation: it gets
 * turns only after it has been open for some time without any.
 */
final class WorkerRestarts {
  /** The result of {@link #pauseAfter} if the worker must not be started again. */
  static final long GIVE_UP = -1;

  static final int MAX_FAILED_STARTS = 5;

  /** A worker that was never open has an error in its installation, and has fewer retries. */
  static final int MAX_FAILED_FIRST_STARTS = 3;

  private static final int FRUITLESS_WITHOUT_PROBATION = 2;
  private static final long HEALTHY_MS = 60_000;
  private static final long FIRST_PAUSE_MS = 200;
  private static final long MAX_FRUITLESS_PAUSE_MS = 1000;

  private boolean everOpened;
  private int failedStarts;
  private int fruitless;

  /** The history of a process that ended. */
  record Ended(boolean opened, long openMillis, boolean hadTurns, boolean hadProgress) {}

  int failedStarts() {
    return failedStarts;
  }

  /** Return true if the next process gets turns only after it has been open for some time. */
  boolean onProbation() {
    return failedStarts > 0 || fruitless >= FRUITLESS_WITHOUT_PROBATION;
  }

  /** Return the milliseconds before the next start, or {@link #GIVE_UP}. */
  long pauseAfter(Ended ended) {
    everOpened |= ended.opened;
    if (ended.hadProgress || ended.openMillis >= HEALTHY_MS) {
      failedStarts = 0;
      fruitless = 0;
      return 0;
    }
    if (ended.hadTurns) {
      fruitless++;
      int more = fruitless - FRUITLESS_WITHOUT_PROBATION;
      return more <= 0 ? 0 : spread(Math.min(MAX_FRUITLESS_PAUSE_MS, pause(more)));
    }
    failedStarts++;
    if (failedStarts >= (everOpened ? MAX_FAILED_STARTS : MAX_FAILED_FIRST_STARTS)) {
      return GIVE_UP;
    }
    return spread(pause(failedStarts));
  }

  private static long pause(int times) {
    return FIRST_PAUSE_MS << Math.min(20, times - 1);
  }

  /** Spread the starts of workers that crashed for the same reason. */
  private static long spread(long millis) {
    return ThreadLocalRandom.current().nextLong(millis * 3 / 4, millis * 5 / 4 + 1);
  }
}
