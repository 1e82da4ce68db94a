package org.flinkskills.bridge;

import java.util.concurrent.atomic.AtomicLong;

/** Bytes of the heap that several threads share. */
final class MemoryBudget {
  /** Flink derives the heap of a TaskManager from its memory settings. */
  private static final int SHARE_OF_HEAP = 16;

  private final long limit;
  private final AtomicLong used = new AtomicLong();

  MemoryBudget(long limit) {
    this.limit = limit;
  }

  /** Return a budget of one sixteenth of the heap. */
  static MemoryBudget ofHeap() {
    return new MemoryBudget(Runtime.getRuntime().maxMemory() / SHARE_OF_HEAP);
  }

  /** Reserve bytes. Return false if the remaining budget does not suffice. */
  boolean reserve(long bytes) {
    if (used.addAndGet(bytes) <= limit) {
      return true;
    }
    used.addAndGet(-bytes);
    return false;
  }

  void release(long bytes) {
    used.addAndGet(-bytes);
  }

  long used() {
    return used.get();
  }
}
