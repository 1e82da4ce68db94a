package org.flinkskills.bridge.kit;

import java.time.Duration;
import java.util.concurrent.Callable;
import java.util.concurrent.locks.LockSupport;

/** Waits for conditions, with a deadline. */
public final class Waiting {
  static final Duration LIMIT = Duration.ofSeconds(20);
  private static final long PAUSE_NANOS = 500_000;

  private Waiting() {}

  public static void until(String what, Callable<Boolean> condition) throws Exception {
    long deadline = System.nanoTime() + LIMIT.toNanos();
    while (!condition.call()) {
      if (System.nanoTime() > deadline) {
        throw new AssertionError("Not within " + LIMIT + ": " + what);
      }
      LockSupport.parkNanos(PAUSE_NANOS);
    }
  }
}
