package org.flinkskills.bridge.turns;

import java.util.ArrayDeque;
import java.util.Deque;
import org.apache.flink.util.function.ThrowingRunnable;

/**
 * Buffer of watermarks and watermark statuses. Each of them is emitted, in order, after all events
 * that were accepted before it have ended.
 */
final class EventTimeGate {

  /** Unfinished events between two elements of the buffer. */
  static final class Epoch {
    private int open;
    private ThrowingRunnable<Exception> closing;
    private boolean closedByWatermark;
  }

  private final Deque<Epoch> epochs = new ArrayDeque<>();

  /** The epoch of events that delay no watermark. */
  private final Epoch ungated = new Epoch();

  EventTimeGate() {
    epochs.add(new Epoch());
  }

  /** Add an event, and return its epoch for {@link #ended}. */
  Epoch accept() {
    Epoch epoch = epochs.getLast();
    epoch.open++;
    return epoch;
  }

  /** Return the epoch of an event that delays no watermark. */
  Epoch ungated() {
    return ungated;
  }

  /** Remove an event after its outputs are emitted. */
  void ended(Epoch epoch) throws Exception {
    if (epoch != ungated) {
      epoch.open--;
      release();
    }
  }

  void watermark(ThrowingRunnable<Exception> emit) throws Exception {
    pass(emit, true);
  }

  void status(ThrowingRunnable<Exception> emit) throws Exception {
    pass(emit, false);
  }

  private void pass(ThrowingRunnable<Exception> emit, boolean watermark) throws Exception {
    Epoch last = epochs.removeLast();
    Epoch before = epochs.peekLast();
    if (watermark && last.open == 0 && before != null && before.closedByWatermark) {
      // No event arrived between these watermarks, so the newer one replaces the older one.
      before.closing = emit;
    } else {
      last.closing = emit;
      last.closedByWatermark = watermark;
      epochs.addLast(last);
      last = new Epoch();
    }
    epochs.addLast(last);
    release();
  }

  private void release() throws Exception {
    Epoch first;
    while ((first = epochs.getFirst()).open == 0 && first.closing != null) {
      epochs.removeFirst();
      first.closing.run();
    }
  }
}
